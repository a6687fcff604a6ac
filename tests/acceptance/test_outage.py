"""A database outage that is longer than the leases does not count as an attempt of live workers."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.engine import maintenance
from holdfast.store import open_store
from tests.acceptance.app import make
from tests.acceptance.processes import all_in, kill_all, start_worker, wait_until
from tests.operate.sound import assert_sound
from tests.postgres_server import PostgresServer
from tests.story import ORG, look

LEASE = {"lease_seconds": 1.0, "rescue_seconds": 0.2, "poll_seconds": 0.05}
OUTAGE_SECONDS = 3.0
REAL = {"reconnect_seconds": maintenance.RECONNECT_SECONDS}


def charged(hf: Holdfast) -> Counter[str]:
    """The error classes of the failed attempts."""
    rows = look(
        hf.store,
        "SELECT detail ->> 'error_class' AS error_class FROM holdfast.job_event"
        " WHERE name = 'job.failed'",
    )
    return Counter(row["error_class"] for row in rows)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    # Durable: a crash must not lose anything that was acknowledged.
    made = PostgresServer(durable=True)
    try:
        yield made
    finally:
        kill_all()
        made.close()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """An empty database of a server that a test may stop."""
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS outage WITH (FORCE)")
        admin.execute("CREATE DATABASE outage")
    store = open_store(server.dsn("outage"), check=False)
    store.migrate()
    store.close()
    return server.dsn("outage")


@pytest.mark.req("C-08", "I-18")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
def test_an_outage_longer_than_the_lease_charges_no_live_worker(
    server: PostgresServer, url: str, tmp_path: Path, how: signal.Signals
) -> None:
    with make(url, **LEASE) as hf:
        began = [tmp_path / f"began-{number}" for number in range(6)]
        # Two run through the whole outage, four end in it.
        lengths = [OUTAGE_SECONDS + 1, OUTAGE_SECONDS + 1, 0.5, 0.5, 1.5, 1.5]
        running = [
            hf.enqueue("work", {"began": str(path), "seconds": seconds}, org_id=ORG)
            for path, seconds in zip(began, lengths, strict=True)
        ]
        workers = [start_worker(url, settings=LEASE, **REAL, concurrency=2) for _ in range(3)]
        wait_until(lambda: all(path.exists() for path in began))
        waiting = hf.enqueue_many("work", [{"seconds": 0.05}] * 10, org_id=ORG)

        server.stop(how)
        time.sleep(OUTAGE_SECONDS)
        server.start()
        wait_until(lambda: all_in(hf, [*running, *waiting], State.COMPLETED))

        assert [worker.is_alive() for worker in workers] == [True] * 3
        assert charged(hf)["WORKER_CRASHED"] == 0
        assert_sound(hf)


@pytest.mark.req("C-09")
def test_a_worker_killed_during_an_outage_counts_as_an_attempt(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    with make(url, **LEASE) as hf:
        began = tmp_path / "began"
        job = hf.enqueue("work", {"began": str(began), "seconds": 1}, org_id=ORG)
        victim = start_worker(url, settings=LEASE, **REAL, concurrency=1)
        wait_until(began.exists)
        server.stop()
        victim.kill()
        victim.join()
        survivor = start_worker(url, settings=LEASE, **REAL, concurrency=1)
        server.start()
        wait_until(lambda: all_in(hf, [job], State.COMPLETED))

        assert survivor.is_alive()
        assert charged(hf) == {"WORKER_CRASHED": 1}
        assert_sound(hf)
