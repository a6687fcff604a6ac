"""Cancel: a waiting job at once, a running job at its next step, and always with an audit event."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast import (
    CancelAnswer,
    Context,
    FakeClock,
    Holdfast,
    JobCanceled,
    JobNotFound,
    NetworkTimeout,
    Snooze,
    State,
)
from holdfast.document import decode
from holdfast.engine.job import SYSTEM, Completed, Fault, Outcome, Released, Retry, Snoozed
from holdfast.engine.settle import settle
from tests.rows import outcome_of, refused_by
from tests.store.hand import move
from tests.story import ORG, OTHER_ORG, claim, events, look, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: "done")
    return hf


@pytest.mark.req("J-07", "A-10", "T-04")
def test_a_waiting_job_is_canceled_at_once(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)

    answer = work.cancel(enqueued.id, org_id=ORG, actor="user:42", reason="not needed")

    job = work.get(enqueued.id, org_id=ORG)
    assert answer is CancelAnswer.CANCELED
    assert (job.state, job.record["finished_at"]) == (State.CANCELED, clock.now())
    assert work.worker().run_once().claimed == 0
    asked = next(e for e in events(work, enqueued) if e["name"] == "job.cancel_requested")
    assert (asked["actor_type"], asked["actor_id"]) == ("user", "42")
    assert "not needed" in asked["detail"]
    assert timeline(work, enqueued)[-2:] == ["job.cancel_requested", "job.canceled"]


@pytest.mark.req("T-04", "T-05", "A-10")
def test_a_running_job_stops_at_its_next_step(hf: Holdfast) -> None:
    steps: list[int] = []

    @hf.job("long.work")
    def long(job: Context, payload: object) -> None:
        for step in range(5):
            steps.append(step)
            if step == 2:
                answers.append(hf.cancel(job.id, org_id=ORG))
            job.checkpoint(step)

    answers: list[CancelAnswer] = []
    enqueued = hf.enqueue("long.work", {}, org_id=ORG)
    hf.worker().run_once()

    assert answers == [CancelAnswer.REQUESTED]
    assert steps == [0, 1, 2]
    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED
    assert timeline(hf, enqueued) == [
        "job.enqueued", "job.started", "job.cancel_requested", "job.canceled",
    ]  # fmt: skip


@pytest.mark.req("T-05")
def test_a_cancel_is_honoured_between_stages(hf: Holdfast) -> None:
    ran: list[str] = []
    pipeline = hf.pipeline("review.run")

    @pipeline.stage("first")
    def first(job: Context, payload: object) -> None:
        ran.append("first")
        hf.cancel(job.id, org_id=ORG)

    pipeline.stage("second")(lambda job, payload: ran.append("second"))
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)
    hf.worker().run_once()

    assert ran == ["first"]
    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED


@pytest.mark.req("A-10", "J-09")
def test_a_cancel_that_comes_too_late_changes_nothing_and_says_so(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    work.worker().run_once()

    answer = work.cancel(enqueued.id, org_id=ORG)

    job = work.get(enqueued.id, org_id=ORG)
    assert answer is CancelAnswer.TOO_LATE
    assert (job.state, job.result) == (State.COMPLETED, "done")
    assert timeline(work, enqueued)[-1] == "job.cancel_requested"


def test_a_job_that_ignores_the_request_may_still_complete(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)
    work.cancel(enqueued.id, org_id=ORG)

    (settled,) = settle(work.store, [(claimed, Completed('"done"'))], actor=SYSTEM)

    assert settled.lease_held
    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED


@pytest.mark.req("J-07")
def test_a_handler_cannot_declare_its_own_job_canceled(hf: Holdfast) -> None:
    @hf.job("sly.work")
    def sly(job: Context, payload: object) -> None:
        raise JobCanceled

    enqueued = hf.enqueue("sly.work", {}, org_id=ORG)
    hf.worker().run_once()

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.error_class) == (State.FAILED, "DEFECT")


@pytest.mark.req("J-09", "A-10")
@pytest.mark.parametrize("runs", range(3))
def test_when_cancel_and_completion_race_one_wins_and_the_other_knows(
    work: Holdfast, runs: int
) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)
    start = threading.Barrier(2)
    answers: dict[str, Any] = {}

    def cancel() -> None:
        start.wait()
        answers["cancel"] = work.cancel(enqueued.id, org_id=ORG)

    def complete() -> None:
        start.wait()
        answers["settle"] = settle(work.store, [(claimed, Completed("1"))], actor=SYSTEM)

    threads = [threading.Thread(target=cancel), threading.Thread(target=complete)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers["settle"][0].lease_held
    assert answers["cancel"] in (CancelAnswer.REQUESTED, CancelAnswer.TOO_LATE)
    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    assert timeline(work, enqueued).count("job.cancel_requested") == 1


@pytest.mark.req("X-07", "X-09")
def test_another_tenants_job_cannot_be_canceled_and_is_not_found(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)

    with pytest.raises(JobNotFound):
        work.cancel(enqueued.id, org_id=OTHER_ORG)

    assert work.get(enqueued.id, org_id=ORG).state is State.QUEUED
    assert timeline(work, enqueued) == ["job.enqueued"]


def test_canceling_twice_is_harmless(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)

    answers = [work.cancel(enqueued.id, org_id=ORG) for _ in range(2)]

    assert answers == [CancelAnswer.CANCELED, CancelAnswer.TOO_LATE]
    assert timeline(work, enqueued).count("job.canceled") == 1


# -- waiting jobs


@pytest.mark.req("T-04", "A-10")
def test_a_job_that_waits_for_its_next_attempt_is_canceled_at_once(hf: Holdfast) -> None:
    @hf.job("report.export")
    def fail(job: Context, payload: object) -> None:
        raise NetworkTimeout

    enqueued = hf.enqueue("report.export", {}, org_id=ORG)
    hf.worker().run_once()

    assert hf.cancel(enqueued.id, org_id=ORG) is CancelAnswer.CANCELED
    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED


def submit(hf: Holdfast, job_id: str) -> None:
    """Add a claimed job to a provider's batch, as a submitter does."""
    move(hf.store, job_id, State.PROCESSING, State.BATCH_SUBMITTED)


