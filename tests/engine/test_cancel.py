"""Cancel: at once if it waits, at its next step if it runs, and always on record."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import (
    CancelAnswer,
    Context,
    FakeClock,
    Holdfast,
    JobCanceled,
    JobNotFound,
    State,
)
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.settle import settle
from tests.story import ORG, OTHER_ORG, claim, events, timeline


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

    assert settled.held
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

    assert answers["settle"][0].held
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
