"""The executor pool of a worker: threads for synchronous handlers, an event loop for async ones."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from holdfast.engine.batch_call import execute_batch, execute_batch_async
from holdfast.engine.completion import Ended
from holdfast.engine.context import Context, FindExtension, no_extension
from holdfast.engine.execute import Execution, execute, execute_async, outcome_of_error
from holdfast.engine.fairness import TenantQueue
from holdfast.engine.job import Outcome, Released
from holdfast.engine.tracing import Tracing
from holdfast.engine.worker.grouper import Grouper
from holdfast.engine.worker.in_flight import Group
from holdfast.engine.worker.in_flight import InFlight as InFlight
from holdfast.engine.worker.isolation import IsolationHost
from holdfast.engine.worker.watchdog import Guard, unguarded
from holdfast.store import Store

# How much work is prefetched, in durations of a claim: enough to hide the round trip of one claim.
# A longer prefetch would keep jobs from idle workers and delay tenants with few jobs.
PREFETCH_CLAIMS = 1.5
SHORTEST_PREFETCH = 0.005
LONGEST_PREFETCH = 0.25


# Asynchronous handlers that hold a transaction while they wait are rare, and a server takes a
# hundred connections by default. A handler that gets none is released and retried in a second.
LOOP_CONNECTIONS = 20

DRAINED = Released("drain")


_Contexts = list[tuple[InFlight, Context]]


def _batch_of(contexts: _Contexts) -> tuple[list[Context], list[Execution]]:
    executions = [member.execution for member, _ in contexts if member.execution is not None]
    return [context for _, context in contexts], executions


class ExecutorPool:
    """Executes resolved claims and calls *finished* with the outcome of each."""

    def __init__(
        self,
        store: Store,
        *,
        concurrency: int,
        async_concurrency: int,
        rng: random.Random,
        finished: Callable[[InFlight, Ended], None],
        has_capacity: Callable[[], None],
        find_extension: FindExtension = no_extension,
        tracing: Tracing | None = None,
        guard: Guard = unguarded,
        guard_executor: Guard = unguarded,
        isolation: IsolationHost | None = None,
    ) -> None:
        self.isolation = isolation
        self.store = store
        self.find_extension = find_extension
        self.tracing = tracing
        self._guard, self._guard_executor = guard, guard_executor
        self.concurrency = concurrency
        self.async_concurrency = async_concurrency
        self.rng = rng
        self.finished = finished
        self.has_capacity = has_capacity
        # Whether the worker waits for capacity; has_capacity is called once for each time.
        self.wants_capacity = False
        # A plain flag, because a signal handler sets it: an event has a lock.
        self.closing = False
        # The outcome of claims that still wait here when the worker drains.
        self.unreached = DRAINED
        self.mean_seconds = 0.05
        self.claim_seconds = 0.01
        # A thread that finds this queue empty waits for a token. Waking a thread for every job
        # would cost more than running a small job.
        self._waiting: TenantQueue[InFlight] = TenantQueue()
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        # Dicts instead of counters, because increments from two threads can be lost.
        self._running: dict[InFlight, bool] = {}
        self._on_loop: dict[InFlight, bool] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._names = itertools.count(1)
        self._grouper = Grouper(self._take_group, guard=guard)

    def connections(self, *, with_loop: bool) -> int:
        """The number of connections that concurrent handlers may need."""
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
        name = f"holdfast-executor-{next(self._names)}"
        run = self._guard_executor(self._run_waiting)
        threading.Thread(target=run, name=name, daemon=True).start()

    def take(self, claims: list[InFlight]) -> None:
        """Execute these as soon as a thread is free."""
        alone: list[InFlight] = []
        together: list[InFlight] = []
        for item in claims:
            assert item.execution is not None
            (alone if item.execution.stage.batch is None else together).append(item)
        if together:
            self._grouper.add(together)
        self._hand_over(alone)

    def _take_group(self, group: Group) -> None:
        self._hand_over([group.leader])

    def _hand_over(self, claims: list[InFlight]) -> None:
        synchronous: list[tuple[str, InFlight]] = []
        for item in claims:
            assert item.execution is not None
            stage = item.execution.stage
            if stage.is_async and not stage.is_isolated and self._loop is not None:
                self._on_loop[item] = True
                self._loop.call_soon_threadsafe(self._spawn, item)
            else:
                synchronous.append((item.job.org_id, item))
        self._waiting.put_all(synchronous)
        for _ in range(min(len(synchronous), self.concurrency)):
            self._tokens.put(True)

    def free_slots(self, limit: int, *, latecomers: int = 0) -> int:
        """How many claims could be started now: free threads plus a short prefetch.

        *latecomers* raises the prefetch, so that new arrivals need not wait for those here.
        """
        ahead = min(self._ahead + latecomers, limit)
        waiting = len(self._waiting)
        free = self.concurrency - len(self._running)
        # Jobs that were just handed over still wait for a thread to wake up; they are not prefetch.
        if not latecomers and waiting - free > ahead // 2 and waiting > free:
            return 0
        if self._loop is not None:
            free += self.async_concurrency - len(self._on_loop)
        return min(max(0, free + ahead - waiting) + self._grouper.missing, limit)

    @property
    def _ahead(self) -> int:
        wished = max(PREFETCH_CLAIMS * self.claim_seconds, SHORTEST_PREFETCH)
        seconds = min(wished, LONGEST_PREFETCH)
        return int(self.concurrency * seconds / max(self.mean_seconds, 1e-6))

    @property
    def has_quick_work(self) -> bool:
        """Whether more outcomes will arrive within a moment."""
        return self.mean_seconds < 0.001 and len(self._waiting) > 0

    def _run_waiting(self) -> None:
        while True:
            try:
                claim = self._waiting.pop()
            except IndexError:
                if not self._tokens.get():
                    return
                continue
            if self.closing:
                self._release(claim)
                continue
            self._running[claim] = True
            began = time.monotonic()
            contexts = self._begin(claim, began)
            try:
                ended = self._execute(contexts)
            except BaseException as exc:
                ended = self._ended_by_error(contexts, exc)
            seconds = time.monotonic() - began
            self._observe(seconds)
            if not self._running.pop(claim, False):
                # The lease renewer has abandoned this thread and started another.
                return
            self._finish(contexts, ended, seconds)
            # A waiting thread must not keep references to the last job.
            del claim, contexts, ended

    def _release(self, claim: InFlight) -> None:
        """Release a claim that was not started, with the others of its group."""
        for member in claim.together:
            self.finished(member, self.unreached)

    def _begin(self, claim: InFlight, began: float) -> _Contexts:
        """The contexts of a claim and of the others of its group, which start now."""
        contexts = []
        for member in claim.together:
            assert member.execution is not None
            member.started_at = began
            contexts.append((member, self._context(member, member.execution)))
        return contexts

    def _finish(self, contexts: _Contexts, ended: Sequence[Ended], seconds: float) -> None:
        for (member, _), one in zip(contexts, ended, strict=True):
            member.ran_seconds = seconds
            member.started_at = member.completion = member.task = None
            self.finished(member, one)

    def _ended_by_error(self, contexts: _Contexts, exc: BaseException) -> list[Ended]:
        return [
            context.completion.ended(self._outcome_of_error(member, exc))
            for member, context in contexts
        ]

    def _execute(self, contexts: _Contexts) -> list[Ended]:
        member, context = contexts[0]
        execution = member.execution
        assert execution is not None
        if execution.stage.batch is not None:
            return execute_batch(*_batch_of(contexts), self.rng, self.tracing)
        return [self._execute_one(context, execution)]

    def _execute_one(self, context: Context, execution: Execution) -> Ended:
        if execution.stage.is_isolated and self.isolation is not None:
            return self.isolation.execute(context, execution, self.rng, self.tracing)
        return execute(context, execution, self.rng, self.tracing)

    def _context(self, claim: InFlight, execution: Execution) -> Context:
        context = Context(
            claim.job,
            self.store,
            claim.token,
            execution.handler,
            execution.categories,
            find_extension=self.find_extension,
        )
        claim.completion = context.completion
        return context

    def _outcome_of_error(self, claim: InFlight, exc: BaseException) -> Outcome:
        """The outcome of an exception such as SystemExit, which must not end this thread.

        If the thread ended, the job would stay claimed for as long as the worker runs.
        """
        assert claim.execution is not None
        return outcome_of_error(exc, claim.job, claim.execution.stage, self.rng)

    def observe_claim(self, seconds: float) -> None:
        """Record how long a claim took. The prefetch depends on it."""
        self.claim_seconds += 0.2 * (seconds - self.claim_seconds)

    def _observe(self, seconds: float) -> None:
        self.mean_seconds += 0.1 * (seconds - self.mean_seconds)
        if self.wants_capacity and self._waiting.size * 2 <= self._ahead:
            self._report_capacity()

    def _report_capacity(self) -> None:
        if self.wants_capacity:
            self.wants_capacity = False
            self.has_capacity()

    def abandon(self, claim: InFlight) -> bool:
        """Take a job from a thread that cannot be stopped, and start another thread.

        False if the thread has just finished: removing the claim decides who ends it.
        """
        if not self._running.pop(claim, False):
            return False
        claim.token.set()
        self._add_thread()
        return True

    def _spawn(self, claim: InFlight) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_async(claim))
        for member in claim.together:
            member.task = task
        # The event loop keeps only a weak reference to a task.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_async(self, claim: InFlight) -> None:
        if self.closing:
            self._on_loop.pop(claim, None)
            self._report_capacity()
            self._release(claim)
            return
        assert claim.execution is not None
        began = time.monotonic()
        contexts = self._begin(claim, began)
        try:
            if claim.execution.stage.batch is not None:
                of = _batch_of(contexts)
                ended = await execute_batch_async(*of, self.rng, self.tracing)
            else:
                ((_, context),) = contexts
                ended = [await execute_async(context, claim.execution, self.rng, self.tracing)]
        except BaseException as exc:
            ended = self._ended_by_error(contexts, exc)
        self._on_loop.pop(claim, None)
        self._report_capacity()
        self._finish(contexts, ended, time.monotonic() - began)

    def release_waiting(self) -> None:
        """Release the claims that have not started."""
        for claim in self._grouper.take_all():
            self.finished(claim, self.unreached)
        while self._waiting:
            try:
                claim = self._waiting.pop()
            except IndexError:
                return
            self._release(claim)

    def cancel_tasks(self, patience: float) -> None:
        """Cancel the tasks on the event loop and wait until they have ended."""
        if self._loop is None:
            return
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in list(self._tasks)])
        give_up = time.monotonic() + patience
        while self._on_loop and time.monotonic() < give_up:
            time.sleep(0.005)

    def close(self) -> None:
        self._grouper.close()
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
