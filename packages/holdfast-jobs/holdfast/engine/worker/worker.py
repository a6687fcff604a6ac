"""The worker: claims, executes and settles jobs until it is drained.

This thread claims. The executor pool runs handlers (executor_pool.py), the settle buffer writes
outcomes (settle_buffer.py), the lease renewer renews leases (lease_renewer.py), and housekeeping
threads run maintenance (maintenance.py).
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue

from holdfast.clock import ms
from holdfast.config import Settings
from holdfast.engine.batch_call import execute_batch
from holdfast.engine.batch_options import group_claims
from holdfast.engine.completion import Ended
from holdfast.engine.context import CancelToken, Context, FindExtension, no_extension
from holdfast.engine.execute import Execution, execute, name_stage, resolve
from holdfast.engine.handler import Registry
from holdfast.engine.job import (
    QUEUES,
    Actor,
    ActorType,
    Advanced,
    Claimed,
    ClaimId,
    Released,
)
from holdfast.engine.lease import read_clock
from holdfast.engine.maintenance import run_maintenance as run_maintenance
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.request import DRIFT
from holdfast.engine.retention import check_retention
from holdfast.engine.settle import VERBS, Settled
from holdfast.engine.tracing import Tracing
from holdfast.engine.worker.executor_pool import DRAINED, ExecutorPool, InFlight
from holdfast.engine.worker.fetcher import FairFetcher, Fetcher
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.engine.worker.housekeeping import Chore, Housekeeping, chores_of
from holdfast.engine.worker.isolation import IsolationHost
from holdfast.engine.worker.lease_renewer import LeaseRenewer
from holdfast.engine.worker.recycling import Recycling
from holdfast.engine.worker.settle_buffer import SettleBuffer, group_events
from holdfast.engine.worker.watchdog import Watchdog
from holdfast.errors import StoreBusy, StoreDown, StoreError
from holdfast.event import Events, JobEvents, WorkerChanged
from holdfast.ids import IdSource
from holdfast.store import Store, WakeUp
from holdfast.store.store import AWAITING, ENDED

CLOCK_LOOK_SECONDS = 60.0
# Extra claims after a notification, so that new jobs are claimed before a thread becomes free.
LATECOMERS = 4
# The threads that use the store: claim, settle, renew, heartbeat.
OWN_THREADS = 4
STALL_SECONDS = 30.0


class Worker:
    """Executes the jobs of some queues in this process."""

    _clock_checked_at = float("-inf")

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
        find_extension: FindExtension = no_extension,
        tracing: Tracing | None = None,
        fetcher: Fetcher | None = None,
        reopen: Callable[[], Store] | None = None,
        max_jobs: int | None = None,
        max_memory_bytes: int | None = None,
    ) -> None:
        check_retention(settings.retention, registry.categories.values())
        self.store = store
        self.registry = registry
        self.settings = settings
        self.events = events or Events()
        self.queues = tuple(queues)
        # New with every start: a restarted process must not be mistaken for the earlier one.
        self.id = worker_id or IdSource(store.clock).new()
        self.rng = rng or random.Random()
        self.drain_seconds = drain_seconds
        self.find_extension = find_extension
        self.tracing = tracing
        self.must_recycle = self.is_draining = self.stop_requested = False
        # Why the worker does not claim jobs; None if it does.
        self._unready: str | None = "starting"
        self._recycling = Recycling(max_jobs, max_memory_bytes)
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.outcomes: Counter[str] = Counter()
        self._actor = Actor(ActorType.SYSTEM, self.id)
        self._patience = timedelta(seconds=settings.unknown_type_patience_seconds)
        self._fetcher = fetcher or FairFetcher(
            store,
            queues=self.queues,
            worker_id=self.id,
            lease_ms=ms(settings.lease_seconds),
            events=self.events,
        )
        self._isolation = IsolationHost(registry, reopen, find_extension, patience=self._patience)
        self._in_flight: dict[ClaimId, InFlight] = {}
        self._draining = threading.Event()
        self._stopping = threading.Event()
        self._wake: WakeUp | None = None
        # Renewal that stalls for two leases is a failure.
        self._watchdog = Watchdog(
            stall_seconds=max(STALL_SECONDS, 2 * settings.lease_seconds),
            failed=self._break,
            within=store.use_reserved,
        )
        self._build_parts(concurrency, async_concurrency)

    def _build_parts(self, concurrency: int, async_concurrency: int) -> None:
        """Create the parts that run in threads of their own."""
        store, settings = self.store, self.settings
        self._settle_buffer = SettleBuffer(
            store,
            actor=self._actor,
            limit=settings.settle_limit,
            more_soon=lambda: self._executor_pool.has_quick_work,
            settled=self._on_settled,
            changed=self._change,
            stores=self.registry.stores_of,
            guard=self._watchdog.guard,
        )
        self._executor_pool = ExecutorPool(
            store,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
            rng=self.rng,
            finished=self._settle_buffer.put,
            has_capacity=self._poke,
            find_extension=self.find_extension,
            tracing=self.tracing,
            guard=self._watchdog.guard_loop,
            guard_executor=self._watchdog.guard_executor,
            isolation=self._isolation,
        )
        self._lease_renewer = LeaseRenewer(
            store,
            self._executor_pool,
            self._in_flight,
            settings=settings,
            rng=self.rng,
            recycle=lambda stuck: self._recycle(f"{stuck} handlers ignore their timeout"),
            guard=self._watchdog.guard,
        )
        self._heartbeat = Heartbeat(
            store,
            self._in_flight,
            self.id,
            self.queues,
            self.registry.handlers,
            lease_ms=ms(settings.lease_seconds),
            backlog=self._settle_buffer.backlog,
            changed=self._change,
            guard=self._watchdog.guard,
        )
        self._watchdog.watch("the renewal of leases", lambda: self._lease_renewer.progress_at)
        self._watchdog.watch("the recording of outcomes", self._settle_buffer.progress_at)

    # -- one pass in the caller's thread, for tests, simulations and scripts

    def run_once(self, limit: int = 100) -> PassCounts:
        """Claim up to *limit* jobs, execute and settle them one by one. Starts no thread."""
        claimed = self._claim(limit)
        outcomes: Counter[str] = Counter()
        for jobs in group_claims(claimed, self.registry):
            going: list[Claimed] = jobs
            while going:
                began = self.store.clock.monotonic()
                ended = self._run_inline(going)
                seconds = self.store.clock.monotonic() - began
                done = self._settle_buffer.settle(list(zip(going, ended, strict=True)))
                for settled in done:
                    self._emit([(settled, seconds)])
                    outcomes[_outcome_name(settled)] += 1
                going = [settled.next_claim for settled in done if settled.next_claim is not None]
        self._isolation.close()
        return PassCounts(Counter(claimed=len(claimed)), outcomes)

    def _run_inline(self, jobs: Sequence[Claimed]) -> list[Ended]:
        """Execute a job, or several jobs that one call of their handler takes."""
        ended: dict[ClaimId, Ended] = {}
        contexts, executions = [], []
        for job in jobs:
            planned = resolve(job, self.registry, self.store.clock, patience=self._patience)
            if not isinstance(planned, Execution):
                ended[job.claim_id] = planned
                continue
            context = Context(job, self.store, CancelToken(), find_extension=self.find_extension)
            contexts.append(context)
            executions.append(planned)
        if executions and executions[0].stage.batch is not None:
            done = execute_batch(contexts, executions, self.rng, self.tracing)
            ended |= zip((context.job.claim_id for context in contexts), done, strict=True)
        else:
            for context, planned in zip(contexts, executions, strict=True):
                run = self._isolation.execute if planned.stage.is_isolated else execute
                ended[context.job.claim_id] = run(context, planned, self.rng, self.tracing)
        return [ended[job.claim_id] for job in jobs]

    # -- the loop

    def run(self, *, until_idle: bool = False) -> PassCounts:
        """Work until :meth:`drain` is called; with *until_idle*, until no job is due.

        It also returns if a thread of the worker died: then ``must_recycle`` is set and ``failure``
        says why. Start a new process.
        """
        stages = (stage for handler in self.registry for stage in handler.stages)
        with_loop = any(stage.is_async for stage in stages)
        if self._isolation.is_needed and self.store.is_shareable:
            self._isolation.start()
        chores = [*chores_of(self.store, self.settings, self.events), *self.registry.chores]
        sized = self.store.sized_for(
            handlers=self._executor_pool.connections(with_loop=with_loop),
            threads=OWN_THREADS + len(chores),
        )
        with sized, self.store.use_reserved():
            return self._run(chores, with_loop=with_loop, until_idle=until_idle)

    def _run(self, chores: Sequence[Chore], *, with_loop: bool, until_idle: bool) -> PassCounts:
        self._wake = self.store.wake_up((*self.queues, AWAITING))
        self._change("started", ",".join(self.queues))
        self._executor_pool.start(with_loop=with_loop)
        self._settle_buffer.start()
        self._lease_renewer.start()
        housekeeping = Housekeeping(
            self.store, chores, rng=self.rng, changed=self._change, guard=self._watchdog.guard
        )
        housekeeping.start()
        follow = self._watchdog.guard(self._follow_orders)
        threading.Thread(target=follow, name="holdfast-orders", daemon=True).start()
        try:
            self._claim_until_told(until_idle)
        finally:
            self._finish(housekeeping)
            # If this cannot be written, the next worker starts from the same position.
            with suppress(StoreError):
                self._fetcher.close()
            housekeeping.join()
            self._change("stopped")
        settled = sum(self.outcomes.values())
        return PassCounts(Counter(claimed=settled), Counter(self.outcomes))

    @property
    def failure(self) -> str | None:
        """The thread of this worker that died or stalled, if any."""
        return self._watchdog.failure

    @property
    def unready(self) -> str | None:
        """Why the worker claims no jobs: starting, draining or store_down; None if it does."""
        return "draining" if self.is_draining else self._unready

    def drain(self, outcome: Released = DRAINED) -> None:
        """Claim nothing more, release jobs that have not started, finish the others.

        *outcome* is the outcome of the released jobs. Safe in a signal handler.
        """
        self._executor_pool.unreached = outcome
        self.is_draining = self._executor_pool.closing = True
        self._orders.put(self._drain)

    def stop(self) -> None:
        """Do not wait for running jobs: their leases expire. Safe in a signal handler."""
        self.is_draining = self._executor_pool.closing = self.stop_requested = True
        self._orders.put(self._stop)

    def _follow_orders(self) -> None:
        """Carry out drain and stop in a separate thread.

        A signal handler interrupts the main thread, which may hold the lock of the event that
        the handler wants to set. Putting into a SimpleQueue takes no lock.
        """
        while (order := self._orders.get()) is not None:
            order()

    def _drain(self) -> None:
        self._draining.set()
        self._heartbeat.drain()
        self._poke()

    def _stop(self) -> None:
        self._stopping.set()
        self._settle_buffer.stopping.set()
        self._drain()

    def _claim_until_told(self, until_idle: bool) -> None:
        pause = 0.1
        while not self.is_draining and not self._fetcher.is_over:
            self._watchdog.check()
            reason = self._recycling.reason(sum(self.outcomes.values()))
            if reason is not None:
                self._recycle(reason)
                return
            wanted = self._wait_for_capacity()
            if wanted <= 0:
                continue
            began = time.monotonic()
            # Read before the claim, which then polls again: a job that ends meanwhile may have
            # enqueued jobs that an earlier poll did not see.
            is_idle = until_idle and not self._in_flight
            if is_idle:
                self._fetcher.hear()
            try:
                claimed = self._claim(wanted)
                self._watchdog.note_answer()
                self._unready = None
                self._heartbeat.start()
                pause = 0.1
            except (StoreDown, StoreBusy) as exc:
                self._unready = "store_down"
                self._change("store_down", str(exc))
                self.store.clock.wait(self._draining, pause)
                pause = min(pause * 2, 10.0)
                continue
            if claimed:
                self._executor_pool.observe_claim(time.monotonic() - began)
            self._take(claimed)
            if claimed:
                continue
            if is_idle:
                return
            assert self._wake is not None
            is_awake = self._wake.wait(0.01 if until_idle else self.settings.poll_seconds)
            # An embedded database also wakes it for its own writes.
            if is_awake and not self.store.is_embedded:
                self._fetcher.hear()

    def _wait_for_capacity(self) -> int:
        """How many claims the executor pool can use, now or after one of its threads is free."""
        assert self._wake is not None
        # Set before reading, or a thread that becomes free in between would not wake this one.
        self._executor_pool.wants_capacity = True
        wanted = self._executor_pool.free_slots(self.settings.claim_limit)
        # The timeout is for threads that are stuck.
        if self._wake.pause(0.0 if wanted else 0.5):
            self._fetcher.hear()
            wanted = self._executor_pool.free_slots(
                self.settings.claim_limit, latecomers=LATECOMERS
            )
        self._executor_pool.wants_capacity = False
        return wanted

    def _poke(self) -> None:
        # Read once: the worker may end meanwhile.
        wake = self._wake
        if wake is not None:
            wake.poke()

    def _claim(self, wanted: int) -> list[Claimed]:
        if self._clock_drifts():
            return []
        found = [
            job if job.stage else name_stage(job, self.registry)
            for job in self._fetcher.take(wanted)
        ]
        for settled in self._fetcher.take_dead_lettered():
            self._emit([(settled, None)])
        if self.events.subscribers:
            self.events.emit_all(JobEvents(started=found, worker_id=self.id))
        return found

    def _clock_drifts(self) -> bool:
        """Whether this machine's clock is too far from the store's. Checked once a minute."""
        clock = self.store.clock
        if clock.is_fake or time.monotonic() < self._clock_checked_at + CLOCK_LOOK_SECONDS:
            return False
        off = abs(read_clock(self.store) - clock.now())
        if off <= DRIFT:
            self._clock_checked_at = time.monotonic()
            return False
        self._change("clock_drift", f"{off.total_seconds():.0f} s from the store's clock")
        return True

    def _take(self, claimed: Sequence[Claimed]) -> None:
        now = time.monotonic()
        taken = {job.claim_id: InFlight(job, CancelToken(), now, now) for job in claimed}
        self._in_flight |= taken
        self._begin(taken.values())

    def _begin(self, taken: Iterable[InFlight]) -> None:
        """Hand claims to the executor pool, or settle those that cannot run."""
        planned = []
        registry, clock, patience = self.registry, self.store.clock, self._patience
        for claim in taken:
            found = resolve(claim.job, registry, clock, patience=patience)
            if isinstance(found, Execution):
                claim.execution = found
                planned.append(claim)
            else:
                self._settle_buffer.put(claim, found)
        self._executor_pool.take(planned)

    def _on_settled(self, group: Sequence[tuple[InFlight, Settled]]) -> None:
        self._heartbeat.observe([claim for claim, _ in group])
        if self.events.subscribers:
            self._emit((settled, claim.ran_seconds) for claim, settled in group)
        ended = set[str]()
        for claim, settled in group:
            self.outcomes[_outcome_name(settled)] += 1
            going = settled.next_claim if type(settled.outcome) is Advanced else None
            if going is not None:
                claim.job, claim.ran_seconds = going, None
                self._begin([claim])
                continue
            self._in_flight.pop(claim.job.claim_id, None)
            ended.add(claim.job.queue)
        limited = [queue for queue in sorted(ended) if self._fetcher.is_limited(queue)]
        if limited:
            # Another worker can claim the next job under these limits.
            self.store.announce(limited)
            self._poke()
        wake = self._wake
        if wake is not None and wake.awaited_until > time.monotonic():
            self.store.announce([ENDED])

    def _emit(self, group: Iterable[tuple[Settled, float | None]]) -> None:
        """Emit the events of settled claims, each with how long its stage ran."""
        self.events.emit_all(group_events(group, self.id))

    def _break(self, reason: str) -> None:
        """A thread died or stalled: drain, so that the supervisor restarts the worker."""
        self.must_recycle = True
        self._change("thread_died", reason)
        if self._watchdog.is_stalled:
            self.stop()
        else:
            self.drain()
        # The thread that follows orders may be the one that died.
        self._poke()

    def _recycle(self, reason: str) -> None:
        """Drain, so that the supervisor restarts the worker."""
        self.must_recycle = True
        self._change("recycling", reason)
        self.drain()

    def _finish(self, housekeeping: Housekeeping) -> None:
        """Release waiting jobs, wait for running ones, settle all of them, then stop."""
        self.is_draining = self._executor_pool.closing = True
        self._drain()
        self._change("draining")
        self._watchdog.close()
        patience = self.drain_seconds
        if self.failure is not None:
            # The leases may not be renewed any more.
            patience = min(patience, self.settings.lease_seconds / 3)
        deadline = time.monotonic() + patience
        self._executor_pool.release_waiting()
        while self._in_flight and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(0.005)
            self._executor_pool.release_waiting()
            if not self._settle_buffer.is_alive and not self._settle_buffer.settle_left():
                break
        # A loop that died is closed already.
        with suppress(RuntimeError):
            self._executor_pool.cancel_tasks(patience=2.0)
        housekeeping.end()
        self._lease_renewer.close()
        self._settle_buffer.close()
        self._heartbeat.close()
        # After the settle buffer, which may still start a next stage on the loop.
        with suppress(RuntimeError):
            self._executor_pool.close()
        self._isolation.close()
        self._orders.put(None)
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.close()

    def _change(self, change: str, detail: str = "") -> None:
        self.events.emit(WorkerChanged(self.id, change, detail))


def _outcome_name(settled: Settled) -> str:
    return VERBS[type(settled.outcome)] if settled.lease_held else "lease_lost"
