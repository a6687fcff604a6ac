"""Bounded runs as real processes, by the real clock."""

from __future__ import annotations

import multiprocessing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, State, SystemClock
from holdfast.engine.worker.worker import run_maintenance
from tests.acceptance.app import make, perform
from tests.acceptance.processes import fork, wait_until
from tests.story import ORG, events, make_holdfast


def start(url: str, **given: Any) -> multiprocessing.process.BaseProcess:
    return fork(perform, url, given)


def later(url: str, **length: float) -> Holdfast:
    """The same database, seen at a later time."""
    return make_holdfast(url, FakeClock(SystemClock().now() + timedelta(**length)))


def test_a_run_that_is_killed_loses_no_job_and_its_row_is_closed_as_lost(
    url: str, tmp_path: Path
) -> None:
    hf = make(url)
    payload = {"began": str(tmp_path / "began"), "seconds": 60}
    job = hf.enqueue("work", payload, org_id=ORG)

    run = start(url, max_runtime_seconds=5, claim_timeout_seconds=5)
    wait_until((tmp_path / "began").exists)
    run.kill()
    run.join()

    (unfinished,) = hf.runs.list()
    assert (unfinished.outcome, unfinished.claimed_count) == (None, None)
    with later(url, seconds=71) as then:
        run_maintenance(then.store, then.settings, then.events)
    (lost,) = hf.runs.list()
    found = hf.get(job.id, org_id=ORG)
    assert lost.outcome == "lost"
    assert (found.state, found.attempt_count) == (State.QUEUED, 1)
    assert found.last_error == "stale_claim_requeued"
    # The audit names the run as the actor of the jobs that it claimed.
    assert lost.run_id in {event["actor_id"] for event in events(hf, job)}
    hf.close()


@pytest.mark.req("B-09")
def test_the_real_clock_ends_a_run_and_lets_the_running_job_finish(url: str) -> None:
    hf = make(url)
    jobs = hf.enqueue_many("work", [{"seconds": 1.3}] * 5, org_id=ORG)

    run = start(url, max_runtime_seconds=1)
    run.join(90)

    (report,) = hf.runs.list()
    assert (run.exitcode, report.outcome) == (0, "out_of_time")
    assert (report.succeeded_count, report.failed_count, report.left_count) == (1, 0, 0)
    states = [hf.get(job.id, org_id=ORG) for job in jobs]
    assert sorted(job.state for job in states) == ["completed", *["queued"] * 4]
    assert {job.attempt_count for job in states} == {0}
    hf.close()


def test_a_run_that_is_asked_to_stop_finishes_its_job_and_leaves_the_rest(
    url: str, tmp_path: Path
) -> None:
    hf = make(url)
    payloads = [{"began": str(tmp_path / "began"), "seconds": 0.3}, *[{"seconds": 0.3}] * 4]
    hf.enqueue_many("work", payloads, org_id=ORG)

    run = start(url)
    wait_until((tmp_path / "began").exists)
    run.terminate()
    run.join(90)

    (report,) = hf.runs.list()
    assert (run.exitcode, report.outcome, report.succeeded_count) == (0, "stopped", 1)
    hf.close()
