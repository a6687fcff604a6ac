"""The examples run unchanged, and the database matches their output."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Job
from holdfast.store import open_store
from holdfast.telemetry import log
from tests.story import look

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def play(name: str, folder: Path) -> tuple[str, list[Job]]:
    """Run an example in a process with its temporary directory below *folder*."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(EXAMPLES / f"{name}.py")],
        env={**env, "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, jobs_below(folder)


def jobs_below(folder: Path) -> list[Job]:
    """The jobs of the only database below a folder."""
    (file,) = folder.rglob("work.db")
    store = open_store(f"sqlite:///{file}")
    jobs = [Job.from_row(row) for row in look(store, "SELECT * FROM holdfast.job ORDER BY id")]
    store.close()
    return jobs


Play = Callable[[str], tuple[str, list[Job]]]


@pytest.fixture
def play_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Play]:
    """Run an example in this process, where every warning is an error; return output and jobs."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    # The examples set it.
    monkeypatch.setenv("SIMULATED_KEY", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def play(name: str) -> tuple[str, list[Job]]:
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out, jobs_below(tmp_path)

    yield play
    log.uninstall()


def test_the_quickstart_enqueues_twice_and_runs_once(play_here: Play) -> None:
    printed, (job,) = play_here("quickstart")

    assert "enqueued again: False, completed: {'file': 'project-7.csv'" in printed
    assert (job.state, job.result["attempt"]) == ("completed", 1)


def test_the_pipeline_repeats_only_the_stage_that_failed(play_here: Play) -> None:
    printed, (job,) = play_here("pipeline")

    assert "runs: collect 1, translate 2, send 1" in printed
    assert (job.state, job.stage, job.result) == ("completed", "send", {"lines": 2})
    assert job.error_class == "NETWORK_TIMEOUT"


def test_a_rolled_back_order_has_no_job_and_a_committed_one_has(play_here: Play) -> None:
    printed, (job,) = play_here("sqlalchemy_transaction")

    before, after = printed.split("order 2 committed")
    assert "jobs run: 0" in before
    assert "a receipt for order 2" in after
    assert (job.state, job.payload) == ("completed", {"order": 2})


def test_many_processes_share_one_file(tmp_path: Path) -> None:
    printed, jobs = play("many_processes", tmp_path)

    assert "60 of 60 jobs completed in 3 processes" in printed
    assert {job.state for job in jobs} == {"completed"}
    assert sorted(job.result["photo"] for job in jobs) == list(range(60))


def test_the_limits_hold_back_what_they_should(play_here: Play) -> None:
    printed, jobs = play_here("limits")

    assert "reports run: [2, 2, 2], never more than 2 at once" in printed
    assert "mails sent: 5, and a minute later 3" in printed
    assert "of 8 hands the bakery got 6, the lane 2" in printed
    assert "overnight the schedule enqueued 1 job, and 1 is completed" in printed
    assert {job.state for job in jobs} == {"completed"}
    (oven,) = (job for job in jobs if job.job_type == "oven.light")
    # Four in the morning in Zurich is three in UTC at the beginning of March.
    assert oven.record["scheduled_for"] == datetime(2026, 3, 2, 3, tzinfo=UTC)
    assert oven.result == {"degrees": 230}


def test_batch_processing_submits_and_collects(play_here: Play) -> None:
    printed, jobs = play_here("batch_processing")

    assert "a job was: batch_submitted, completed, completed, completed" in printed
    # One for each of two tenants: plain text cannot contain the echo that distinguishes answers.
    assert "6 of 6 jobs answered in 2 batches" in printed
    assert "paid twice: 0" in printed
    assert {job.state for job in jobs} == {"completed"}
    assert "The bread was good, 0." in jobs[0].result["answer"]


def test_the_review_critic_mails_every_recipient_once_per_version(play_here: Play) -> None:
    printed, jobs = play_here("review_critic")

    assert "version 1 asked for twice, created True and False: 2 mails" in printed
    assert "version 2: 4 mails" in printed
    assert "critical cart.py:2 eval runs whatever" in printed
    assert "calls of the model: 2, with the token: 0" in printed
    assert [(job.job_type, job.state) for job in jobs] == [("review.process", "completed")] * 2


def test_an_asyncio_program_awaits_its_jobs(play_here: Play) -> None:
    printed, jobs = play_here("asyncio_only")

    assert printed == "sizes [21, 21, 21], progress connected\n"
    assert {job.state for job in jobs} == {"completed"}


def test_a_session_enqueues_typed_jobs(play_here: Play) -> None:
    printed, (job,) = play_here("sqlalchemy_session")

    assert "receipt for order 1: rope\njobs run: 1\n" in printed
    assert (job.state, job.payload) == ("completed", {"order": 1, "article": "rope"})


def test_a_fastapi_service_runs_its_own_worker(play_here: Play) -> None:
    printed, (job,) = play_here("fastapi_service")

    assert printed == "refused 409, {'state': 'completed', 'result': 'receipt for rope'}\n"
    assert job.payload == {"article": "rope"}


def test_the_tasks_of_django_are_jobs(tmp_path: Path) -> None:
    printed, jobs = play("django_project", tmp_path)

    assert "rolled back\njobs run: 2\n" in printed
    assert "SUCCESSFUL: order 7: anchor; FAILED after 1 attempt" in printed
    assert "admin: 200 200 403\njobs in the admin: 2, failed with DEFECT: True" in printed
    assert {(job.queue, job.state) for job in jobs} == {
        ("q:mail", "completed"),
        ("q:deadletter", "failed"),
    }
