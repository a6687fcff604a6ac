"""Signals, several processes, and a handler that kills its process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import State
from tests.acceptance.app import make
from tests.acceptance.processes import all_in, holdfast, start_worker, wait_until
from tests.story import ORG, look, timeline


def test_the_first_sigterm_finishes_what_runs_and_releases_the_rest(
    url: str, tmp_path: Path
) -> None:
    hf = make(url)
    began = tmp_path / "began"
    running = hf.enqueue("work", {"seconds": 0.5, "began": str(began)}, org_id=ORG)
    worker = holdfast(url, "worker", "--concurrency", "1")
    wait_until(began.exists)
    waiting = hf.enqueue_many("work", [{}] * 5, org_id=ORG)

    worker.terminate()
    _, log = worker.wait()

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

    worker.terminate()
    wait_until(lambda: '"worker.draining"' in worker.log())
    worker.terminate()
    worker.wait()

    assert worker.returncode == 1
    assert all_in(hf, [job], State.PROCESSING, State.QUEUED)
    hf.close()


@pytest.mark.req("I-18")
def test_a_handler_that_kills_its_process_ends_only_that_one_and_counts_as_an_attempt(
    url: str,
) -> None:
    hf = make(url, lease_seconds=60)
    bomb = hf.enqueue("suicide", {}, org_id=ORG)
    good = hf.enqueue_many("work", [{"seconds": 0.01}] * 30, org_id=ORG)

    # On SQLite with the real command of the worker processes, which takes a second each.
    forks = hf.store.dialect.name == "postgres"
    parent = holdfast(url, "worker", "--processes", "2", "--concurrency", "1", forks=forks)
    wait_until(lambda: all_in(hf, good, State.COMPLETED) and all_in(hf, [bomb], State.FAILED))
    parent.terminate()
    _, log = parent.wait()

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
    _, log = worker.wait()

    lines = [json.loads(line) for line in log.splitlines()]
    (retried,) = [line for line in lines if line["event"] == "job.retry"]
    assert retried["job_id"] == job.id
    assert retried["job_type"] == "flaky"
    assert retried["org_id"] == ORG
    assert retried["project_id"] is None
    assert (retried["request_id"], retried["correlation_id"]) == ("req-1", "req-1")
    assert "kitchen" not in log


def test_three_workers_share_one_database_and_start_each_job_once(url: str, tmp_path: Path) -> None:
    hf = make(url)
    # No job ends before each worker has started one.
    folder = tmp_path / "met"
    folder.mkdir()
    payload = {"meet": str(folder), "processes": 3}
    jobs = hf.enqueue_many("work", [payload] * 100, org_id=ORG)
    workers = [start_worker(url) for _ in range(3)]

    wait_until(lambda: all_in(hf, jobs[-10:], State.COMPLETED))
    wait_until(lambda: all_in(hf, jobs, State.COMPLETED))
    for worker in workers:
        worker.kill()

    started = look(
        hf.store, "SELECT job_id, actor_id FROM holdfast.job_event WHERE name = 'job.started'"
    )
    assert sorted(row["job_id"] for row in started) == sorted(job.id for job in jobs)
    assert len({row["actor_id"] for row in started}) == 3
    hf.close()
