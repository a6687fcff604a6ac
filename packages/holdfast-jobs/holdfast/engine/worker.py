"""The worker: claim → execute → settle, in a loop, until told to stop.

This thread claims. Its hands run the handlers (hands.py), its settler writes the outcomes
(settler.py), its keeper looks after the leases (keeper.py), and now and then it does the upkeep
that anybody may do (upkeep.py).
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue

from holdfast.clock import ms, read_instant
from holdfast.config import Settings
from holdfast.engine.claim import read_clock
from holdfast.engine.completion import Ended
from holdfast.engine.context import CancelToken, Context, FindExtension, no_extension
from holdfast.engine.counts import Counts as Counts
from holdfast.engine.execute import Plan, execute, name_stage, plan
from holdfast.engine.fetcher import FairFetcher, Fetcher
from holdfast.engine.handler import Registry
from holdfast.engine.hands import DRAINED, Hands, Held
from holdfast.engine.housekeeping import Chore, Housekeeping, chores_of
from holdfast.engine.job import QUEUES, Actor, ActorType, Claimed, ClaimId, Outcome, Released
from holdfast.engine.keeper import Keeper
from holdfast.engine.presence import Presence
from holdfast.engine.request import DRIFT
from holdfast.engine.retention import check_retention
from holdfast.engine.settle import Settled, verb_of
from holdfast.engine.settler import Settler, events_of
from holdfast.engine.tracing import Tracing
from holdfast.engine.upkeep import run_upkeep as run_upkeep
from holdfast.engine.watchdog import Watchdog
from holdfast.errors import StoreBusy, StoreDown, StoreError
from holdfast.event import Events, JobStarted, LeaseWasLost, WorkerChanged
from holdfast.ids import IdSource
from holdfast.store import Store, WakeUp

CLOCK_LOOK_SECONDS = 60.0
# How many claims fit in beyond the others when something was announced: whoever is new has the next
# turn in here, too, and would else wait until the hands ask for more.
LATECOMERS = 4
# Those that use the store: claim, settle, renew, heartbeat.
OWN_THREADS = 4
STALL_SECONDS = 30.0


class Worker:
    """Runs the jobs of some queues in this process."""

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
    ) -> None:
        check_retention(settings.retention, registry.categories.values())
        self.store = store
        self.registry = registry
        self.settings = settings
        self.events = events or Events()
        self.queues = tuple(queues)
        # New with every start: a restarted process must never be taken for its former self.
        self.id = worker_id or IdSource(store.clock).new()
        self.rng = rng or random.Random()
        self.drain_seconds = drain_seconds
        self.find_extension = find_extension
        self.tracing = tracing
        self.must_recycle = self.is_draining = self.stop_requested = False
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.outcomes: Counter[str] = Counter()
        self._actor = Actor(ActorType.SYSTEM, self.id)
        self._patience = timedelta(seconds=settings.unknown_type_patience_seconds)
        self._fetcher = fetcher or FairFetcher(
            store, queues=self.queues, worker_id=self.id, lease_ms=ms(settings.lease_seconds)
        )
        self._held: dict[ClaimId, Held] = {}
        self._draining = threading.Event()
        self._stopping = threading.Event()
        self._wake: WakeUp | None = None
        self._wants_room = False
        # A renewal that stands still for two leases is of no use to anybody.
        self._watchdog = Watchdog(
            stall_seconds=max(STALL_SECONDS, 2 * settings.lease_seconds),
            failed=self._break,
            within=store.use_reserved,
        )
        self._employ(concurrency, async_concurrency)

    def _employ(self, concurrency: int, async_concurrency: int) -> None:
        """Make those who work beside this thread."""
        store, settings = self.store, self.settings
        self._settler = Settler(
            store,
            actor=self._actor,
            limit=settings.settle_limit,
            more_soon=lambda: self._hands.has_quick_work,
            settled=self._on_settled,
            changed=self._change,
            stores=self.registry.stores_of,
            guard=self._watchdog.guard,
        )
        self._hands = Hands(
            store,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
            rng=self.rng,
            finished=self._settler.put,
            has_room=self._has_room,
            find_extension=self.find_extension,
            tracing=self.tracing,
            guard=self._watchdog.guard_loop,
            guard_hand=self._watchdog.guard_hand,
        )
        self._keeper = Keeper(
            store,
            self._hands,
            self._held,
            settings=settings,
            rng=self.rng,
            recycle=self._recycle,
            guard=self._watchdog.guard,
        )
        self._presence = Presence(
            store,
            self._held,
            self.id,
            self.queues,
            self.registry.handlers,
            lease_ms=ms(settings.lease_seconds),
            backlog=self._settler.backlog,
            changed=self._change,
            guard=self._watchdog.guard,
        )
        self._watchdog.watch("the renewal of leases", lambda: self._keeper.progress_at)
        self._watchdog.watch("the recording of outcomes", self._settler.progress_at)

    # -- one pass, in the caller's thread: what tests, simulations and scripts use

    def run_once(self, limit: int = 100) -> Counts:
        """Claim up to *limit* jobs, run one after the other, settle each. No thread, no wait."""
        claimed = self._claim(limit)
        outcomes: Counter[str] = Counter()
        for job in claimed:
            going: Claimed | None = job
            while going is not None:
                began = self.store.clock.monotonic()
                ended = self._run_inline(going)
                seconds = self.store.clock.monotonic() - began
                (settled,) = self._settler.settle([(going, ended)])
                self._tell(settled, seconds)
                outcomes[_word(settled)] += 1
                going = settled.next_claim
        return Counts(len(claimed), outcomes)

    def _run_inline(self, job: Claimed) -> Ended:
        planned = self._plan(job)
        if not isinstance(planned, Plan):
            return planned
        context = Context(job, self.store, CancelToken(), find_extension=self.find_extension)
        return execute(context, planned, self.rng, self.tracing)

    # -- the loop

    def run(self, *, until_idle: bool = False) -> Counts:
        """Work until :meth:`drain` is called; with *until_idle*, until nothing is due.

        A worker of which a thread died ends, too: then ``must_recycle`` is set, and ``failure``
        says what happened. Start another process.
        """
        stages = (stage for handler in self.registry for stage in handler.stages)
        with_loop = any(stage.is_async for stage in stages)
        chores = [*chores_of(self.store, self.settings, self.events), *self.registry.chores]
        room = self.store.sized_for(
            handlers=self._hands.connections(with_loop=with_loop),
            threads=OWN_THREADS + len(chores),
        )
        with room, self.store.use_reserved():
            return self._run(chores, with_loop=with_loop, until_idle=until_idle)

    def _run(self, chores: Sequence[Chore], *, with_loop: bool, until_idle: bool) -> Counts:
        self._wake = self.store.wake_up(self.queues)
        self._change("started", ",".join(self.queues))
        self._hands.start(with_loop=with_loop)
        self._settler.start()
        self._keeper.start()
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
            # Where this cannot be written, the next one begins where this one did.
            with suppress(StoreError):
                self._fetcher.close()
            housekeeping.join()
            self._change("stopped")
        return Counts(sum(self.outcomes.values()), Counter(self.outcomes))

    @property
    def failure(self) -> str | None:
        """Which thread of this worker died or stands still, if one did."""
        return self._watchdog.failure

    def drain(self, because: Released = DRAINED) -> None:
        """Claim nothing more, give back what has not begun, finish what has. Safe in a signal."""
        self._hands.unreached = because
        self.is_draining = self._hands.closing = True
        self._orders.put(self._drain)

    def stop(self) -> None:
        """Do not even wait for what runs: its lease will run out. Safe in a signal."""
        self.is_draining = self._hands.closing = self.stop_requested = True
        self._orders.put(self._stop)

    def _follow_orders(self) -> None:
        """Carry out drain and stop in a thread of their own.

        A signal handler runs in the middle of whatever the main thread does, and that may hold the
        lock of the very event the handler wants to set. Putting into a SimpleQueue takes no lock.
        """
        while (order := self._orders.get()) is not None:
            order()

    def _drain(self) -> None:
        self._draining.set()
        self._presence.drain()
        self._poke()

    def _stop(self) -> None:
        self._stopping.set()
        self._settler.stopping.set()
        self._drain()

    def _claim_until_told(self, until_idle: bool) -> None:
        pause = 0.1
        while not self.is_draining and not self._fetcher.is_over:
            self._watchdog.check()
            wanted = self._wait_for_room()
            if wanted <= 0:
                continue
            began = time.monotonic()
            # Read before the claim, which then looks anew: what ends meanwhile may have enqueued
            # what neither an earlier look nor this claim has seen.
            is_idle = until_idle and not self._held
            if is_idle:
                self._fetcher.hear()
            try:
                claimed = self._claim(wanted)
                self._watchdog.note_answer()
                self._presence.start()
                pause = 0.1
            except (StoreDown, StoreBusy) as exc:
                self._change("store_down", str(exc))
                self.store.clock.wait(self._draining, pause)
                pause = min(pause * 2, 10.0)
                continue
            if claimed:
                self._hands.observe_claim(time.monotonic() - began)
            self._take(claimed)
            if claimed:
                continue
            if is_idle:
                return
            assert self._wake is not None
            self._wake.wait(0.01 if until_idle else self.settings.poll_seconds)

    def _wait_for_room(self) -> int:
        """How many claims the hands can use, now or when one of them has said so."""
        assert self._wake is not None
        # Said before asking, or a hand that is free a moment later would tell nobody.
        self._wants_room = True
        wanted = self._hands.wanted(self.settings.claim_limit)
        # The timeout is for hands that are stuck.
        if self._wake.pause(0.0 if wanted else 0.5):
            self._fetcher.hear()
            wanted = self._hands.wanted(self.settings.claim_limit, latecomers=LATECOMERS)
        self._wants_room = False
        return wanted

    def _has_room(self) -> None:
        if self._wants_room:
            self._wants_room = False
            self._poke()

    def _poke(self) -> None:
        # Read once: the worker may end meanwhile.
        wake = self._wake
        if wake is not None:
            wake.poke()

    def _claim(self, wanted: int) -> list[Claimed]:
        if self._clock_drifts():
            return []
        found = [name_stage(job, self.registry) for job in self._fetcher.take(wanted)]
        for settled in self._fetcher.take_dead_lettered():
            self._tell(settled, None)
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

    def _take(self, claimed: Sequence[Claimed]) -> None:
        now = time.monotonic()
        taken = [Held(job, CancelToken(), now, now) for job in claimed]
        for held in taken:
            self._held[held.claim_id] = held
        self._begin(taken)

    def _begin(self, taken: Sequence[Held]) -> None:
        """Hand claims to whoever can run them."""
        planned = []
        for held in taken:
            found = self._plan(held.job)
            if isinstance(found, Plan):
                held.plan = found
                planned.append(held)
            else:
                self._settler.put(held, found)
        self._hands.take(planned)

    def _plan(self, job: Claimed) -> Plan | Outcome:
        waited = timedelta(0)
        if job.job_type not in self.registry:
            waited = self.store.clock.now() - read_instant(job.created_at)
        return plan(job, self.registry, waited=waited, patience=self._patience)

    def _on_settled(self, held: Held, settled: Settled) -> None:
        self.outcomes[_word(settled)] += 1
        self._presence.saw(held)
        self._tell(settled, held.ran_seconds)
        going = settled.next_claim
        if going is None:
            self._held.pop(held.claim_id, None)
            self._free(held.job.queue)
        else:
            held.job, held.ran_seconds = going, None
            self._begin([held])

    def _free(self, queue: str) -> None:
        """A job under a limit has ended: somebody may claim the next, here or elsewhere."""
        if isinstance(self._fetcher, FairFetcher) and self._fetcher.is_limited(queue):
            self.store.announce([queue])
            self._poke()

    def _tell(self, settled: Settled, seconds: float | None) -> None:
        if not self.events.subscribers:
            return
        if settled.held:
            for event in events_of(settled, seconds):
                self.events.emit(event)
        else:
            self.events.emit(LeaseWasLost(settled.job.about, settled.job.queue, self.id))

    def _break(self, reason: str) -> None:
        """A thread died or stands still: claim nothing more, and start anew."""
        self.must_recycle = True
        self._change("thread_died", reason)
        if self._watchdog.is_stalled:
            self.stop()
        else:
            self.drain()
        # The thread that follows orders may be the one that died.
        self._poke()

    def _recycle(self, stuck: int) -> None:
        """Too many threads are lost to handlers that never return: start anew."""
        self.must_recycle = True
        self._change("recycling", f"{stuck} handlers ignore their timeout")
        self.drain()

    def _finish(self, housekeeping: Housekeeping) -> None:
        """Give back what waits, let what runs finish, settle all of it, then leave."""
        self.is_draining = self._hands.closing = True
        self._drain()
        self._change("draining")
        self._watchdog.close()
        patience = self.drain_seconds
        if self.failure is not None:
            # Perhaps nobody renews the leases any more.
            patience = min(patience, self.settings.lease_seconds / 3)
        deadline = time.monotonic() + patience
        self._hands.give_back()
        while self._held and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(0.005)
            self._hands.give_back()
            if not self._settler.is_alive and not self._settler.settle_left():
                break
        # A loop that died is closed already.
        with suppress(RuntimeError):
            self._hands.cancel_tasks(patience=2.0)
        housekeeping.end()
        self._keeper.close()
        self._settler.close()
        self._presence.close()
        # After the settler, who may still hand a next stage to the loop.
        with suppress(RuntimeError):
            self._hands.close()
        self._orders.put(None)
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.close()

    def _change(self, change: str, detail: str = "") -> None:
        self.events.emit(WorkerChanged(self.id, change, detail))


def _word(settled: Settled) -> str:
    return verb_of(settled.outcome) if settled.held else "lease_lost"
