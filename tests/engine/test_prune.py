"""Prune: ended jobs leave after their time, never before their key, and never too many at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import FakeClock, Holdfast, JobNotFound, State
from holdfast.engine.upkeep import prune_jobs
from holdfast.errors import RuleBroken
from tests.story import ORG, by_hand, claim, look


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export", category="export")(lambda job, payload: None)
    return hf


@pytest.mark.req("I-08")
def test_a_job_row_never_leaves_before_its_key_expires(work: Holdfast, clock: FakeClock) -> None:
    first = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    work.worker().run_once()

    clock.advance(days=30)
    too_early = prune_jobs(work.store, keep=timedelta(0), limit=10)
    still = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    clock.advance(milliseconds=1)
    in_time = prune_jobs(work.store, keep=timedelta(0), limit=10)
    again = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert (too_early, in_time) == (0, 1)
    assert (still.id, still.created) == (first.id, False)
    assert again.created


def test_a_job_row_is_kept_as_long_as_the_settings_say(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    work.worker().run_once()

    clock.advance(days=90)
    before = prune_jobs(work.store, keep=timedelta(days=90), limit=10)
    clock.advance(milliseconds=1)
    after = prune_jobs(work.store, keep=timedelta(days=90), limit=10)

    assert (before, after) == (0, 1)
    with pytest.raises(JobNotFound):
        work.get(enqueued.id, org_id=ORG)


@pytest.mark.req("I-08")
def test_jobs_that_have_not_ended_are_never_pruned(work: Holdfast, clock: FakeClock) -> None:
    waiting, running = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    claim(work, queue="q:exports")
    clock.advance(days=1000)

    assert prune_jobs(work.store, keep=timedelta(0), limit=10) == 0
    assert {work.get(item.id, org_id=ORG).state for item in (waiting, running)} == {
        State.QUEUED, State.PROCESSING,
    }  # fmt: skip
    with pytest.raises(RuleBroken):
        by_hand(work.store, "DELETE FROM holdfast.job WHERE id = :id", id=waiting.id)


def test_a_pass_is_bounded_and_a_second_one_is_harmless(work: Holdfast, clock: FakeClock) -> None:
    work.enqueue_many("report.export", [{} for _ in range(5)], org_id=ORG)
    work.worker().run_once()
    clock.advance(days=91)

    passes = [prune_jobs(work.store, keep=timedelta(days=90), limit=3) for _ in range(4)]

    assert passes == [3, 2, 0, 0]


def test_what_hangs_on_a_job_leaves_with_it_and_its_audit_stays(
    hf: Holdfast, clock: FakeClock
) -> None:
    pipeline = hf.pipeline("review.run")
    pipeline.stage("first")(lambda job, payload: 1)

    @pipeline.stage("second")
    def second(job: object, payload: object) -> None:
        raise KeyError

    hf.enqueue("review.run", {}, org_id=ORG)
    hf.worker().run_once()
    clock.advance(days=91)
    prune_jobs(hf.store, keep=timedelta(days=90), limit=10)

    counts = look(
        hf.store,
        "SELECT (SELECT count(*) FROM holdfast.job_stage) AS stages,"
        " (SELECT count(*) FROM holdfast.dead_letter) AS letters,"
        " (SELECT count(*) FROM holdfast.job_event) AS events",
    )[0]
    assert (counts["stages"], counts["letters"], counts["events"]) == (0, 0, 5)
