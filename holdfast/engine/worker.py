"""The worker: claim → execute → settle, in a loop, until told to stop.

One thread claims, a few run synchronous handlers, one event loop runs asynchronous ones, one
settles. Outcomes that arrive while a group is being written form the next group, so the group
grows with the load and nothing waits for it to fill.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue

from holdfast.clock import ms, read_instant
from holdfast.config import Settings
from holdfast.engine import upkeep
from holdfast.engine.audit import seal_events
from holdfast.engine.claim import claim_jobs, find_canceled, read_clock, renew_leases
from holdfast.engine.classify import fault_of
from holdfast.engine.execute import (
    CancelToken,
    Context,
    Plan,
    execute,
    execute_async,
    plan,
    timed_out,
)
from holdfast.engine.handler import Registry
from holdfast.engine.job import (
    QUEUES,
    Actor,
    ActorType,
    Claimed,
    Dead,
    Outcome,
    Released,
    Retry,
)
from holdfast.engine.quarantine import bury_broken
from holdfast.engine.request import DRIFT
from holdfast.engine.settle import Settled, settle, verb_of
from holdfast.errors import RowInvalid, RuleBroken, StoreBusy, StoreDown, StoreError
from holdfast.event import Events, JobSettled, JobStarted, LeaseWasLost, WorkerChanged
from holdfast.ids import IdSource
from holdfast.store import Store, WakeUp

# How much work may wait in this process: enough to hide a claim's round trip, little enough that a
# slow handler does not keep jobs from an idle worker.
PREFETCH_SECONDS = 0.25
KEEP_TICK_SECONDS = 0.25
CANCEL_LOOK_SECONDS = 1.0
CLOCK_LOOK_SECONDS = 60.0
# Sealing takes a share of the process; in small bites it never holds up the settling thread long.
SEAL_LIMIT = 2_000
PRUNE_LIMIT = 1_000
RESCUE_LIMIT = 500


@dataclass(slots=True)
class Held:
    """A claim in this process."""

    job: Claimed
    token: CancelToken
    claimed_at: float
    renewed_at: float
    plan: Plan | None = None
    started_at: float | None = None
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """What one pass did."""

    claimed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def settled(self) -> int:
        return sum(self.outcomes.values())


class Worker:
    """Runs the jobs of some queues in this process."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        settings: Settings,
        events: Events | None = None,
        queues: Sequence[str] = QUEUES,
        concurrency: int = 10,
        async_concurrency: int = 200,
        worker_id: str | None = None,
        rng: random.Random | None = None,
        drain_seconds: float = 30.0,
    ) -> None:
        self.store = store
        self.registry = registry
        self.settings = settings
        self.events = events or Events()
        self.queues = tuple(queues)
        self.concurrency = concurrency
        self.async_concurrency = async_concurrency
        # New with every start: a restarted process must never be taken for its former self.
        self.id = worker_id or IdSource(store.clock).new()
        self.rng = rng or random.Random()
        self.drain_seconds = drain_seconds
        self._actor = Actor(ActorType.SYSTEM, self.id)
        self._lease_ms = ms(settings.lease_seconds)
        self._patience = timedelta(seconds=settings.unknown_type_patience_seconds)

        self._held: dict[str, Held] = {}
        self._waiting: SimpleQueue[Held | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Held, Outcome] | None] = SimpleQueue()
        # Dicts, not counters: adding to a number from two threads can lose one.
        self._running: dict[str, Held] = {}
        self._on_loop: dict[str, Held] = {}
        self._mean_seconds = 0.05
        self._room = threading.Event()
        self._draining = threading.Event()
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._wake: WakeUp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        self._names = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock_checked_at = float("-inf")
        self._stuck = 0
        self.must_recycle = False
        self.outcomes: Counter[str] = Counter()

    # -- one pass, in the caller's thread: what tests, simulations and scripts use

    def run_once(self, limit: int = 100) -> Counts:
        """Claim up to *limit* jobs, run them one after the other, settle each. No thread, no wait."""
        claimed = self._claim(limit)
        outcomes: Counter[str] = Counter()
        for job in claimed:
            going: Claimed | None = job
            while going is not None:
                outcome = self._run_inline(going)
                (settled,) = self._settle([(going, outcome)])
                self._tell(settled, None)
                outcomes["lease_lost" if not settled.held else verb_of(outcome)] += 1
                going = settled.goes_on
        return Counts(len(claimed), outcomes)

    def _run_inline(self, job: Claimed) -> Outcome:
        planned = self._plan(job)
        if not isinstance(planned, Plan):
            return planned
        return execute(Context(job, self.store, CancelToken()), planned, self.rng)

    # -- the loop

    def run(self, *, until_idle: bool = False) -> Counts:
        """Work until :meth:`drain` is called; with *until_idle*, until nothing is due."""
        self._wake = self.store.wake_up(self.queues)
        self._change("started", ",".join(self.queues))
        self._start_threads()
        try:
            self._claim_until_told(until_idle)
        finally:
            self._finish()
            self._change("stopped")
        return Counts(sum(self.outcomes.values()), Counter(self.outcomes))

    def drain(self) -> None:
        """Claim nothing more, give back what has not begun, finish what has. Safe in a signal."""
        self._draining.set()
        self._room.set()
        if self._wake is not None:
            self._wake.poke()

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    @property
    def was_stopped(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Do not even wait for what runs: its lease will run out. Safe in a signal."""
        self._stopping.set()
        self.drain()

    def _claim_until_told(self, until_idle: bool) -> None:
        pause = 0.1
        while not self._draining.is_set():
            wanted = self._wanted()
            if wanted <= 0:
                # The executors say when there is room again; the timeout is for their timeouts.
                self._room.wait(0.5)
                self._room.clear()
                continue
            try:
                claimed = self._claim(wanted)
                pause = 0.1
            except (StoreDown, StoreBusy) as exc:
                self._change("store_down", str(exc))
                self.store.clock.wait(self._draining, pause)
                pause = min(pause * 2, 10.0)
                continue
            for job in claimed:
                self._take(job)
            if len(claimed) >= wanted:
                continue
            if until_idle and not claimed and not self._held:
                return
            assert self._wake is not None
            self._wake.wait(0.01 if until_idle else self.settings.poll_seconds)

    def _wanted(self) -> int:
        """How many jobs to claim now: the free hands, plus a little to hide the round trip."""
        ahead = int(self.concurrency * PREFETCH_SECONDS / max(self._mean_seconds, 1e-6))
        ahead = min(ahead, self.settings.claim_limit)
        waiting = self._waiting.qsize()
        if waiting > ahead // 2 and waiting > 0:
            return 0
        free = self.concurrency - len(self._running)
        if self._has_async:
            free += self.async_concurrency - len(self._on_loop)
        return min(max(0, free + ahead - waiting), self.settings.claim_limit)

    def _claim(self, wanted: int) -> list[Claimed]:
        found: list[Claimed] = []
        if self._clock_drifts():
            return found
        for queue in self.queues:
            left = wanted - len(found)
            if left <= 0:
                break
            found += claim_jobs(
                self.store, queue=queue, worker_id=self.id, limit=left, lease_ms=self._lease_ms
            )
        if self.events.subscribers:
            for job in found:
                self.events.emit(JobStarted(job.about, job.queue, job.attempt, self.id))
        return found

    def _clock_drifts(self) -> bool:
        """Whether this machine's clock is too far from the store's to work. Asked now and then."""
        clock = self.store.clock
        if clock.is_fake or time.monotonic() < self._clock_checked_at + CLOCK_LOOK_SECONDS:
            return False
        off = abs(read_clock(self.store) - clock.now())
        if off <= DRIFT:
            self._clock_checked_at = time.monotonic()
            return False
        self._change("clock_drift", f"{off.total_seconds():.0f} s from the store's clock")
        return True

    def _take(self, job: Claimed) -> None:
        now = time.monotonic()
        held = Held(job, CancelToken(), now, now)
        self._held[job.id] = held
        self._begin(held)

    def _begin(self, held: Held) -> None:
        """Hand a claim to whoever can run it."""
        planned = self._plan(held.job)
        if not isinstance(planned, Plan):
            self._done.put((held, planned))
            return
        held.plan = planned
        if planned.stage.is_async and self._loop is not None:
            self._on_loop[held.job.id] = held
            self._loop.call_soon_threadsafe(self._spawn, held)
        else:
            self._waiting.put(held)

    def _plan(self, job: Claimed) -> Plan | Outcome:
        if job.job_type in self.registry:
            return plan(job, self.registry, waited=timedelta(0), patience=self._patience)
        waited = self.store.clock.now() - read_instant(job.created_at)
        return plan(job, self.registry, waited=waited, patience=self._patience)

    # -- executing

    @property
    def _has_async(self) -> bool:
        return self._loop is not None

    def _start_threads(self) -> None:
        if any(stage.is_async for handler in self.registry for stage in handler.stages):
            self._loop = asyncio.new_event_loop()
            self._thread("loop", partial(_run_loop, self._loop))
        for _ in range(self.concurrency):
            self._thread("hand", self._execute_waiting)
        self._thread("settler", self._settle_done)
        self._thread("keeper", self._keep_claims)
        self._thread("upkeep", self._upkeep)

    def _thread(self, role: str, target: Callable[[], None]) -> None:
        name = f"holdfast-{role}-{next(self._names)}"
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        if role in ("settler", "keeper", "upkeep"):
            self._threads.append(thread)

    def _execute_waiting(self) -> None:
        while (held := self._waiting.get()) is not None:
            if self._draining.is_set():
                self._done.put((held, Released("drain")))
                continue
            assert held.plan is not None
            self._running[held.job.id] = held
            held.started_at = began = time.monotonic()
            outcome = execute(Context(held.job, self.store, held.token), held.plan, self.rng)
            self._observe(time.monotonic() - began)
            if held.abandoned:
                # The watch gave up on us and put another thread in our place.
                return
            self._running.pop(held.job.id, None)
            held.started_at = None
            self._done.put((held, outcome))

    def _observe(self, seconds: float) -> None:
        self._mean_seconds += 0.1 * (seconds - self._mean_seconds)
        if self._waiting.qsize() * 2 <= self.concurrency * PREFETCH_SECONDS / max(
            self._mean_seconds, 1e-6
        ):
            self._room.set()

    def _spawn(self, held: Held) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_async(held))
        # The loop keeps only a weak reference to a task.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_async(self, held: Held) -> None:
        assert held.plan is not None
        if self._draining.is_set():
            outcome: Outcome = Released("drain")
        else:
            held.started_at = time.monotonic()
            context = Context(held.job, self.store, held.token)
            outcome = await execute_async(context, held.plan, self.rng)
        held.started_at = None
        self._on_loop.pop(held.job.id, None)
        self._room.set()
        self._done.put((held, outcome))

    # -- settling

    def _settle_done(self) -> None:
        while True:
            first = self._done.get()
            if first is None:
                return
            group = [first]
            ending = False
            while len(group) < self.settings.settle_limit:
                try:
                    more = self._done.get_nowait()
                except Empty:
                    break
                if more is None:
                    ending = True
                    break
                group.append(more)
            self._settle_group(group)
            if ending:
                return

    def _settle_group(self, group: Sequence[tuple[Held, Outcome]]) -> None:
        pause = 0.1
        while True:
            try:
                settled = self._settle([(held.job, outcome) for held, outcome in group])
                break
            except (StoreDown, StoreBusy) as exc:
                # The work is done and must be recorded; after the lease's end the fence decides.
                self._change("store_down", str(exc))
                if self._stopping.is_set():
                    return
                time.sleep(pause)
                pause = min(pause * 2, 10.0)
        for (held, _), result in zip(group, settled, strict=True):
            self.outcomes["lease_lost" if not result.held else verb_of(result.outcome)] += 1
            self._tell(result, held)
            going = result.goes_on
            if going is not None:
                held.job = going
                self._begin(held)
            else:
                self._held.pop(held.job.id, None)

    def _settle(self, group: Sequence[tuple[Claimed, Outcome]]) -> list[Settled]:
        """Settle a group; an outcome that the database refuses is isolated and buried as such."""
        try:
            return settle(self.store, group, actor=self._actor)
        except (StoreDown, StoreBusy):
            raise
        except StoreError as exc:
            if len(group) > 1:
                half = len(group) // 2
                return self._settle(group[:half]) + self._settle(group[half:])
            job, outcome = group[0]
            fault = fault_of(
                RowInvalid(refused=verb_of(outcome)), stage=job.stage, attempt=job.attempt
            )
            self._change("settle_refused", f"job {job.id}: {type(exc).__name__}")
            try:
                return settle(self.store, [(job, Dead(fault))], actor=self._actor)
            except RuleBroken as broken:
                return [bury_broken(self.store, job, rule=broken.rule, actor=self._actor)]

    def _tell(self, settled: Settled, held: Held | None) -> None:
        if not self.events.subscribers:
            return
        job, outcome = settled.job, settled.outcome
        if not settled.held:
            self.events.emit(LeaseWasLost(job.about, job.queue, self.id))
            return
        fault = outcome.fault if isinstance(outcome, (Retry, Dead)) else None
        self.events.emit(
            JobSettled(
                job.about,
                job.queue,
                job.attempt,
                verb_of(outcome),
                job.stage,
                fault.error_class if fault else None,
                time.monotonic() - held.claimed_at if held else None,
                bool(fault and fault.pages_operator and isinstance(outcome, Dead)),
            )
        )

    # -- keeping claims alive, watching the clock, housekeeping

    def _keep_claims(self) -> None:
        next_look = time.monotonic() + CANCEL_LOOK_SECONDS
        tick = min(KEEP_TICK_SECONDS, self.settings.lease_seconds / 6)
        while not self._idle.wait(tick):
            now = time.monotonic()
            self._abandon_overdue(now)
            self._renew_due(now)
            if now >= next_look:
                next_look = now + CANCEL_LOOK_SECONDS
                self._look_for_cancels(now)

    def _abandon_overdue(self, now: float) -> None:
        """A thread cannot be stopped; its job can be taken away from it."""
        for held in list(self._held.values()):
            if held.plan is None or held.plan.stage.timeout is None or held.plan.stage.is_async:
                continue
            limit = held.plan.stage.timeout.total_seconds()
            if held.started_at is None or held.abandoned or now - held.started_at <= limit:
                continue
            held.abandoned = True
            held.token.set()
            self._running.pop(held.job.id, None)
            self._thread("hand", self._execute_waiting)
            self._done.put((replace_held(held), timed_out(held.job, held.plan.stage, self.rng)))
            self._stuck += 1
            if self._stuck >= self.concurrency:
                # Too many threads are lost to handlers that never return: start anew.
                self.must_recycle = True
                self._change("recycling", f"{self._stuck} handlers ignore their timeout")
                self.drain()

    def _renew_due(self, now: float) -> None:
        lease = self.settings.lease_seconds
        due = [held for held in list(self._held.values()) if now - held.renewed_at >= lease / 3]
        if not due:
            return
        try:
            renewed = renew_leases(self.store, [held.job for held in due], lease_ms=self._lease_ms)
        except StoreError:
            # Effects must stop before the lease does: somebody else may own the job after that.
            for held in due:
                if now - held.renewed_at >= lease * 0.9:
                    held.token.set(lease_lost=True)
            return
        for held in due:
            if held.job.id in renewed.held:
                held.renewed_at = now
                if held.job.id in renewed.cancel_requested:
                    held.token.set()
            else:
                held.token.set(lease_lost=True)

    def _look_for_cancels(self, now: float) -> None:
        long = [
            held
            for held in list(self._held.values())
            if held.started_at is not None and now - held.started_at >= CANCEL_LOOK_SECONDS
        ]
        if not long:
            return
        try:
            wanted = find_canceled(self.store, [held.job for held in long])
        except StoreError:
            return
        for held in long:
            if held.job.id in wanted:
                held.token.set()

    def _upkeep(self) -> None:
        """Rescue, seal and prune now and then. Every worker does, at its own moments."""
        every = self.settings.rescue_seconds
        while not self._idle.wait(every * self.rng.uniform(0.5, 1.0)):
            try:
                run_upkeep(self.store, self.settings, self.events)
            except StoreError as exc:
                self._change("upkeep_failed", str(exc))

    def _finish(self) -> None:
        """Give back what waits, let what runs finish, settle all of it, then leave."""
        self._draining.set()
        self._change("draining")
        deadline = time.monotonic() + self.drain_seconds
        self._return_waiting()
        while self._held and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(0.005)
            self._return_waiting()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_tasks)
            give_up = time.monotonic() + 2.0
            while self._on_loop and time.monotonic() < give_up:
                time.sleep(0.005)
        for _ in range(self.concurrency):
            self._waiting.put(None)
        self._done.put(None)
        self._idle.set()
        for thread in self._threads:
            thread.join(timeout=5.0)
        # After the settler, who may still hand a next stage to the loop.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._wake is not None:
            self._wake.close()
            self._wake = None

    def _return_waiting(self) -> None:
        while True:
            try:
                held = self._waiting.get_nowait()
            except Empty:
                return
            if held is not None:
                self._done.put((held, Released("drain")))

    def _cancel_tasks(self) -> None:
        assert self._loop is not None
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _change(self, change: str, detail: str = "") -> None:
        self.events.emit(WorkerChanged(self.id, change, detail))


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def replace_held(held: Held) -> Held:
    """The same claim for the settler, apart from the one its stuck thread still looks at."""
    return Held(held.job, held.token, held.claimed_at, held.renewed_at, held.plan)


def run_upkeep(store: Store, settings: Settings, events: Events) -> Counts:
    """One bounded pass of everything that keeps a store healthy."""
    outcomes: Counter[str] = Counter()
    for settled in upkeep.rescue_jobs(store, limit=RESCUE_LIMIT):
        outcomes["rescued"] += 1
        fault = settled.outcome.fault if isinstance(settled.outcome, (Retry, Dead)) else None
        job = settled.job
        events.emit(
            JobSettled(
                job.about,
                job.queue,
                job.attempt,
                verb_of(settled.outcome),
                job.stage,
                fault.error_class if fault else None,
                None,
                bool(fault and fault.pages_operator),
            )
        )
    sealed = seal_events(store, limit=SEAL_LIMIT, key=settings.audit_key)
    outcomes["sealed"] = sealed.events
    for head in sealed.seals:
        events.emit(head)
    keep = timedelta(days=settings.prune_after_days)
    outcomes["pruned"] = upkeep.prune_jobs(store, keep=keep, limit=PRUNE_LIMIT)
    return Counts(0, outcomes)
