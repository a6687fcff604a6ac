"""No thread of a worker ends unnoticed: the worker ends, and another one is started."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, State, Worker
from holdfast.engine import maintenance
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.worker.heartbeat import list_workers
from holdfast.engine.worker.watchdog import Watchdog
from holdfast.event import Event, WorkerChanged
from tests.acceptance.processes import wait_until
from tests.operate.sound import assert_sound
from tests.story import ORG, claim, make_holdfast, timeline

MINUTE = 60.0


@contextmanager
def running(worker: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(MINUTE)
        assert not thread.is_alive()


def changes_of(hf: Holdfast) -> list[tuple[str, str]]:
    """The events that workers emit from now on."""
    heard: list[tuple[str, str]] = []

    def hear(event: Event) -> None:
        if isinstance(event, WorkerChanged):
            heard.append((event.change, event.detail))

    hf.events.subscribe(hear)
    return heard


def thread_named(name: str) -> threading.Thread:
    (found,) = [thread for thread in threading.enumerate() if thread.name == name]
    return found


def end_thread(thread: threading.Thread) -> None:
    """Raise SystemExit inside *thread* at its next step, where no code expects it."""
    ident = ctypes.c_ulong(thread.ident or 0)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit)) == 1


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("somebody's secret")


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("some.work")(lambda job, payload: "done")

    @hf.job("async.work")
    async def on_the_loop(job: Context, payload: object) -> str:
        return "done"

    return hf


def assert_ended(worker: Worker, thread: threading.Thread, heard: list[tuple[str, str]]) -> str:
    """The worker has ended by itself and logged the reason."""
    thread.join(MINUTE)
    assert not thread.is_alive()
    assert worker.must_recycle
    assert worker.failure is not None
    assert ("thread_died", worker.failure) in heard
    assert "secret" not in worker.failure
    return worker.failure


# -- threads that end


@pytest.mark.req("I-18")
@pytest.mark.parametrize(
    ("part", "method", "name"),
    [
        ("_settle_buffer", "_settle_group", "holdfast-settle-buffer"),
        ("_settle_buffer", "_wait_a_moment", "holdfast-settle-buffer"),
        ("_lease_renewer", "_abandon_overdue", "holdfast-lease-renewer"),
        ("_executor_pool", "_observe", "holdfast-executor-"),
    ],
)
def test_a_worker_whose_thread_dies_of_a_defect_ends(
    work: Holdfast, part: str, method: str, name: str
) -> None:
    heard = changes_of(work)
    worker = work.worker(concurrency=1, drain_seconds=1.0)
    setattr(getattr(worker, part), method, broken)
    work.enqueue("some.work", {}, org_id=ORG)

    with running(worker) as thread:
        failure = assert_ended(worker, thread, heard)

    assert failure.startswith(name)
    assert "KeyError" in failure


@pytest.mark.parametrize(
    "name",
    ["holdfast-settle-buffer", "holdfast-lease-renewer", "holdfast-heartbeat", "holdfast-loop"],
)
def test_a_worker_whose_thread_is_ended_from_outside_ends(url: str, name: str) -> None:
    with make_holdfast(url, lease_seconds=1.0) as hf:
        hf.job("some.work")(lambda job, payload: None)

        @hf.job("async.work")
        async def on_the_loop(job: Context, payload: object) -> None:
            return None

        heard = changes_of(hf)
        worker = hf.worker(concurrency=1)
        with running(worker) as thread:
            wait_until(lambda: any(t.name == name and t.ident for t in threading.enumerate()))
            end_thread(thread_named(name))
            # A job, so that the thread takes its next step.
            hf.enqueue("some.work", {}, org_id=ORG)
            hf.enqueue("async.work", {}, org_id=ORG)
            failure = assert_ended(worker, thread, heard)

    assert failure.startswith(name)


def test_a_thread_that_ends_without_a_word_ends_the_worker(work: Holdfast) -> None:
    heard = changes_of(work)
    worker = work.worker(concurrency=1)
    worker._lease_renewer._end.set()

    with running(worker) as thread:
        failure = assert_ended(worker, thread, heard)

    assert failure == "holdfast-lease-renewer has ended"


@pytest.mark.req("I-18", "I-14")
def test_what_ran_is_recorded_although_the_thread_that_records_died(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = work.worker(concurrency=1)
    settle_group = worker._settle_buffer._settle_group
    calls: list[int] = []

    def break_once(group: Any) -> None:
        calls.append(len(group))
        worker._settle_buffer._writing = group
        if len(calls) == 1:
            broken()
        settle_group(group)

    monkeypatch.setattr(worker._settle_buffer, "_settle_group", break_once)
    job = work.enqueue("some.work", {}, org_id=ORG)

    with running(worker) as thread:
        thread.join(MINUTE)

    assert work.get(job.id, org_id=ORG).state is State.COMPLETED
    assert timeline(work, job).count("job.started") == 1
    assert_sound(work)


@pytest.mark.req("I-18")
def test_jobs_whose_outcome_cannot_be_recorded_are_rescued_when_the_lease_ends(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = work.worker(concurrency=1)
    monkeypatch.setattr(worker._settle_buffer, "settle", broken)
    job = work.enqueue("some.work", {}, org_id=ORG)

    with running(worker) as thread:
        thread.join(MINUTE)
    held = work.get(job.id, org_id=ORG).state
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)
    work.worker().run_once()

    assert held is State.PROCESSING
    assert work.get(job.id, org_id=ORG).state is State.COMPLETED
    assert_sound(work)


def test_a_failing_upkeep_pass_is_reported_and_repeated(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidy, calls = maintenance.tidy, []

    def fail_once(*given: Any) -> Any:
        calls.append(1)
        return broken() if len(calls) == 1 else tidy(*given)

    monkeypatch.setattr(maintenance, "tidy", fail_once)
    with make_holdfast(url, clock, rescue_seconds=0.05) as hf:
        hf.job("some.work")(lambda job, payload: None)
        heard = changes_of(hf)
        job = hf.enqueue("some.work", {}, org_id=ORG)
        claim(hf, worker="gone")
        clock.advance(seconds=61)
        with running(hf.worker(concurrency=1)):
            wait_until(lambda: hf.get(job.id, org_id=ORG).state is State.COMPLETED)

    assert ("upkeep_failed", "upkeep: KeyError") in heard


# -- threads that hang


@pytest.mark.parametrize(
    ("part", "method", "what"),
    [
        ("_settle_buffer", "settle", "the recording of outcomes has been unresponsive"),
        ("_lease_renewer", "_renew_due", "the renewal of leases has been unresponsive"),
    ],
)
def test_a_worker_with_a_stuck_thread_exits(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch, part: str, method: str, what: str
) -> None:
    heard = changes_of(work)
    worker = work.worker(concurrency=1)
    worker._watchdog.stall_seconds = 0.5
    release = threading.Event()
    monkeypatch.setattr(getattr(worker, part), method, lambda *_: release.wait(MINUTE))
    # A worker that ends waits five seconds for each of its threads.
    stuck = getattr(worker, part)._thread
    monkeypatch.setattr(stuck, "join", lambda timeout: threading.Thread.join(stuck, timeout / 50))
    job = work.enqueue("some.work", {}, org_id=ORG)

    with running(worker) as thread:
        failure = assert_ended(worker, thread, heard)
        release.set()

    assert failure.startswith(what)
    if part == "_settle_buffer":
        assert work.get(job.id, org_id=ORG).state is State.PROCESSING


def test_waiting_for_an_unavailable_store_is_not_a_fault() -> None:
    failures: list[str] = []
    watchdog = Watchdog(stall_seconds=1.0, failed=failures.append)
    now = time.monotonic()
    watchdog.watch("a loop", lambda: now - 100)
    watchdog._answered_at = now - 100

    watchdog.check()
    before = list(failures)
    watchdog.note_answer()
    watchdog.check()

    assert before == []
    assert len(failures) == 1


# -- the worker's row


def test_a_worker_records_what_waits_to_be_settled(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = work.worker(concurrency=1)
    release = threading.Event()
    settle = worker._settle_buffer.settle
    monkeypatch.setattr(
        worker._settle_buffer, "settle", lambda group: release.wait(MINUTE) and settle(group)
    )
    work.enqueue("some.work", {}, org_id=ORG)

    with running(worker):
        # The worker may count its own heartbeat before this one and write it afterwards, so this
        # row is kept: the next one may be older.
        seen: list[Any] = []

        def tells(outcomes: int) -> bool:
            worker._heartbeat.send()
            seen[:] = work.store.read(list_workers)
            return bool(seen[0].unsettled == outcomes)

        wait_until(lambda: worker._settle_buffer.backlog().outcomes == 1)
        wait_until(lambda: tells(1))
        (waiting,) = seen
        release.set()
        wait_until(lambda: worker._settle_buffer.backlog().outcomes == 0)
        wait_until(lambda: tells(0))
        (recorded,) = seen

    assert (waiting.unsettled, waiting.settled_at) == (1, None)
    assert (recorded.unsettled, recorded.unsettled_ms) == (0, 0)
    assert recorded.settled_at is not None
