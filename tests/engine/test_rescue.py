"""Rescue: a claim whose worker is gone comes back, charged, and ends in the end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.settle import settle
from holdfast.engine.upkeep import rescue_jobs
from tests.story import ORG, claim, events, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("slow.work")(lambda job, payload: "done")
    return hf


@pytest.mark.req("C-08", "C-09", "I-18")
def test_a_stale_claim_is_queued_again_and_charged_one_attempt(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now()
    enqueued = work.enqueue("slow.work", {}, org_id=ORG, not_before_at=due)
    claim(work)

    clock.advance(seconds=61)
    (rescued,) = rescue_jobs(work.store, limit=10)

    job = work.get(enqueued.id, org_id=ORG)
    assert rescued.held
    assert (job.state, job.attempt_count) == (State.QUEUED, 1)
    assert job.last_error == "stale_claim_requeued"
    assert job.error_class == "WORKER_CRASHED"
    assert job.record["not_before_at"] is None, "its time had come; it is due at once"
    assert (job.record["claimed_at"], job.record["claimed_by"]) == (None, None)


@pytest.mark.req("C-08")
def test_a_claim_whose_lease_still_holds_is_left_alone(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work)

    clock.advance(seconds=60)

    assert rescue_jobs(work.store, limit=10) == []
    assert work.get(enqueued.id, org_id=ORG).state is State.PROCESSING


@pytest.mark.req("C-09", "J-06")
def test_a_job_that_kills_every_worker_ends_as_a_dead_letter(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG, max_attempts=3)

    for _ in range(3):
        assert len(claim(work)) == 1
        clock.advance(seconds=61)
        rescue_jobs(work.store, limit=10)

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count, job.queue) == (State.FAILED, 3, "q:deadletter")
    assert (job.last_error, job.error_class) == ("stale_claim_exhausted", "WORKER_CRASHED")
    assert claim(work) == []


def test_a_worker_known_to_be_dead_is_not_waited_for(work: Holdfast) -> None:
    work.enqueue_many("slow.work", [{}, {}], org_id=ORG)
    (gone,) = claim(work, worker="gone")
    (alive,) = claim(work, worker="alive")

    rescued = rescue_jobs(work.store, limit=10, dead_worker_id="gone")

    assert [item.job.id for item in rescued] == [gone.id]
    assert work.get(alive.id, org_id=ORG).state is State.PROCESSING


def test_a_rescue_takes_no_more_than_its_limit_and_the_next_takes_the_rest(
    work: Holdfast, clock: FakeClock
) -> None:
    work.enqueue_many("slow.work", [{} for _ in range(5)], org_id=ORG)
    claim(work, limit=5)
    clock.advance(seconds=61)

    assert [len(rescue_jobs(work.store, limit=3)) for _ in range(3)] == [3, 2, 0]


@pytest.mark.req("I-18")
def test_two_rescues_at_once_charge_each_claim_once(work: Holdfast, clock: FakeClock) -> None:
    jobs = work.enqueue_many("slow.work", [{} for _ in range(20)], org_id=ORG)
    claim(work, limit=20)
    clock.advance(seconds=61)
    start = threading.Barrier(2)
    rescued: list[Any] = []

    def run() -> None:
        start.wait()
        rescued.extend(rescue_jobs(work.store, limit=20))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {work.get(item.id, org_id=ORG).attempt_count for item in jobs} <= {0, 1}
    rescue_jobs(work.store, limit=20)
    assert {work.get(item.id, org_id=ORG).attempt_count for item in jobs} == {1}
    assert all(timeline(work, item).count("job.retried") == 1 for item in jobs)


@pytest.mark.req("I-14", "J-09")
@pytest.mark.parametrize("first", ["rescue", "settle"])
def test_when_rescue_and_completion_race_exactly_one_wins(
    work: Holdfast, clock: FakeClock, first: str
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    (claimed,) = claim(work)
    clock.advance(seconds=61)

    if first == "rescue":
        rescued = rescue_jobs(work.store, limit=1)
        (settled,) = settle(work.store, [(claimed, Completed("1"))], actor=SYSTEM)
    else:
        (settled,) = settle(work.store, [(claimed, Completed("1"))], actor=SYSTEM)
        rescued = rescue_jobs(work.store, limit=1)

    job = work.get(enqueued.id, org_id=ORG)
    assert (len(rescued), settled.held) == ((1, False) if first == "rescue" else (0, True))
    assert job.state is (State.QUEUED if first == "rescue" else State.COMPLETED)


@pytest.mark.req("E-02", "I-18")
def test_the_rescued_job_runs_again_and_ends_once(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work, worker="gone")
    clock.advance(seconds=61)

    rescue_jobs(work.store, limit=10)
    work.worker().run_once()

    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    assert timeline(work, enqueued) == [
        "job.enqueued", "job.started", "job.failed", "job.retried", "job.started", "job.succeeded",
    ]  # fmt: skip


@pytest.mark.req("E-16", "A-09")
def test_a_rescue_is_audited_under_its_own_name_with_the_attempt_that_was_lost(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG, actor="user:7")
    claim(work)
    clock.advance(seconds=61)

    rescue_jobs(work.store, limit=10)

    failed = next(event for event in events(work, enqueued) if event["name"] == "job.failed")
    assert (failed["actor_type"], failed["actor_id"]) == ("system", "upkeep")
    assert failed["attempt"] == 1


def test_a_cancel_request_that_the_dead_worker_never_saw_is_honoured(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work)
    work.cancel(enqueued.id, org_id=ORG)
    clock.advance(seconds=61)

    rescue_jobs(work.store, limit=10)

    assert work.get(enqueued.id, org_id=ORG).state is State.CANCELED
