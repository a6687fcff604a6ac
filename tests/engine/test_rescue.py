"""Rescue of expired leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, Settings, State, Transient
from holdfast.engine import maintenance
from holdfast.engine.job import SYSTEM, Completed, unit_of
from holdfast.engine.maintenance import FREE_RELEASES, Grace, await_workers, rescue_jobs
from holdfast.engine.settle import settle
from holdfast.engine.worker.heartbeat import Heartbeat, beat_seconds
from holdfast.engine.worker.worker import run_maintenance
from holdfast.store import Tx
from holdfast.store.availability import Availability
from tests.acceptance.processes import wait_until
from tests.operate.letters import die_at_once, operator, replay
from tests.operate.sound import assert_sound
from tests.story import ORG, claim, events, make_holdfast, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("slow.work")(lambda job, payload: "done")
    return hf


@pytest.mark.req("C-08", "C-09", "I-18")
def test_a_stale_claim_is_queued_again_and_counts_as_one_attempt(
    work: Holdfast, clock: FakeClock
) -> None:
    due = clock.now()
    enqueued = work.enqueue("slow.work", {}, org_id=ORG, not_before_at=due)
    claim(work)

    clock.advance(seconds=61)
    (rescued,) = rescue_jobs(work.store, limit=10)

    job = work.get(enqueued.id, org_id=ORG)
    assert rescued.lease_held
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
    assert (len(rescued), settled.lease_held) == ((1, False) if first == "rescue" else (0, True))
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


def test_a_canceled_job_of_a_dead_worker_is_canceled_without_an_attempt(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work)
    work.cancel(enqueued.id, org_id=ORG)
    clock.advance(seconds=61)

    rescue_jobs(work.store, limit=10)

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count, job.last_error) == (State.CANCELED, 0, None)
    assert timeline(work, enqueued) == [
        "job.enqueued", "job.started", "job.cancel_requested", "job.canceled",
    ]  # fmt: skip


# -- live workers


def beat(hf: Holdfast, worker: str, lease_ms: int = 60_000) -> None:
    """A heartbeat of a worker."""
    Heartbeat(hf.store, {}, worker, ["q:default"], ["slow.work"], lease_ms=lease_ms).send()


@pytest.mark.req("C-08")
def test_a_claim_that_its_live_worker_does_not_hold_is_released_at_no_cost(
    work: Holdfast, clock: FakeClock
) -> None:
    """The answer to the claim was lost: the worker runs without the job."""
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work, worker="alive")
    clock.advance(seconds=61)
    beat(work, "alive")

    (rescued,) = rescue_jobs(work.store, limit=10)

    job = work.get(enqueued.id, org_id=ORG)
    released = events(work, enqueued)[-1]
    assert rescued.lease_held
    assert (job.state, job.attempt_count, job.last_error) == (State.QUEUED, 0, None)
    assert released["name"] == "job.released"
    assert '"lease_expired"' in released["detail"]
    assert len(claim(work)) == 1
    assert_sound(work)


@pytest.mark.req("C-08", "C-09")
def test_a_worker_that_may_be_about_to_send_its_heartbeat_is_waited_for(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work, worker="quiet")
    clock.advance(seconds=55)
    beat(work, "quiet")
    clock.advance(seconds=6)

    early = rescue_jobs(work.store, limit=10)
    clock.advance(seconds=25)
    (rescued,) = rescue_jobs(work.store, limit=10)

    assert early == []
    assert rescued.lease_held
    assert work.get(enqueued.id, org_id=ORG).error_class == "WORKER_CRASHED"


@pytest.mark.parametrize("lease_ms", [1_500, 60_000, 600_000])
def test_a_rescue_waits_for_two_intervals_of_the_heartbeat(
    work: Holdfast, clock: FakeClock, lease_ms: int
) -> None:
    work.enqueue("slow.work", {}, org_id=ORG)
    claim(work, worker="quiet", lease_ms=lease_ms)
    clock.advance(milliseconds=lease_ms)
    beat(work, "quiet", lease_ms)
    interval = timedelta(seconds=beat_seconds(lease_ms / 1000))

    clock.advance(2 * interval - timedelta(milliseconds=2))
    early = rescue_jobs(work.store, limit=10)
    clock.advance(milliseconds=4)

    assert early == []
    assert len(rescue_jobs(work.store, limit=10)) == 1


@pytest.mark.req("C-09")
@pytest.mark.parametrize("lease_ms", [1_000, 60_000, 600_000])
def test_a_killed_worker_counts_as_an_attempt_as_soon_as_its_lease_expires(
    work: Holdfast, clock: FakeClock, lease_ms: int
) -> None:
    """The worker is killed right after a heartbeat and a renewal."""
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work, worker="killed", lease_ms=lease_ms)
    beat(work, "killed", lease_ms)
    clock.advance(milliseconds=lease_ms + 1)

    rescue_jobs(work.store, limit=10)

    assert work.get(enqueued.id, org_id=ORG).error_class == "WORKER_CRASHED"


@pytest.mark.req("C-09", "J-06")
def test_a_job_that_live_workers_always_lose_eventually_counts_attempts(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG, max_attempts=2)

    for _ in range(FREE_RELEASES + 2):
        assert len(claim(work, worker="alive")) == 1
        clock.advance(seconds=61)
        beat(work, "alive")
        rescue_jobs(work.store, limit=10)

    assert timeline(work, enqueued).count("job.released") == FREE_RELEASES
    assert work.get(enqueued.id, org_id=ORG).state is State.FAILED
    assert_sound(work)


def test_the_jobs_of_a_worker_known_to_be_dead_count_attempts_despite_its_last_heartbeat(
    work: Holdfast, clock: FakeClock
) -> None:
    dead_job, other_job = work.enqueue_many("slow.work", [{}, {}], org_id=ORG)
    claim(work, worker="dead")
    claim(work, worker="other")
    clock.advance(seconds=61)
    beat(work, "dead")

    rescued = rescue_jobs(work.store, limit=10, dead_worker_id="dead")

    assert [item.job.id for item in rescued] == [dead_job.id]
    assert work.get(dead_job.id, org_id=ORG).error_class == "WORKER_CRASHED"
    assert work.get(other_job.id, org_id=ORG).state is State.PROCESSING


# -- after an interruption


def test_no_attempt_counts_before_live_workers_had_time_to_renew(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work)
    clock.advance(seconds=61)
    grace = Grace.for_lease(60.0)
    now = time.monotonic()

    work.store.availability = Availability(now - grace.seconds + 30)
    fresh = rescue_jobs(work.store, limit=10, grace=grace)
    work.store.availability = Availability(now - 3600)
    work.store.availability.note_wait(grace.interruption)
    interrupted = rescue_jobs(work.store, limit=10, grace=grace)
    work.store.availability = Availability(now - 3600)
    work.store.availability.note_wait(grace.interruption / 2)
    rescued = rescue_jobs(work.store, limit=10, grace=grace)

    assert (fresh, interrupted) == ([], [])
    assert [item.job.id for item in rescued] == [enqueued.id]


def test_a_rescue_that_waited_for_the_end_of_an_outage_charges_nothing(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue("slow.work", {}, org_id=ORG)
    claim(work)
    clock.advance(seconds=61)
    store = work.store
    store.availability = Availability(time.monotonic() - 3600)
    write = store.write_soon

    def write_after_an_outage(work: Callable[[Tx], Any]) -> Any:
        """The database was unavailable at every attempt before the last one."""
        store.availability._away_since = time.monotonic() - 120
        return write(work)

    store.write_soon = write_after_an_outage  # type: ignore[method-assign]
    rescued = rescue_jobs(store, limit=10, grace=Grace.for_lease(60.0))

    assert rescued == []
    assert work.get(enqueued.id, org_id=ORG).state is State.PROCESSING


@pytest.mark.req("C-08")
def test_a_process_that_just_began_waits_for_workers_before_it_rescues(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers wait at most four seconds before they connect again.
    monkeypatch.setattr(maintenance, "RECONNECT_SECONDS", 0.5)
    settings = Settings(db=url, lease_seconds=0.5)
    grace = Grace.for_lease(0.5)
    with Holdfast(settings=settings) as hf:
        hf.job("slow.work")(lambda job, payload: None)
        enqueued = hf.enqueue("slow.work", {}, org_id=ORG)
        await_workers(hf.store, settings, may_continue=lambda: True)
        nothing_to_wait_for, began = grace.left(hf.store), time.monotonic()
        claim(hf, lease_ms=1)

        def is_rescued() -> bool:
            await_workers(hf.store, settings, may_continue=lambda: True)
            run_maintenance(hf.store, settings, hf.events)
            return hf.get(enqueued.id, org_id=ORG).error_class == "WORKER_CRASHED"

        # On a busy machine a slow statement looks like an interruption, and the wait begins again.
        wait_until(is_rescued)

        assert nothing_to_wait_for > 0
        assert time.monotonic() - began >= nothing_to_wait_for


# -- locks that others hold


@contextmanager
def held(url: str, statement: str, *params: object) -> Iterator[None]:
    """An idle transaction of another session that holds the locks of *statement*."""
    with psycopg.connect(url) as other:
        other.execute(statement.encode(), params)
        yield
        other.rollback()


def rescue_within_a_minute(hf: Holdfast) -> list[str]:
    """The jobs that a rescue releases while others hold their locks."""
    rescued: list[str] = []
    thread = threading.Thread(
        target=lambda: rescued.extend(item.job.id for item in rescue_jobs(hf.store, limit=10)),
        daemon=True,
    )
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the rescue waits for a lock"
    return rescued


@pytest.mark.req("C-05", "C-08")
def test_a_rescue_passes_over_an_execution_unit_that_is_in_use(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        hf.job("slow.work")(lambda job, payload: None)
        used = hf.enqueue("slow.work", {}, org_id=ORG, unit_key="used")
        free = hf.enqueue("slow.work", {}, org_id=ORG, unit_key="free")
        claim(hf, limit=2)
        assert isinstance(hf.clock, FakeClock)
        hf.clock.advance(seconds=61)
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"

        with held(postgres_url, lock, unit_of(ORG, "slow.work", "used")):
            while_held = rescue_within_a_minute(hf)
        afterwards = rescue_within_a_minute(hf)

        assert (while_held, afterwards) == ([free.id], [used.id])


@pytest.mark.req("C-08")
def test_a_rescue_passes_over_rows_that_are_locked(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        hf.job("slow.work")(lambda job, payload: None)
        locked, free = hf.enqueue_many("slow.work", [{}, {}], org_id=ORG)
        claim(hf, limit=2)
        assert isinstance(hf.clock, FakeClock)
        hf.clock.advance(seconds=61)
        lock = "SELECT * FROM holdfast.job_running WHERE job_id = %s FOR UPDATE"

        with held(postgres_url, lock, locked.id):
            while_held = rescue_within_a_minute(hf)
        afterwards = rescue_within_a_minute(hf)

        assert (while_held, afterwards) == ([free.id], [locked.id])


@pytest.mark.req("C-08")
def test_a_rescue_passes_over_a_replay_whose_dead_letter_is_locked(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        (dead,) = die_at_once(hf, Transient())
        replay_id = replay(operator(hf), dead)
        claim(hf)
        assert isinstance(hf.clock, FakeClock)
        hf.clock.advance(seconds=61)
        lock = "SELECT * FROM holdfast.dead_letter WHERE job_id = %s FOR UPDATE"

        with held(postgres_url, lock, dead.id):
            while_held = rescue_within_a_minute(hf)
        afterwards = rescue_within_a_minute(hf)

        assert (while_held, afterwards) == ([], [replay_id])
