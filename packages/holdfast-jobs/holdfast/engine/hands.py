"""The hands of a worker: threads for synchronous handlers, one event loop for asynchronous ones."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from holdfast.engine.completion import Completion, Ended
from holdfast.engine.context import CancelToken, Context, FindExtension, no_extension
from holdfast.engine.execute import Plan, execute, execute_async, judge
from holdfast.engine.fairness import TenantQueue
from holdfast.engine.job import Claimed, ClaimId, Outcome, Released
from holdfast.engine.tracing import Tracing
from holdfast.engine.watchdog import Guard, unguarded
from holdfast.store import Store

# How much work may wait in this process, in claims' lengths: enough to hide the round trip of one.
# More would keep jobs from an idle worker, and a quiet tenant behind what was taken before it.
PREFETCH_CLAIMS = 1.5
SHORTEST_PREFETCH = 0.005
LONGEST_PREFETCH = 0.25


# Asynchronous handlers that hold a transaction while they wait are rare, and a server takes a
# hundred connections by default. One that finds none is released, and tries again in a second.
LOOP_CONNECTIONS = 20

DRAINED = Released("drain")


@dataclass(slots=True)
class Held:
    """A claim in this process."""

    job: Claimed
    token: CancelToken
    claimed_at: float
    renewed_at: float
    plan: Plan | None = None
    started_at: float | None = None
    # How long the stage that was run last has run; None if it was given back unused.
    ran_seconds: float | None = None
    # What the stage that runs now has recorded by itself.
    completion: Completion | None = None

    @property
    def claim_id(self) -> ClaimId:
        return self.job.claim_id


class Hands:
    """Runs planned claims and tells *finished* what became of each."""

    def __init__(
        self,
        store: Store,
        *,
        concurrency: int,
        async_concurrency: int,
        rng: random.Random,
        finished: Callable[[Held, Ended], None],
        has_room: Callable[[], None],
        find_extension: FindExtension = no_extension,
        tracing: Tracing | None = None,
        guard: Guard = unguarded,
        guard_hand: Guard = unguarded,
    ) -> None:
        self.store = store
        self.find_extension = find_extension
        self.tracing = tracing
        self._guard, self._guard_hand = guard, guard_hand
        self.concurrency = concurrency
        self.async_concurrency = async_concurrency
        self.rng = rng
        self.finished = finished
        self.has_room = has_room
        # A plain flag, because a signal handler sets it: an event has a lock.
        self.closing = False
        # What becomes of claims that wait here when the end comes.
        self.unreached = DRAINED
        self.mean_seconds = 0.05
        self.claim_seconds = 0.01
        # Jobs are put here by the hundred; a thread that finds it empty sleeps on a token. Waking a
        # thread for every job would cost more than running a small one.
        self._waiting: TenantQueue[Held] = TenantQueue()
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        # Dicts, not counters: adding to a number from two threads can lose one. By claim, because
        # a lost claim of a job may still run here beside the next one.
        self._running: dict[ClaimId, Held] = {}
        self._on_loop: dict[ClaimId, Held] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._names = itertools.count(1)

    def connections(self, *, with_loop: bool) -> int:
        """How many connections the handlers that run at once may need."""
        on_loop = min(self.async_concurrency, LOOP_CONNECTIONS) if with_loop else 0
        return self.concurrency + on_loop

    def start(self, *, with_loop: bool) -> None:
        if with_loop:
            loop = self._loop = asyncio.new_event_loop()
            run = self._guard(lambda: _run_loop(loop))
            threading.Thread(target=run, name="holdfast-loop", daemon=True).start()
        for _ in range(self.concurrency):
            self._add_thread()

    def _add_thread(self) -> None:
        name = f"holdfast-hand-{next(self._names)}"
        run = self._guard_hand(self._run_waiting)
        threading.Thread(target=run, name=name, daemon=True).start()

    def take(self, held: list[Held]) -> None:
        """Run these as soon as a hand is free."""
        synchronous = 0
        for item in held:
            assert item.plan is not None
            if item.plan.stage.is_async and self._loop is not None:
                self._on_loop[item.claim_id] = item
                self._loop.call_soon_threadsafe(self._spawn, item)
            else:
                self._waiting.put(item.job.org_id, item)
                synchronous += 1
        for _ in range(min(synchronous, self.concurrency)):
            self._tokens.put(True)

    def wanted(self, limit: int, *, latecomers: int = 0) -> int:
        """How many claims could be used now: the free hands, plus a little to hide a round trip.

        With *latecomers*, also so many more than that: they need not wait behind the others here.
        """
        ahead = min(self._ahead + latecomers, limit)
        waiting = len(self._waiting)
        free = self.concurrency - len(self._running)
        # What was handed over a moment ago still waits for a free hand to notice: it is not ahead.
        if not latecomers and waiting - free > ahead // 2 and waiting > free:
            return 0
        if self._loop is not None:
            free += self.async_concurrency - len(self._on_loop)
        return min(max(0, free + ahead - waiting), limit)

    @property
    def _ahead(self) -> int:
        wished = max(PREFETCH_CLAIMS * self.claim_seconds, SHORTEST_PREFETCH)
        seconds = min(wished, LONGEST_PREFETCH)
        return int(self.concurrency * seconds / max(self.mean_seconds, 1e-6))

    @property
    def has_quick_work(self) -> bool:
        """Whether more outcomes will be there in a moment."""
        return self.mean_seconds < 0.001 and len(self._waiting) > 0

    def _run_waiting(self) -> None:
        while True:
            try:
                held = self._waiting.pop()
            except IndexError:
                if not self._tokens.get():
                    return
                continue
            if self.closing:
                self.finished(held, self.unreached)
                continue
            assert held.plan is not None
            self._running[held.claim_id] = held
            held.started_at = began = time.monotonic()
            context = self._context(held)
            try:
                ended = execute(context, held.plan, self.rng, self.tracing)
            except BaseException as exc:
                ended = context.completion.ended(self._judge(held, exc))
            held.ran_seconds = time.monotonic() - began
            self._observe(held.ran_seconds)
            if self._running.pop(held.claim_id, None) is None:
                # The keeper gave up on this thread and put another in its place.
                return
            held.started_at = held.completion = None
            self.finished(held, ended)
            # A thread that waits for work keeps nothing of what it has worked on.
            del held, context, ended

    def _context(self, held: Held) -> Context:
        context = Context(held.job, self.store, held.token, find_extension=self.find_extension)
        held.completion = context.completion
        return context

    def _judge(self, held: Held, exc: BaseException) -> Outcome:
        """What a handler let out that means the end of a process elsewhere, but not of ours.

        A hand that died of it would leave its job claimed for as long as the worker lives.
        """
        assert held.plan is not None
        return judge(exc, held.job, held.plan.stage, self.rng)

    def observe_claim(self, seconds: float) -> None:
        """Note how long a claim took; what is taken ahead goes by it."""
        self.claim_seconds += 0.2 * (seconds - self.claim_seconds)

    def _observe(self, seconds: float) -> None:
        self.mean_seconds += 0.1 * (seconds - self.mean_seconds)
        if len(self._waiting) * 2 <= self._ahead:
            self.has_room()

    def abandon(self, held: Held) -> bool:
        """Take a job away from a thread that cannot be stopped, and put another thread in place.

        False if the thread has just finished by itself: who removes the claim ends it.
        """
        if self._running.pop(held.claim_id, None) is None:
            return False
        held.token.set()
        self._add_thread()
        return True

    def _spawn(self, held: Held) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_async(held))
        # The loop keeps only a weak reference to a task.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_async(self, held: Held) -> None:
        assert held.plan is not None
        if self.closing:
            ended: Ended = self.unreached
        else:
            held.started_at = began = time.monotonic()
            context = self._context(held)
            try:
                ended = await execute_async(context, held.plan, self.rng, self.tracing)
            except BaseException as exc:
                ended = context.completion.ended(self._judge(held, exc))
            held.ran_seconds = time.monotonic() - began
        held.started_at = held.completion = None
        self._on_loop.pop(held.claim_id, None)
        self.has_room()
        self.finished(held, ended)

    def give_back(self) -> None:
        """Return what waits, unused."""
        while self._waiting:
            try:
                held = self._waiting.pop()
            except IndexError:
                return
            self.finished(held, self.unreached)

    def cancel_tasks(self, patience: float) -> None:
        """Cancel what runs on the loop and wait until it has let go."""
        if self._loop is None:
            return
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in list(self._tasks)])
        give_up = time.monotonic() + patience
        while self._on_loop and time.monotonic() < give_up:
            time.sleep(0.005)

    def close(self) -> None:
        for _ in range(self.concurrency):
            self._tokens.put(False)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
