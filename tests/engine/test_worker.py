"""The worker: its threads, its settle buffer, and its shutdown."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, Settings, State, SystemClock, Worker
from holdfast.engine.context import CancelToken
from holdfast.engine.job import SYSTEM, Advanced, Claimed, Completed
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from holdfast.engine.worker.executor_pool import InFlight
from holdfast.engine.worker.settle_buffer import settle_bisecting
from holdfast.event import Event, JobSettled, JobStarted, LeaseWasLost, WorkerChanged
from tests.acceptance.processes import all_in, wait_until
from tests.engine.faulty import FaultyStore
from tests.story import ORG, by_hand, claim, events, look, make_holdfast, timeline


def ignore(change: str, detail: str) -> None:
    """Another subscriber receives the events of a worker."""


@contextmanager
def running(worker: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_worker_runs_what_is_due_and_stops_when_idle(hf: Holdfast) -> None:
    hf.job("sync.work")(lambda job, payload: payload["n"])

    @hf.job("async.work")
    async def work(job: Context, payload: dict[str, int]) -> int:
        await asyncio.sleep(0)
        return payload["n"]

    jobs = [
        *hf.enqueue_many("sync.work", [{"n": n} for n in range(40)], org_id=ORG),
        *hf.enqueue_many("async.work", [{"n": n} for n in range(40)], org_id=ORG),
    ]

    counts = hf.worker(concurrency=4).run(until_idle=True)

    assert counts.outcomes == {"completed": 80}
    assert {hf.get(item.id, org_id=ORG).state for item in jobs} == {State.COMPLETED}
    assert all(timeline(hf, item).count("job.succeeded") == 1 for item in jobs[::10])


def test_a_worker_is_not_idle_while_what_it_runs_may_enqueue_more(hf: Holdfast) -> None:
    may_end, ran = threading.Event(), []

    @hf.job("first")
    def first(job: Context, payload: object) -> None:
        may_end.wait(20)
        hf.enqueue("second", {}, org_id=ORG)

    hf.job("second")(lambda job, payload: ran.append(job.id))
    hf.enqueue("first", {}, org_id=ORG)
    worker = hf.worker(concurrency=2)
    take = worker._fetcher.take

    def take_while_the_first_ends(wanted: int) -> list[Claimed]:
        """Find no jobs, and only then let the handler enqueue, end and be settled."""
        found = take(wanted)
        if not found and not may_end.is_set():
            may_end.set()
            wait_until(lambda: worker.outcomes["completed"] == 1 and not worker._in_flight)
        return found

    worker._fetcher.take = take_while_the_first_ends  # type: ignore[method-assign]
    counts = worker.run(until_idle=True)

    assert counts.outcomes == {"completed": 2}
    assert len(ran) == 1


def test_asynchronous_handlers_run_side_by_side_on_one_loop(hf: Holdfast) -> None:
    together = 20
    arrived: list[int] = []
    threads: set[int] = set()
    everybody = asyncio.Event()

    @hf.job("async.work")
    async def work(job: Context, payload: object) -> None:
        threads.add(threading.get_ident())
        arrived.append(1)
        if len(arrived) == together:
            everybody.set()
        await everybody.wait()

    hf.enqueue_many("async.work", [{} for _ in range(together)], org_id=ORG)
    counts = hf.worker(concurrency=1).run(until_idle=True)

    assert counts.outcomes == {"completed": together}
    assert len(threads) == 1


def test_the_stages_of_a_pipeline_run_under_one_claim(hf: Holdfast) -> None:
    pipeline = hf.pipeline("review.run")
    pipeline.stage("first")(lambda job, payload: 1)

    @pipeline.stage("second")
    async def second(job: Context, payload: object) -> int:
        return job.outputs["first"] + 1

    pipeline.stage("third")(lambda job, payload: job.outputs["second"] + 1)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)
    hf.worker(concurrency=2).run(until_idle=True)

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.result, job.record["lease_token"]) == (State.COMPLETED, 3, 1)


def test_draining_gives_back_what_has_not_begun_and_finishes_what_has(hf: Holdfast) -> None:
    begun, release = threading.Event(), threading.Event()

    @hf.job("slow.work")
    def slow(job: Context, payload: object) -> str:
        begun.set()
        release.wait(30)
        return "finished"

    jobs = hf.enqueue_many("slow.work", [{} for _ in range(4)], org_id=ORG)
    worker = hf.worker(concurrency=1)
    # Short jobs are prefetched.
    worker._executor_pool.mean_seconds = 0.001
    with running(worker) as thread:
        assert begun.wait(10)
        worker.drain()
        release.set()
        thread.join(10)
        assert not thread.is_alive()

    found = [hf.get(item.id, org_id=ORG) for item in jobs]
    assert found[0].result == "finished"
    for item, job in zip(jobs[1:], found[1:], strict=True):
        assert (job.state, job.attempt_count, job.last_error) == (State.QUEUED, 0, None)
        assert timeline(hf, item)[-1] in ("job.released", "job.enqueued")
    assert any("drain" in str(event["detail"]) for event in events(hf, jobs[1]))


def test_draining_gives_back_what_has_not_begun_while_a_handler_still_runs(hf: Holdfast) -> None:
    """Another worker can take these jobs now, and does not wait for the slow one."""
    begun, release = threading.Event(), threading.Event()

    @hf.job("slow.work")
    def slow(job: Context, payload: object) -> None:
        begun.set()
        release.wait(60)

    first, *others = hf.enqueue_many("slow.work", [{} for _ in range(4)], org_id=ORG)
    worker = hf.worker(concurrency=1)
    # Short jobs are prefetched.
    worker._executor_pool.mean_seconds = 0.001
    with running(worker):
        assert begun.wait(60)
        wait_until(lambda: all_in(hf, others, State.PROCESSING))
        worker.drain()
        try:
            wait_until(lambda: all_in(hf, others, State.QUEUED), 20)
            assert hf.get(first.id, org_id=ORG).state is State.PROCESSING
        finally:
            release.set()


@pytest.mark.req("I-18")
def test_a_second_stop_does_not_wait_and_the_lease_returns_the_job(
    hf: Holdfast, clock: FakeClock
) -> None:
    begun, release = threading.Event(), threading.Event()

    @hf.job("stuck.work")
    def stuck(job: Context, payload: object) -> None:
        begun.set()
        release.wait(30)

    enqueued = hf.enqueue("stuck.work", {}, org_id=ORG)
    worker = hf.worker(concurrency=1)
    with running(worker) as thread:
        assert begun.wait(10)
        worker.drain()
        worker.stop()
        thread.join(10)
        left_at_once = not thread.is_alive()
    after = hf.get(enqueued.id, org_id=ORG).state
    release.set()
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=1)

    assert left_at_once
    assert after is State.PROCESSING
    assert hf.get(enqueued.id, org_id=ORG).last_error == "stale_claim_requeued"


def refuse_poison(hf: Holdfast) -> None:
    """A constraint of the application that rejects one result."""
    if hf.store.dialect.name == "sqlite":
        by_hand(
            hf.store,
            "CREATE TRIGGER no_poison BEFORE INSERT ON holdfast.job_outcome"
            " WHEN NEW.result = '\"poison\"'"
            " BEGIN SELECT RAISE(ABORT, 'no_poison: not in my house'); END",
        )
    else:
        by_hand(
            hf.store,
            "CREATE TRIGGER no_poison BEFORE INSERT ON holdfast.job_outcome FOR EACH ROW"
            " WHEN (NEW.result = CAST('\"poison\"' AS jsonb))"
            " EXECUTE FUNCTION holdfast.refuse('not in my house')",
        )


def test_an_outcome_the_database_refuses_is_buried_alone(hf: Holdfast) -> None:
    refuse_poison(hf)
    together = threading.Barrier(3, timeout=20)

    @hf.job("some.work")
    def work(job: Context, payload: dict[str, str]) -> str:
        together.wait()
        return payload["returns"]

    good, poison, other = hf.enqueue_many(
        "some.work", [{"returns": text} for text in ("good", "poison", "other")], org_id=ORG
    )
    hf.worker(concurrency=3).run(until_idle=True)

    assert hf.get(good.id, org_id=ORG).result == "good"
    assert hf.get(other.id, org_id=ORG).result == "other"
    buried = hf.get(poison.id, org_id=ORG)
    assert (buried.state, buried.error_class) == (State.FAILED, "ROW_INVALID")


def test_a_refused_outcome_is_isolated_from_the_group_it_came_in(hf: Holdfast) -> None:
    refuse_poison(hf)
    hf.job("some.work")(lambda job, payload: None)
    jobs = hf.enqueue_many("some.work", [{} for _ in range(5)], org_id=ORG)
    claimed = claim(hf, limit=5)
    outcomes = [Completed('"poison"' if at == 2 else '"good"') for at in range(5)]

    settled = settle_bisecting(
        hf.store, list(zip(claimed, outcomes, strict=True)), actor=SYSTEM, changed=ignore
    )

    assert [item.job.id for item in settled] == [job.id for job in claimed]
    states = [hf.get(item.id, org_id=ORG).state for item in jobs]
    assert states == [State.COMPLETED] * 2 + [State.FAILED] + [State.COMPLETED] * 2


def test_a_lost_lease_is_reported_and_changes_nothing(hf: Holdfast, clock: FakeClock) -> None:
    heard: list[Event] = []
    hf.events.subscribe(heard.append)

    @hf.job("slow.work")
    def slow(job: Context, payload: object) -> str:
        clock.advance(seconds=61)
        rescue_jobs(hf.store, limit=1)
        return "too late"

    enqueued = hf.enqueue("slow.work", {}, org_id=ORG)
    counts = hf.worker().run_once()

    assert counts.outcomes == {"lease_lost": 1}
    assert any(isinstance(event, LeaseWasLost) for event in heard)
    assert hf.get(enqueued.id, org_id=ORG).state is State.QUEUED


@pytest.mark.req("C-09")
def test_a_workers_own_upkeep_rescues_what_others_left(url: str, clock: FakeClock) -> None:
    rescued = threading.Event()
    settings = Settings(db=url, rescue_seconds=0.05)
    with Holdfast(settings=settings, clock=clock) as hf:
        hf.job("lost.work")(lambda job, payload: rescued.set())
        enqueued = hf.enqueue("lost.work", {}, org_id=ORG)
        claim(hf, worker="gone")
        clock.advance(seconds=61)

        with running(hf.worker(concurrency=1)):
            assert rescued.wait(10)

        assert hf.get(enqueued.id, org_id=ORG).attempt_count == 1


@pytest.mark.req("I-18")
def test_a_temporary_database_outage_stops_no_worker(hf: Holdfast) -> None:
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    hf.job("some.work")(lambda job, payload: "done")
    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    store = FaultyStore(hf.store).be_away(3)
    worker = Worker(
        store, hf.registry, settings=hf.settings, events=hf.events, queues=["q:default"],
        concurrency=1,
    )  # fmt: skip

    worker.run(until_idle=True)

    assert hf.get(enqueued.id, org_id=ORG).result == "done"
    assert [e.change for e in heard if isinstance(e, WorkerChanged)].count("store_down") == 3


def test_an_outcome_is_kept_until_the_database_is_back(hf: Holdfast) -> None:
    store = FaultyStore(hf.store)
    hf.job("some.work")(lambda job, payload: store.be_away(2) and "done")
    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    worker = Worker(store, hf.registry, settings=hf.settings, queues=["q:default"], concurrency=1)

    worker.run(until_idle=True)

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count) == (State.COMPLETED, 0)
    assert timeline(hf, enqueued).count("job.started") == 1


@pytest.mark.req("T-05")
def test_a_running_job_hears_of_its_cancel_within_a_moment(hf: Holdfast) -> None:
    begun = threading.Event()

    @hf.job("long.work")
    def long(job: Context, payload: object) -> None:
        begun.set()
        while True:
            job.raise_if_canceled()
            time.sleep(0.05)

    enqueued = hf.enqueue("long.work", {}, org_id=ORG)
    worker = hf.worker(concurrency=1)
    with running(worker) as thread:
        assert begun.wait(10)
        hf.cancel(enqueued.id, org_id=ORG)
        worker.drain()
        thread.join(10)

    assert hf.get(enqueued.id, org_id=ORG).state is State.CANCELED


def test_a_handler_that_exits_does_not_take_a_hand_with_it(hf: Holdfast) -> None:
    @hf.job("rude.work")
    def rude(job: Context, payload: object) -> None:
        sys.exit(3)

    @hf.job("rude.async")
    async def rude_async(job: Context, payload: object) -> None:
        sys.exit(3)

    hf.job("good.work")(lambda job, payload: "done")
    rude_jobs = [
        *hf.enqueue_many("rude.work", [{}, {}, {}], org_id=ORG, priority="high"),
        *hf.enqueue_many("rude.async", [{}, {}, {}], org_id=ORG, priority="high"),
    ]
    good = hf.enqueue("good.work", {}, org_id=ORG)

    hf.worker(concurrency=1).run(until_idle=True)

    assert {hf.get(item.id, org_id=ORG).error_class for item in rude_jobs} == {"DEFECT"}
    assert hf.get(good.id, org_id=ORG).result == "done"


def test_a_failing_subscriber_never_harms_the_work(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("no disk")

    heard: list[Event] = []
    hf.events.subscribe(broken)
    hf.events.subscribe(heard.append)
    hf.job("some.work")(lambda job, payload: "done")

    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    hf.worker().run_once()

    assert hf.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    assert [type(event) for event in heard if isinstance(event, (JobStarted, JobSettled))] == [
        JobStarted, JobSettled,
    ]  # fmt: skip


class WrongClock(SystemClock):
    """A worker with a wrong clock."""

    def __init__(self, seconds: float) -> None:
        self.off = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self.off


@pytest.mark.req("T-03")
def test_a_thread_whose_handler_ignores_its_timeout_is_replaced(sqlite_url: str) -> None:
    """Two jobs that wait for each other end only where two threads are left to run them."""
    release, both = threading.Event(), threading.Barrier(2)
    with make_holdfast(sqlite_url) as hf:

        @hf.job("stuck.work", timeout=0.05, max_attempts=1)
        def stuck(job: Context, payload: object) -> None:
            release.wait(60)

        hf.job("pair.work", max_attempts=1)(lambda job, payload: both.wait(30))
        hf.enqueue("stuck.work", {}, org_id=ORG)
        pair = hf.enqueue_many("pair.work", [{}, {}], org_id=ORG)

        hf.worker(concurrency=2).run(until_idle=True)
        release.set()

        assert all_in(hf, pair, State.COMPLETED)


def test_a_worker_whose_clock_is_off_by_over_a_minute_claims_nothing_and_says_so(
    postgres_url: str,
) -> None:
    for seconds, claims in [(0, 1), (50, 1), (-50, 1), (70, 0), (-70, 0), (86_400, 0)]:
        heard: list[Any] = []
        with Holdfast(settings=Settings(db=postgres_url), clock=WrongClock(seconds)) as hf:
            hf.events.subscribe(heard.append)
            hf.job("some.work")(lambda job, payload: None)
            hf.enqueue("some.work", {}, org_id=ORG)

            counts = hf.worker().run_once()

        changes = [event.change for event in heard if isinstance(event, WorkerChanged)]
        assert counts.claimed == claims
        assert changes == ([] if claims else ["clock_drift"])


def test_an_advance_to_the_same_stage_is_refused_by_the_database(hf: Holdfast) -> None:
    hf.job("some.work")(lambda job, payload: None)
    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    clock = hf.clock
    assert isinstance(clock, FakeClock)
    claim(hf)
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=1)
    (again,) = claim(hf)

    settle_bisecting(
        hf.store, [(again, Advanced("1", again.stage, 5))], actor=SYSTEM, changed=ignore
    )

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.error_class, job.attempt_count) == (State.FAILED, "ROW_INVALID", 2)


class Foreign(BaseException):
    """An error of a library that derives from BaseException."""


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_handler_that_raises_a_base_exception_costs_its_job_and_not_the_thread(
    hf: Holdfast, colour: str
) -> None:
    def work(job: Context, payload: dict[str, Any]) -> None:
        if payload["n"] == 0:
            raise Foreign

    async def work_async(job: Context, payload: dict[str, Any]) -> None:
        work(job, payload)

    hf.job("some.work")(work if colour == "def" else work_async)
    jobs = hf.enqueue_many("some.work", [{"n": n} for n in range(3)], org_id=ORG)

    hf.worker(concurrency=1).run(until_idle=True)

    states = [hf.get(job.id, org_id=ORG).state for job in jobs]
    assert states == [State.FAILED, State.COMPLETED, State.COMPLETED]
    assert hf.get(jobs[0].id, org_id=ORG).record["error_class"] == "DEFECT"


def test_a_drain_asked_for_in_the_middle_of_a_wait_does_not_wait_for_itself(hf: Holdfast) -> None:
    worker = hf.worker(concurrency=1)
    thread = threading.Thread(target=worker.run)
    thread.start()

    # The state during a signal handler: this very thread holds the locks of the worker's events.
    with worker._draining._cond:  # type: ignore[attr-defined]
        worker.drain()
        asked = worker.is_draining
    thread.join(10)

    assert asked
    assert not thread.is_alive()
    assert not worker.stop_requested


@pytest.mark.req("C-09", "I-14")
def test_a_lost_claim_that_ends_leaves_the_next_claim_of_its_job_alone(url: str) -> None:
    """The same worker has both: the first still runs when the second is claimed."""
    began, may_end = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    lost: list[Event] = []
    runs = iter(range(9))
    with make_holdfast(url, SystemClock(), lease_seconds=2.0, rescue_seconds=0.1) as hf:  # type: ignore[arg-type]

        @hf.job("some.work")
        def work(job: Context, payload: object) -> int:
            run = next(runs)
            began[run].set()
            may_end[run].wait(60)
            return run

        hf.events.subscribe(
            lambda event: lost.append(event) if isinstance(event, LeaseWasLost) else None
        )
        enqueued = hf.enqueue("some.work", {}, org_id=ORG)
        worker = hf.worker(concurrency=2)
        with running(worker):
            assert began[0].wait(60)
            rescue_jobs(hf.store, limit=1, dead_worker_id=worker.id)
            assert began[1].wait(60)
            may_end[0].set()
            wait_until(lambda: bool(lost))
            first_end = lease_end(hf, enqueued.id)
            wait_until(lambda: lease_end(hf, enqueued.id) != first_end)
            may_end[1].set()
            wait_until(lambda: hf.get(enqueued.id, org_id=ORG).state is State.COMPLETED)

        assert timeline(hf, enqueued).count("job.started") == 2
        assert hf.get(enqueued.id, org_id=ORG).result == 1


def lease_end(hf: Holdfast, job_id: str) -> Any:
    (row,) = look(hf.store, "SELECT lease_expires_at FROM holdfast.job WHERE id = :id", id=job_id)
    return row["lease_expires_at"]


@pytest.mark.req("I-14")
def test_two_claims_of_a_job_in_one_group_are_distinguished(hf: Holdfast) -> None:
    hf.job("some.work")(lambda job, payload: None)
    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    (lost,) = claim(hf)
    rescue_jobs(hf.store, limit=1, dead_worker_id="w1")
    (held,) = claim(hf, worker="w2")

    group = [(lost, Completed('"lost"')), (held, Completed('"held"'))]
    settled = settle(hf.store, group, actor=SYSTEM)

    assert [item.lease_held for item in settled] == [False, True]
    assert hf.get(enqueued.id, org_id=ORG).result == "held"
    assert timeline(hf, enqueued).count("job.succeeded") == 1
    assert timeline(hf, enqueued).count("job.lease_lost") == 1


def test_a_handler_that_ends_with_its_timeout_ends_once(hf: Holdfast) -> None:
    """The thread or the lease renewer ends the claim, whichever is first; the other does not."""
    finished: list[Any] = []
    hands = hf.worker()._executor_pool
    hands.finished = lambda held, outcome: finished.append(outcome)
    hf.job("some.work")(lambda job, payload: None)
    hf.enqueue("some.work", {}, org_id=ORG)
    (job,) = claim(hf)
    held = InFlight(job, CancelToken(), 0.0, 0.0)
    hands._running[held] = True

    assert hands.abandon(held)
    assert not hands.abandon(held)
