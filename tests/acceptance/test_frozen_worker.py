"""A worker freezes past its lease and thaws: one outcome is recorded, the late one refused."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.store import Tx
from tests.acceptance.app import make
from tests.acceptance.processes import all_in, start_worker, wait_until
from tests.story import ORG, events, timeline


@pytest.mark.req("C-08", "C-09", "I-14", "I-18")
def test_a_frozen_worker_that_thaws_after_its_lease_changes_nothing(
    url: str, tmp_path: Path
) -> None:
    hf = make(url)
    ran, began, may_end = (tmp_path / name for name in ("ran", "began", "may_end"))
    payload = {"touch": str(ran), "began": str(began), "until": str(may_end)}
    job = hf.enqueue("work", payload, org_id=ORG)
    frozen = start_worker(url)
    wait_until(began.exists)
    freeze(frozen.pid or 0, hf)

    quick = start_worker(url)
    wait_until(lambda: all_in(hf, [job], State.COMPLETED))
    may_end.touch()
    os.kill(frozen.pid or 0, signal.SIGCONT)
    wait_until(lambda: "job.lease_lost" in timeline(hf, job))

    frozen.kill()
    quick.kill()
    names = timeline(hf, job)
    (succeeded,) = [event for event in events(hf, job) if event["name"] == "job.succeeded"]
    (lost,) = [event for event in events(hf, job) if event["name"] == "job.lease_lost"]
    assert names.count("job.started") == 2
    assert succeeded["actor_id"] != lost["actor_id"]
    assert hf.get(job.id, org_id=ORG).result == {"attempt": 2}
    assert ran.read_text().splitlines() == ["2", "1"]
    hf.close()


def freeze(pid: int, hf: Holdfast) -> None:
    """Stop a process between two writes; inside a write it would hold SQLite's lock.

    The lock is kept until every thread is stopped: a signal takes time to arrive, and a thread that
    takes the lock in that time would be stopped while it holds it.
    """

    def stop(tx: Tx) -> None:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: stands_still(pid))

    hf.store.write(stop)


def stands_still(pid: int) -> bool:
    threads = list(Path(f"/proc/{pid}/task").glob("*/stat"))
    if not threads:  # A system that does not list its processes as files.
        time.sleep(0.5)
        return True
    return all(thread.read_text().rpartition(") ")[2].startswith("T") for thread in threads)
