"""kill -9 at random points: every accepted job ends, and its end is recorded once."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from holdfast import Holdfast
from tests.acceptance.app import make
from tests.acceptance.processes import start_worker, wait_until
from tests.operate.sound import assert_sound, report_of, violations
from tests.story import ORG, OTHER_ORG, look

ROUNDS = 40
WORKERS = 3
JOBS_A_ROUND = 20


@pytest.mark.timeout(240)
@pytest.mark.req("E-02", "I-01", "I-18", "C-08")
def test_kills_at_random_points_lose_no_job_and_record_no_end_twice(url: str) -> None:
    hf = make(url)
    rng = random.Random(20261115)
    accepted: set[str] = set()
    workers = [start_worker(url) for _ in range(WORKERS)]

    for number in range(ROUNDS):
        for org_id in (ORG, OTHER_ORG):
            payloads = [{"seconds": rng.choice([0, 0, 0.002])} for _ in range(JOBS_A_ROUND // 2)]
            accepted |= {job.id for job in hf.enqueue_many("work", payloads, org_id=org_id)}
        time.sleep(rng.uniform(0.0, 0.12))
        victim = rng.randrange(WORKERS)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = start_worker(url)
        if number == ROUNDS // 2:
            # Between two kills. Not I5: on a loaded machine a rescue may be late.
            told = violations(report_of(hf))
            assert set(told) <= {"I5"}, told

    # These kills certainly hit a job; those before may all have come between two jobs.
    long = hf.enqueue("work", {"seconds": 2}, org_id=ORG)
    accepted.add(long.id)
    wait_until(lambda: _is_running(hf, long.id), seconds=60)
    for number, worker in enumerate(workers):
        worker.kill()
        worker.join()
        workers[number] = start_worker(url)

    wait_until(lambda: _unfinished(hf) == 0, seconds=90)
    for worker in workers:
        worker.kill()
        worker.join()
    states = Counter(row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job"))
    ends = Counter(
        row["job_id"]
        for row in look(
            hf.store, "SELECT job_id FROM holdfast.job_event WHERE name = 'job.succeeded'"
        )
    )
    charged = look(hf.store, "SELECT count(*) AS n FROM holdfast.job WHERE attempt_count > 0")[0][
        "n"
    ]
    assert states == {"completed": len(accepted)}
    assert set(ends) == accepted
    assert set(ends.values()) == {1}
    assert charged > 0, "no kill hit a job, so the test proves nothing"
    assert_sound(hf)
    hf.close()


def _is_running(hf: Holdfast, job_id: str) -> bool:
    return bool(look(hf.store, "SELECT 1 FROM holdfast.job_running WHERE job_id = :id", id=job_id))


def _unfinished(hf: Holdfast) -> int:
    (row,) = look(hf.store, "SELECT count(*) AS n FROM holdfast.job WHERE finished_at IS NULL")
    return int(row["n"])