@pytest.mark.req("T-04", "A-10", "J-07")
def test_a_submitted_job_is_canceled_at_once_and_its_late_result_is_dropped(
    work: Holdfast,
) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)
    submit(work, enqueued.id)

    answer = work.cancel(enqueued.id, org_id=ORG, actor="user:42", reason="withdrawn")
    (late,) = settle(work.store, [(claimed, Completed('"late"'))], actor=SYSTEM)

    job = work.get(enqueued.id, org_id=ORG)
    assert answer is CancelAnswer.CANCELED
    assert not late.lease_held
    assert (job.state, job.result) == (State.CANCELED, None)
    asked = next(e for e in events(work, enqueued) if e["name"] == "job.cancel_requested")
    assert decode(asked["detail"])["was"] == "batch_submitted"
    assert timeline(work, enqueued)[-2:] == ["job.canceled", "job.lease_lost"]


@pytest.mark.req("J-09")
def test_the_database_rejects_an_outcome_for_a_canceled_job(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    claim(work)
    submit(work, enqueued.id)
    work.cancel(enqueued.id, org_id=ORG)

    assert "job_outcome" in refused_by(work, outcome_of("completed"), id=enqueued.id)
    assert work.get(enqueued.id, org_id=ORG).state is State.CANCELED


@pytest.mark.req("A-10")
def test_a_cancel_of_an_ended_job_comes_too_late_and_is_on_record(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    work.worker().run_once()
    clock.advance(hours=2)

    answer = work.cancel(enqueued.id, org_id=ORG, actor="user:42", reason="too late")

    assert answer is CancelAnswer.TOO_LATE
    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    asked = events(work, enqueued)[-1]
    assert (asked["name"], asked["actor_id"]) == ("job.cancel_requested", "42")
    assert decode(asked["detail"])["answer"] == "too_late"


# -- running jobs


@pytest.mark.req("T-05", "T-04")
def test_the_token_of_a_running_handler_is_set_while_it_works(hf: Holdfast) -> None:
    begun = threading.Event()
    steps: list[int] = []

    @hf.job("long.work")
    def long(job: Context, payload: object) -> None:
        begun.set()
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            # The handler writes nothing: only the fencing token decides.
            job.raise_if_canceled()
            steps.append(1)
            time.sleep(0.01)

    enqueued = hf.enqueue("long.work", {}, org_id=ORG)
    worker = hf.worker(concurrency=1)
    thread = threading.Thread(target=worker.run, kwargs={"until_idle": True})
    thread.start()
    assert begun.wait(10)
    answer = hf.cancel(enqueued.id, org_id=ORG)
    thread.join(15)

    assert not thread.is_alive()
    assert answer is CancelAnswer.REQUESTED
    assert steps
    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED
    assert worker.outcomes == {"canceled": 1}


@pytest.mark.req("T-05", "T-04")
def test_the_token_of_an_asynchronous_handler_is_set_while_it_works(hf: Holdfast) -> None:
    begun = threading.Event()

    @hf.job("long.work")
    async def long(job: Context, payload: object) -> None:
        begun.set()
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            job.raise_if_canceled()
            await asyncio.sleep(0.01)

    enqueued = hf.enqueue("long.work", {}, org_id=ORG)
    worker = hf.worker(concurrency=1)
    thread = threading.Thread(target=worker.run, kwargs={"until_idle": True})
    thread.start()
    assert begun.wait(10)
    hf.cancel(enqueued.id, org_id=ORG)
    thread.join(15)

    assert not thread.is_alive()
    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED


@pytest.mark.req("T-04", "T-05")
def test_a_checkpoint_is_kept_although_the_step_after_it_is_not_taken(hf: Holdfast) -> None:
    @hf.job("long.work")
    def long(job: Context, payload: object) -> None:
        hf.cancel(job.id, org_id=ORG)
        job.checkpoint({"page": 3})
        raise AssertionError("the step after a cancel was taken")

    enqueued = hf.enqueue("long.work", {}, org_id=ORG)
    hf.worker().run_once()

    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED
    (row,) = look(hf.store, "SELECT checkpoint FROM holdfast.job_stage")
    assert decode(row["checkpoint"]) == {"page": 3}


FAULT = Fault("NETWORK_TIMEOUT", "it took too long", retryable=True)


@pytest.mark.req("T-04", "T-05", "A-10")
@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Retry(FAULT, 5_000), ["job.failed", "job.retried", "job.canceled"]),
        (Snoozed(5_000), ["job.snoozed", "job.canceled"]),
        (Released("drain"), ["job.released", "job.canceled"]),
    ],
    ids=["retry", "snoozed", "released"],
)
def test_the_end_of_an_attempt_is_a_step_at_which_a_cancel_is_honoured(
    work: Holdfast, clock: FakeClock, outcome: Outcome, told: list[str]
) -> None:
    wanted, other = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    claimed = claim(work, limit=2)
    work.cancel(wanted.id, org_id=ORG)

    settle(work.store, [(job, outcome) for job in claimed], actor=SYSTEM)

    job = work.get(wanted.id, org_id=ORG)
    assert (job.state, job.record["finished_at"]) == (State.CANCELED, clock.now())
    assert timeline(work, wanted)[-len(told) :] == told
    assert work.get(other.id, org_id=ORG).state is State.QUEUED
    assert "job.canceled" not in timeline(work, other)


