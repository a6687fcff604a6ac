"""A database that is away for longer than the leases: live workers pay nothing for it."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.store import open_store
from tests.acceptance.app import make
from tests.acceptance.processes import all_in, kill_all, start_worker, wait_until
from tests.operate.sound import assert_sound
from tests.postgres_server import PostgresServer
from tests.story import ORG, look

LEASE = {"lease_seconds": 2.0, "rescue_seconds": 0.2, "poll_seconds": 0.05}
OUTAGE_SECONDS = 6.0


def charged(hf: Holdfast) -> Counter[str]:
    """What the attempts that failed were charged for."""
    rows = look(
        hf.store,
        "SELECT detail ->> 'error_class' AS error_class FROM holdfast.job_event"
        " WHERE name = 'job.failed'",
    )
    return Counter(row["error_class"] for row in rows)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    # Durable: a crash must lose nothing that was acknowledged.
    made = PostgresServer(durable=True)
    try:
        store = open_store(made.dsn(), check=False)
        store.migrate()
        store.close()
        yield made
    finally:
        kill_all()
        made.close()


@pytest.mark.req("C-08", "I-18")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
def test_an_outage_longer_than_the_lease_charges_no_live_worker(
    server: PostgresServer, tmp_path: Path, how: signal.Signals
) -> None:
    with make(server.dsn(), **LEASE) as hf:
        began = [tmp_path / f"began-{number}" for number in range(6)]
        # Some run through the whole outage, some end in it, some wait for its end.
        lengths = [OUTAGE_SECONDS + 2, OUTAGE_SECONDS + 2, 1, 1, 3, 3]
        running = [
            hf.enqueue("work", {"began": str(path), "seconds": seconds}, org_id=ORG)
            for path, seconds in zip(began, lengths, strict=True)
        ]
        workers = [start_worker(server.dsn(), settings=LEASE, concurrency=2) for _ in range(3)]
        wait_until(lambda: all(path.exists() for path in began))
        waiting = hf.enqueue_many("work", [{"seconds": 0.05}] * 30, org_id=ORG)

        server.stop(how)
        time.sleep(OUTAGE_SECONDS)
        server.start()
        wait_until(lambda: all_in(hf, [*running, *waiting], State.COMPLETED))

        assert [worker.is_alive() for worker in workers] == [True] * 3
        assert charged(hf)["WORKER_CRASHED"] == 0
        assert_sound(hf)


@pytest.mark.req("C-09")
def test_a_worker_that_dies_in_an_outage_is_charged_after_it(
    server: PostgresServer, tmp_path: Path
) -> None:
    with make(server.dsn(), **LEASE) as hf:
        began = tmp_path / "began"
        job = hf.enqueue("work", {"began": str(began), "seconds": 1}, org_id=ORG)
        victim = start_worker(server.dsn(), settings=LEASE, concurrency=1)
        wait_until(began.exists)
        server.stop()
        victim.kill()
        victim.join()
        survivor = start_worker(server.dsn(), settings=LEASE, concurrency=1)
        server.start()
        wait_until(lambda: all_in(hf, [job], State.COMPLETED))

        assert survivor.is_alive()
        assert charged(hf) == {"WORKER_CRASHED": 1}
        assert_sound(hf)
