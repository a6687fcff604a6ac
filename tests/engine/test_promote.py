"""Promote: deferred jobs join their queue when they are due."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import FakeClock, Holdfast, InvalidJob, Permanent, State
from holdfast.engine import promote
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.promote import promote_jobs
from tests.engine.flood import (
    NOISY,
    QUEUE,
    QUIET,
    by_queue,
    by_tenant,
    declare,
    fetcher,
    fill,
    tenant,
)
from tests.story import ORG, events, look, make_holdfast, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


def queues_of(hf: Holdfast) -> list[tuple[str, str]]:
    rows = look(hf.store, "SELECT queue, origin_queue FROM holdfast.job ORDER BY id")
    return [(row["queue"], row["origin_queue"]) for row in rows]


# -- delayed notifications and maintenance


@pytest.mark.req("T-01", "T-02", "Q-20", "Q-17")
def test_a_delayed_notification_waits_on_maintenance_and_is_delivered_from_its_own_queue(
    work: Holdfast, clock: FakeClock
) -> None:
    told: list[str] = []
    work.job("mail", category="notification")(lambda job, payload: told.append(job.id))
    due = clock.now() + timedelta(hours=1)
    made = work.enqueue("mail", {}, org_id=ORG, scheduled_for=due)
    waiting = work.get(made.id, org_id=ORG)

    clock.advance(minutes=59, seconds=59, milliseconds=999)
    early = work.worker(queues=["q:notifications"]).run_once()
    clock.advance(milliseconds=1)
    work.worker(queues=["q:notifications"]).run_once()

    done = work.get(made.id, org_id=ORG)
    assert (waiting.queue, waiting.origin_queue) == ("q:maintenance", "q:notifications")
    assert (waiting.record["scheduled_for"], waiting.record["not_before_at"]) == (due, due)
    assert early.claimed == 0
    assert (done.state, done.queue) == (State.COMPLETED, "q:notifications")
    assert told == [made.id]


@pytest.mark.req("T-01", "Q-20")
def test_any_worker_promotes_it_also_one_that_serves_neither_queue(
    work: Holdfast, clock: FakeClock
) -> None:
    fill(work, ORG, 3, "tell", scheduled_for=clock.now() + timedelta(minutes=5))
    clock.advance(minutes=5)

    with make_holdfast(work.settings.db, clock) as stranger:
        stranger.worker(queues=["q:exports"]).run_once()

    assert queues_of(work) == [("q:notifications", "q:notifications")] * 3
    assert len(fetcher(work, "q:notifications").take(5)) == 3


@pytest.mark.req("T-01", "Q-20", "Q-12")
def test_a_maintenance_job_stays_where_it_is(work: Holdfast, clock: FakeClock) -> None:
    work.enqueue("sweep", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(minutes=5))
    before = queues_of(work)
    clock.advance(minutes=5)

    claimed = fetcher(work, *("q:default", "q:maintenance")).take(5)

    assert before == queues_of(work) == [("q:maintenance", "q:maintenance")]
    assert by_queue(claimed) == {"q:maintenance": 1}


@pytest.mark.req("Q-21")
def test_a_dead_letter_names_the_queue_of_delivery_and_not_the_one_it_waited_on(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("bounce", category="notification", max_attempts=1)
    def bounce(job: object, payload: object) -> None:
        raise Permanent("nobody lives there")

    made = work.enqueue("bounce", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1))
    clock.advance(hours=2)
    work.worker().run_once()

    job = work.get(made.id, org_id=ORG)
    (letter,) = look(work.store, "SELECT queue FROM holdfast.dead_letter")
    assert (job.queue, job.origin_queue, letter["queue"]) == (
        "q:deadletter", "q:notifications", "q:notifications",
    )  # fmt: skip


def test_a_promoted_job_keeps_its_id_turn_and_audit(work: Holdfast, clock: FakeClock) -> None:
    made = work.enqueue("tell", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1))
    before = look(work.store, "SELECT id, turn, scheduled_for, created_at FROM holdfast.job")
    clock.advance(hours=1)

    promoted = promote_jobs(work.store, ["q:maintenance"])

    after = look(work.store, "SELECT id, turn, scheduled_for, created_at FROM holdfast.job")
    assert promoted == 1
    assert before == after
    assert [row["name"] for row in events(work, made)] == ["job.enqueued"]


@pytest.mark.req("T-01")
@pytest.mark.parametrize("job_type", ["work", "rush"])
def test_nothing_else_may_be_scheduled(work: Holdfast, clock: FakeClock, job_type: str) -> None:
    with pytest.raises(InvalidJob, match="only for maintenance jobs and delayed notifications"):
        work.enqueue(job_type, {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1))

    assert queues_of(work) == []


# -- the clock that decides


@pytest.mark.req("T-03")
@pytest.mark.parametrize(("seconds", "accepted"), [(60, True), (60.001, False), (3600, False)])
def test_a_time_up_to_a_minute_in_the_past_is_taken_as_now_and_an_older_one_refused(
    work: Holdfast, clock: FakeClock, seconds: float, accepted: bool
) -> None:
    past = clock.now() - timedelta(seconds=seconds)

    if not accepted:
        with pytest.raises(InvalidJob, match="60 seconds in the past"):
            work.enqueue("tell", {}, org_id=ORG, scheduled_for=past)
        return
    work.enqueue("tell", {}, org_id=ORG, scheduled_for=past)

    assert len(fetcher(work, "q:notifications").take(5)) == 1


@pytest.mark.req("T-03")
def test_the_clock_of_the_store_decides_and_not_that_of_the_caller(
    postgres_url: str,
) -> None:
    # Here the store has its own clock, and this machine's is ten minutes ahead of it.
    ahead = FakeClock(datetime.now(UTC) + timedelta(minutes=10))
    with make_holdfast(postgres_url, ahead) as off, Holdfast(postgres_url) as right:
        declare(off)
        declare(right)
        off.enqueue("tell", {}, org_id=ORG, scheduled_for=ahead.now() + timedelta(seconds=1))

        promote_jobs(right.store, ["q:maintenance"])
        states = queues_of(right)

    assert states == [("q:maintenance", "q:notifications")]


# -- floods of deferred jobs


def test_due_jobs_are_promoted_in_passes_and_none_is_forgotten(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(minutes=1)
    fill(work, NOISY, 2_600, not_before_at=due)
    clock.advance(minutes=2)

    passes = []
    while moved := promote_jobs(work.store, [QUEUE]):
        passes.append(moved)

    assert sum(passes) == 2_600
    assert max(passes) <= 2 * promote.LIMIT


def test_in_a_flood_every_tenant_gets_its_first_into_the_lanes_in_one_pass(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(minutes=1)
    fill(work, NOISY, 2_500, not_before_at=due)
    for number in range(30):
        fill(work, tenant(number), 2, not_before_at=due + timedelta(seconds=number))
    fill(work, QUIET, 1, not_before_at=due + timedelta(hours=1))
    clock.advance(minutes=2)

    promote_jobs(work.store, [QUEUE])

    rows = look(work.store, "SELECT DISTINCT org_id FROM holdfast.job_ready")
    assert {row["org_id"] for row in rows} == {NOISY, *(tenant(number) for number in range(30))}


def test_what_is_not_due_is_never_promoted_also_in_a_flood(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(minutes=1)
    fill(work, NOISY, 1_500, not_before_at=due)
    fill(work, NOISY, 300, not_before_at=due + timedelta(milliseconds=1))
    clock.advance(minutes=1)

    while promote_jobs(work.store, [QUEUE]):
        pass

    (waiting,) = look(work.store, "SELECT count(*) AS n FROM holdfast.job_ready")
    assert waiting["n"] == 1_500


def test_passes_that_run_at_the_same_time_promote_every_job_once(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(url, clock) as hf:
        declare(hf)
        due = clock.now() + timedelta(minutes=1)
        for number in range(4):
            fill(hf, tenant(number), 700, not_before_at=due)
        clock.advance(minutes=2)
        start, moved = threading.Barrier(4), list[int]()

        def work() -> None:
            with make_holdfast(url, clock) as mine:
                start.wait()
                while count := promote_jobs(mine.store, [QUEUE]):
                    moved.append(count)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        moved.append(promote_jobs(hf.store, [QUEUE]))

        (left,) = look(
            hf.store, "SELECT count(*) AS n FROM holdfast.job WHERE not_before_at IS NOT NULL"
        )
    assert left["n"] == 0
    assert sum(moved) == 2_800


def test_a_job_that_was_canceled_or_claimed_early_is_not_touched(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(minutes=1)
    made = work.enqueue("work", {}, org_id=ORG, not_before_at=due)
    work.cancel(made.id, org_id=ORG)
    clock.advance(minutes=2)

    assert promote_jobs(work.store, [QUEUE]) == 0
    assert work.get(made.id, org_id=ORG).state == "canceled"
    assert timeline(work, made)[-1] == "job.canceled"


def test_a_job_brought_back_from_a_dead_worker_is_due_at_once(
    work: Holdfast, clock: FakeClock
) -> None:
    work.enqueue("work", {}, org_id=ORG, not_before_at=clock.now() + timedelta(minutes=1))
    clock.advance(minutes=2)
    dead = fetcher(work, worker="dead").take(1)
    clock.advance(seconds=61)

    rescue_jobs(work.store, limit=10)

    assert by_tenant(fetcher(work).take(1)) == by_tenant(dead)