@pytest.mark.req("T-05")
@pytest.mark.parametrize("signal", [NetworkTimeout(), Snooze(600)], ids=["fails", "snoozes"])
def test_a_handler_that_never_looks_at_its_token_ends_with_its_attempt(
    hf: Holdfast, signal: BaseException
) -> None:
    runs: list[int] = []

    @hf.job("deaf.work")
    def deaf(job: Context, payload: object) -> None:
        runs.append(1)
        hf.cancel(job.id, org_id=ORG)
        raise signal

    enqueued = hf.enqueue("deaf.work", {}, org_id=ORG)
    hf.worker().run_once()

    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED
    assert runs == [1]


def test_a_job_stopped_where_its_attempt_ended_is_reported_as_canceled(hf: Holdfast) -> None:
    told: list[str] = []
    hf.events.subscribe(lambda event: told.append(getattr(event, "outcome", "")))

    @hf.job("report.export")
    def fail(job: Context, payload: object) -> None:
        hf.cancel(job.id, org_id=ORG)
        raise NetworkTimeout

    hf.enqueue("report.export", {}, org_id=ORG)
    hf.worker().run_once()

    assert [outcome for outcome in told if outcome] == ["retry", "canceled"]


def test_asking_twice_for_the_end_of_a_running_job_is_harmless(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)

    answers = [work.cancel(enqueued.id, org_id=ORG) for _ in range(2)]
    settle(work.store, [(claimed, Released("drain"))], actor=SYSTEM)

    assert answers == [CancelAnswer.REQUESTED, CancelAnswer.REQUESTED]
    assert timeline(work, enqueued).count("job.cancel_requested") == 2
    assert timeline(work, enqueued).count("job.canceled") == 1
