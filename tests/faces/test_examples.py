"""The examples run as they stand, and the database says what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from holdfast import Job
from holdfast.store import open_store
from tests.story import look

ROOT = Path(__file__).resolve().parent.parent.parent


def play(name: str, tmp_path: Path) -> tuple[str, list[Job]]:
    """Run an example with its temporary directory below *tmp_path*; its output, its jobs."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(ROOT / "examples" / f"{name}.py")],
        env={**env, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = tmp_path.rglob("work.db")
    store = open_store(f"sqlite:///{file}")
    jobs = [Job.from_row(row) for row in look(store, "SELECT * FROM holdfast.job ORDER BY id")]
    store.close()
    return done.stdout, jobs


def test_the_quickstart_enqueues_twice_and_runs_once(tmp_path: Path) -> None:
    printed, (job,) = play("quickstart", tmp_path)

    assert "enqueued again: False, completed: {'file': 'project-7.csv'" in printed
    assert (job.state, job.result["attempt"]) == ("completed", 1)


def test_the_pipeline_repeats_only_the_stage_that_failed(tmp_path: Path) -> None:
    printed, (job,) = play("pipeline", tmp_path)

    assert "runs: collect 1, translate 2, send 1" in printed
    assert (job.state, job.stage, job.result) == ("completed", "send", {"lines": 2})
    assert job.error_class == "NETWORK_TIMEOUT"


def test_a_rolled_back_order_has_no_job_and_a_committed_one_has(tmp_path: Path) -> None:
    printed, (job,) = play("sqlalchemy_transaction", tmp_path)

    before, after = printed.split("order 2 committed")
    assert "jobs run: 0" in before
    assert "a receipt for order 2" in after
    assert (job.state, job.payload) == ("completed", {"order": 2})


def test_many_processes_share_one_file(tmp_path: Path) -> None:
    printed, jobs = play("many_processes", tmp_path)

    assert "60 of 60 jobs completed in 3 processes" in printed
    assert {job.state for job in jobs} == {"completed"}
    assert sorted(job.result["photo"] for job in jobs) == list(range(60))


def test_the_limits_hold_back_what_they_should(tmp_path: Path) -> None:
    printed, jobs = play("limits", tmp_path)

    assert "reports run: [2, 2, 2], never more than 2 at once" in printed
    assert "mails sent: 5, and a minute later 3" in printed
    assert "of 8 hands the bakery got 6, the lane 2" in printed
    assert "overnight the schedule enqueued 1 job, and 1 is completed" in printed
    assert {job.state for job in jobs} == {"completed"}
    (oven,) = (job for job in jobs if job.job_type == "oven.light")
    # Four in the morning in Zurich is three in UTC at the beginning of March.
    assert oven.record["scheduled_for"] == datetime(2026, 3, 2, 3, tzinfo=UTC)
    assert oven.result == {"degrees": 230}


def test_the_batch_lane_hands_over_and_brings_back(tmp_path: Path) -> None:
    printed, jobs = play("batch_lane", tmp_path)

    assert "a job was: batch_submitted, completed, completed, completed" in printed
    # One for each of two tenants: plain text cannot carry the echo that tells answers apart.
    assert "6 of 6 jobs answered in 2 batches" in printed
    assert "paid twice: 0" in printed
    assert {job.state for job in jobs} == {"completed"}
    assert "The bread was good, 0." in jobs[0].result["answer"]


def test_the_review_critic_tells_everybody_once_a_version(tmp_path: Path) -> None:
    printed, jobs = play("review_critic", tmp_path)

    assert "version 1 asked for twice, created True and False: 2 mails" in printed
    assert "version 2: 4 mails" in printed
    assert "critical cart.py:2 eval runs whatever" in printed
    assert "calls of the model: 2, with the token: 0" in printed
    assert [(job.job_type, job.state) for job in jobs] == [("review.process", "completed")] * 2
