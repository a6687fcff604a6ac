"""Claim: due jobs, oldest first, each to one worker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Context, FakeClock, Holdfast, QueueSettings, State
from holdfast.document import decode
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.job import SYSTEM, Claimed, Completed, Released, unit_of
from holdfast.engine.lease import renew_leases
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from tests.engine.planting import plant
from tests.rows import outcome_of, refused_by
from tests.story import ORG, OTHER_ORG, claim, look, make_holdfast, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: None)
    return hf


@pytest.mark.req("C-01", "J-02", "J-23")
def test_a_deferred_job_is_eligible_at_its_instant_and_not_before(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(seconds=10)
    enqueued = work.enqueue("report.export", {}, org_id=ORG, not_before_at=due)

    clock.advance(seconds=9.999)
    early = claim(work)
    clock.advance(milliseconds=1)
    (claimed,) = claim(work)

    assert early == []
    assert claimed.id == enqueued.id


@pytest.mark.req("C-01")
def test_a_due_job_does_not_take_a_later_one_along(work: Holdfast, clock: FakeClock) -> None:
    due = clock.now() + timedelta(seconds=10)
    first = work.enqueue("report.export", {}, org_id=ORG, not_before_at=due)
    work.enqueue("report.export", {}, org_id=ORG, not_before_at=due + timedelta(seconds=1))

    clock.advance(seconds=10)

    assert [job.id for job in claim(work, limit=2)] == [first.id]


@pytest.mark.req("C-01")
def test_only_queued_jobs_are_eligible(work: Holdfast) -> None:
    done, stopped, taken = work.enqueue_many("report.export", [{}, {}, {}], org_id=ORG)
    first = claim(work, limit=1)
    settle(work.store, [(first[0], Completed())], actor=SYSTEM)
    work.cancel(stopped.id, org_id=ORG)
    claim(work, limit=1)

    assert claim(work, limit=10) == []
    assert [work.get(item.id, org_id=ORG).state for item in (done, stopped, taken)] == [
        State.COMPLETED, State.CANCELED, State.PROCESSING,
    ]  # fmt: skip


@pytest.mark.req("C-02", "J-03")
def test_a_claim_writes_state_time_and_worker_together(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    clock.advance(seconds=3)

    (claimed,) = claim(work, worker="w7", lease_ms=30_000)

    job = work.get(enqueued.id, org_id=ORG)
    assert job.state is State.PROCESSING
    assert job.record["claimed_at"] == clock.now()
    assert job.record["claimed_by"] == "w7"
    assert job.record["lease_expires_at"] == clock.now() + timedelta(seconds=30)
    assert (job.record["lease_token"], claimed.lease_token) == (1, 1)
    assert timeline(work, enqueued) == ["job.enqueued", "job.started"]


def test_a_claim_costs_no_attempt(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)

    (claimed,) = claim(work)

    assert (claimed.attempt_count, claimed.attempt) == (0, 1)
    assert work.get(enqueued.id, org_id=ORG).attempt_count == 0


@pytest.mark.req("C-02")
def test_workers_that_claim_at_the_same_instant_share_and_never_overlap(work: Holdfast) -> None:
    work.enqueue_many("report.export", [{} for _ in range(200)], org_id=ORG)
    workers = 4
    start = threading.Barrier(workers)
    taken: list[Claimed] = []

    def run(name: str) -> None:
        start.wait()
        while found := claim(work, worker=name, limit=7):
            taken.extend(found)

    threads = [threading.Thread(target=run, args=(f"w{n}",)) for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == 200
    assert len({job.id for job in taken}) == 200


@pytest.mark.req("C-02")
def test_a_job_that_another_transaction_is_claiming_is_passed_over(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as other:
        hf.job("report.export")(lambda job, payload: None)
        first, second = hf.enqueue_many("report.export", [{}, {}], org_id=ORG)
        other.execute("SELECT 1 FROM holdfast.job_ready WHERE job_id = %s FOR UPDATE", (first.id,))

        (while_held,) = claim(hf, limit=2)
        other.rollback()
        (afterwards,) = claim(hf, limit=2)

    assert (while_held.id, afterwards.id) == (second.id, first.id)


@pytest.mark.req("C-03", "B-01")
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_claim_takes_no_more_than_asked_and_leaves_the_rest_queued(
    work: Holdfast, clock: FakeClock, limit: int
) -> None:
    work.enqueue_many("report.export", [{} for _ in range(10)], org_id=ORG)
    work.enqueue_many("report.export", [{} for _ in range(10)], org_id=ORG,
                      not_before_at=clock.now())  # fmt: skip

    claimed = claim(work, limit=limit)

    queued = look(work.store, "SELECT count(*) AS n FROM holdfast.job WHERE state = 'queued'")
    assert len(claimed) == limit
    assert queued[0]["n"] == 20 - limit


@pytest.mark.req("C-03")
def test_a_run_processes_no_more_than_its_limit(work: Holdfast) -> None:
    work.enqueue_many("report.export", [{} for _ in range(5)], org_id=ORG)

    counts = work.worker().run_once(limit=2)

    assert (counts.claimed, counts.settled) == (2, 2)


@pytest.mark.req("B-10")
def test_the_oldest_goes_first_and_priority_before_age(work: Holdfast, clock: FakeClock) -> None:
    order: list[str] = []
    for name, priority in [("a", "normal"), ("b", "low"), ("c", "normal"), ("d", "critical")]:
        work.enqueue("report.export", {"name": name}, org_id=ORG, priority=priority)
        clock.advance(seconds=1)

    for _ in range(4):
        (claimed,) = claim(work)
        order.append(work.get(claimed.id, org_id=ORG).payload["name"])

    assert order == ["d", "a", "c", "b"]


@pytest.mark.req("B-10")
def test_a_group_comes_in_the_order_in_which_it_was_enqueued(work: Holdfast) -> None:
    enqueued = work.enqueue_many("report.export", [{} for _ in range(30)], org_id=ORG)

    assert [job.id for job in claim(work, limit=30)] == [item.id for item in enqueued]


def test_a_worker_takes_only_from_the_queue_it_names(work: Holdfast) -> None:
    work.enqueue("report.export", {}, org_id=ORG, queue="q:exports")

    assert claim(work, queue="q:default") == []
    assert len(claim(work, queue="q:exports")) == 1


@pytest.mark.req("C-04")
def test_a_job_that_was_not_claimed_cannot_be_settled(work: Holdfast) -> None:
    _, theirs = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    (claimed,) = claim(work, limit=1)
    forged = replace(claimed, id=theirs.id, lease_token=1)

    (settled,) = settle(work.store, [(forged, Completed())], actor=SYSTEM)

    assert not settled.lease_held
    assert work.get(theirs.id, org_id=ORG).state is State.QUEUED
    assert work.get(theirs.id, org_id=ORG).result is None


@pytest.mark.req("C-04", "X-09")
def test_a_claim_of_one_tenant_cannot_settle_a_job_of_another(work: Holdfast) -> None:
    work.enqueue("report.export", {}, org_id=ORG)
    work.enqueue("report.export", {}, org_id=OTHER_ORG)
    mine, theirs = sorted(claim(work, limit=2), key=lambda job: job.org_id)
    forged = replace(theirs, org_id=mine.org_id)

    (settled,) = settle(work.store, [(forged, Completed())], actor=SYSTEM)

    assert not settled.lease_held
    assert work.get(theirs.id, org_id=OTHER_ORG).state is State.PROCESSING


def test_renewing_extends_what_is_ours_and_says_what_is_lost(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    kept, lost = claim(work, limit=2)
    settle(work.store, [(lost, Released("test"))], actor=SYSTEM)

    clock.advance(seconds=50)
    renewed = renew_leases(work.store, [kept, lost], lease_ms=60_000)
    clock.advance(seconds=50)
    rescued = rescue_jobs(work.store, limit=10)

    assert renewed.lease_held == {kept.claim_id}
    assert rescued == []
    assert work.get(enqueued[0].id, org_id=ORG).state is State.PROCESSING


def test_a_claim_that_was_taken_over_is_not_renewed(work: Holdfast, clock: FakeClock) -> None:
    """The job is processing, but under the token of another claim."""
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (first,) = claim(work, worker="first")
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)
    claim(work, worker="second")
    ends_at = work.get(enqueued.id, org_id=ORG).record["lease_expires_at"]

    clock.advance(seconds=30)
    renewed = renew_leases(work.store, [first], lease_ms=60_000)

    assert renewed.lease_held == frozenset()
    assert work.get(enqueued.id, org_id=ORG).record["lease_expires_at"] == ends_at


def test_a_renewed_lease_reports_a_cancel_request(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)
    work.cancel(enqueued.id, org_id=ORG)

    renewed = renew_leases(work.store, [claimed], lease_ms=60_000)

    assert renewed.cancel_requested == {claimed.claim_id}


@pytest.mark.req("C-05", "C-06")
def test_a_unit_is_locked_by_its_own_name_and_the_tenants_other_units_are_free(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as other:
        hf.job("rewrite.text")(lambda job, payload: None)
        first = hf.enqueue("rewrite.text", {}, org_id=ORG, unit_key="r1/u1")
        second = hf.enqueue("rewrite.text", {}, org_id=ORG, unit_key="r1/u2")
        other.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            (unit_of(ORG, "rewrite.text", "r1/u1"),),
        )

        while_held = claim(hf, limit=10)
        other.rollback()
        afterwards = claim(hf, limit=10)

    assert [job.id for job in while_held] == [second.id]
    assert [job.id for job in afterwards] == [first.id]


@pytest.mark.req("C-05")
def test_a_handlers_writes_happen_under_the_lock_of_its_unit(
    postgres_url: str, clock: FakeClock
) -> None:
    locked: list[Any] = []
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as other:

        @hf.job("rewrite.text")
        def rewrite(job: Context, payload: object) -> None:
            name = unit_of(ORG, "rewrite.text", "r1/u1")
            ask = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
            with job.transaction():
                locked.append(other.execute(ask, (name,)).fetchone())
                other.rollback()
            locked.append(other.execute(ask, (name,)).fetchone())
            other.rollback()

        hf.enqueue("rewrite.text", {}, org_id=ORG, unit_key="r1/u1")
        hf.worker().run_once()

    assert locked == [(False,), (True,)]


@pytest.mark.req("J-11")
def test_the_database_refuses_to_complete_an_unclaimed_job(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)

    assert refused_by(work, outcome_of("completed"), id=enqueued.id) == "job_moved"
    assert (
        refused_by(work, outcome_of("completed", lease_token=0), id=enqueued.id)
        == "job_outcome_was_claimed"
    )
    assert work.get(enqueued.id, org_id=ORG).state is State.QUEUED


QUEUES = ("q:default", "q:exports", "q:notifications", "q:planning", "q:maintenance")


def take_oldest(hf: Holdfast, limit: int, queues: Sequence[str] = QUEUES) -> list[tuple[str, int]]:
    """Claim the oldest jobs; return their queues and numbers."""
    claimed = claim_jobs(
        hf.store,
        queues=queues,
        worker_id="w",
        limit=limit,
        lease_ms=60_000,
        order=Order.CREATED_AT_ASC,
    )
    return [(job.queue, decode(job.payload)["n"]) for job in claimed]


def test_the_oldest_jobs_are_claimed_queue_by_queue_within_the_limits(
    work: Holdfast, clock: FakeClock
) -> None:
    # The newest job is in the first queue.
    for number, queue in enumerate(reversed(QUEUES)):
        for later in (0, 10):
            work.enqueue("report.export", {"n": number + later}, org_id=ORG, queue=queue)
            clock.advance(seconds=1)
    work.queues.set("q:notifications", QueueSettings(max_running=1), actor=SYSTEM)
    work.queues.pause("q:planning", actor=SYSTEM, reason="test")

    assert take_oldest(work, 6) == [
        ("q:default", 4), ("q:default", 14), ("q:exports", 3), ("q:exports", 13),
        ("q:notifications", 2), ("q:maintenance", 0),
    ]  # fmt: skip
    assert take_oldest(work, 6) == [("q:maintenance", 10)]


def test_a_row_that_breaks_a_rule_stops_no_job(work: Holdfast, clock: FakeClock) -> None:
    made = []
    for number, queue in enumerate(QUEUES[:3]):
        made.append(work.enqueue("report.export", {"n": number}, org_id=ORG, queue=queue))
        clock.advance(seconds=1)
    plant(work, "UPDATE holdfast.job_envelope SET max_attempts = 0 WHERE id = :id", id=made[1].id)

    assert take_oldest(work, 3) == [("q:default", 0), ("q:exports", 1), ("q:notifications", 2)]
