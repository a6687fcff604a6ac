"""kill -9 at random points: every workflow ends, and its join is one job with one end."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import pytest

from holdfast import DeclaredJob, Holdfast, chord
from tests.acceptance.app import make
from tests.acceptance.processes import start_worker, wait_until
from tests.operate.sound import assert_sound
from tests.story import ORG, look

ROUNDS = 12
WORKERS = 2
ITEMS = 15


@pytest.mark.timeout(240)
@pytest.mark.req("E-02", "C-08")
def test_kills_at_random_points_lose_no_step_and_run_each_join_once(url: str) -> None:
    hf = make(url)
    work = declared(hf, "work")
    rng = random.Random(20261118)
    workers = [start_worker(url) for _ in range(WORKERS)]
    handles = []
    for _ in range(ROUNDS):
        items = [{"seconds": rng.choice([0, 0, 0.005])} for _ in range(ITEMS)]
        join = work.step({"seconds": 0.01})
        handles.append(chord(work.map(items), join, name="killed").enqueue(org_id=ORG))
        time.sleep(rng.uniform(0.0, 0.15))
        victim = rng.randrange(WORKERS)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = start_worker(url)

    def unfinished() -> int:
        text = "SELECT count(*) AS n FROM holdfast.workflow WHERE state = 'running'"
        return int(look(hf.store, text)[0]["n"])

    wait_until(lambda: unfinished() == 0, seconds=120)
    for worker in workers:
        worker.kill()
        worker.join()
    assert {handle.get().state for handle in handles} == {"completed"}
    jobs = look(hf.store, "SELECT id, state FROM holdfast.job")
    expected = {one for handle in handles for ids in handle.job_ids.values() for one in ids}
    assert {str(row["id"]) for row in jobs} == expected
    ends = Counter(
        str(row["job_id"])
        for row in look(
            hf.store, "SELECT job_id FROM holdfast.job_event WHERE name = 'job.succeeded'"
        )
    )
    assert ends == dict.fromkeys(expected, 1)
    assert_sound(hf)
    hf.close()


def declared(hf: Holdfast, job_type: str) -> DeclaredJob[..., ..., Any, Any]:
    stage = hf.registry.get(job_type).first
    assert stage.signature is not None
    return DeclaredJob(hf, job_type, stage.function, stage.signature)
