"""Signals, several processes, and a handler that kills its own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from holdfast import State
from tests.acceptance.app import make
from tests.acceptance.processes import all_in, holdfast, start_worker, wait_until
from tests.story import ORG, events, timeline


def test_the_first_sigterm_finishes_what_runs_and_gives_back_the_rest(
    url: str, tmp_path: Path
) -> None:
    hf = make(url)
    began = tmp_path / "began"
    running = hf.enqueue("work", {"seconds": 1.0, "began": str(began)}, org_id=ORG)
    worker = holdfast(url, "worker", "--concurrency", "1")
    wait_until(began.exists)
    waiting = hf.enqueue_many("work", [{}] * 5, org_id=ORG)

    os.kill(worker.pid, signal.SIGTERM)
    _, log = worker.communicate(timeout=20)

    assert worker.returncode == 0, log
    assert all_in(hf, [running], State.COMPLETED)
    assert all_in(hf, waiting, State.QUEUED)
    assert all(hf.get(job.id, org_id=ORG).attempt_count == 0 for job in waiting)
    hf.close()


def test_the_second_sigterm_does_not_wait(url: str, tmp_path: Path) -> None:
    hf = make(url)
    began = tmp_path / "began"
    job = hf.enqueue("work", {"seconds": 60, "began": str(began)}, org_id=ORG)
    worker = holdfast(url, "worker", "--concurrency", "1")
    wait_until(began.exists)

    os.kill(worker.pid, signal.SIGTERM)
    wait_until(lambda: '"worker.draining"' in _line(worker.stderr))
    os.kill(worker.pid, signal.SIGTERM)
    worker.communicate(timeout=20)

    assert worker.returncode == 1
    assert all_in(hf, [job], State.PROCESSING, State.QUEUED)
    hf.close()


def _line(stream: object) -> str:
    return stream.readline()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.req("I-18")
def test_a_handler_that_kills_its_process_takes_down_only_that_and_is_charged(url: str) -> None:
    hf = make(url, lease_seconds=60)
    bomb = hf.enqueue("suicide", {}, org_id=ORG)
    good = hf.enqueue_many("work", [{"seconds": 0.01}] * 30, org_id=ORG)

    parent = holdfast(url, "worker", "--processes", "2", "--concurrency", "1")
    wait_until(lambda: all_in(hf, good, State.COMPLETED) and all_in(hf, [bomb], State.FAILED), 40)
    os.kill(parent.pid, signal.SIGTERM)
    _, log = parent.communicate(timeout=20)

    dead = hf.get(bomb.id, org_id=ORG)
    assert (dead.error_class, dead.last_error) == ("WORKER_CRASHED", "stale_claim_exhausted")
    assert dead.attempt_count == 2
    assert timeline(hf, bomb)[-2:] == ["job.failed", "job.deadlettered"]
    assert parent.returncode == 0, log
    hf.close()


@pytest.mark.req("M-01", "M-02")
def test_a_worker_logs_json_lines_that_name_the_job(url: str) -> None:
    hf = make(url)
    job = hf.enqueue("flaky", {"secret_looking": "kitchen sink"}, org_id=ORG, request_id="req-1")
    hf.close()

    worker = holdfast(url, "worker", "--until-idle")
    _, log = worker.communicate(timeout=30)

    lines = [json.loads(line) for line in log.splitlines()]
    (retried,) = [line for line in lines if line["event"] == "job.retry"]
    assert retried["job_id"] == job.id
    assert retried["job_type"] == "flaky"
    assert retried["org_id"] == ORG
    assert retried["project_id"] is None
    assert (retried["request_id"], retried["correlation_id"]) == ("req-1", "req-1")
    assert "kitchen" not in log


def test_several_workers_share_one_database_and_double_nothing(url: str) -> None:
    hf = make(url)
    jobs = hf.enqueue_many("work", [{"seconds": 0.001}] * 400, org_id=ORG)
    workers = [start_worker(url) for _ in range(3)]

    wait_until(lambda: all_in(hf, jobs[-20:], State.COMPLETED), 30)
    wait_until(lambda: all_in(hf, jobs, State.COMPLETED), 30)
    for worker in workers:
        worker.kill()

    starts = [timeline(hf, job).count("job.started") for job in jobs[:50]]
    by = {event["actor_id"] for job in jobs for event in events(hf, job)[1:2]}
    assert set(starts) == {1}
    assert len(by) >= 2
    hf.close()
