"""Waiting for the results of jobs.

One thread of a process waits for all of them: on PostgreSQL it listens, on SQLite it watches the
file. Workers announce ended jobs only while a process says that it waits for some, so that jobs
that no caller waits for cost nothing. A lost announcement delays a result by one poll.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from typing import Any, Generic, TypeVar

from holdfast.engine.job import Job, State
from holdfast.errors import Failure, HoldfastError, NotFound, StoreError
from holdfast.store import Statement, Store
from holdfast.store.store import AWAITING, ENDED, WakeUp

# The pauses between polls, growing from the first to the last.
FIRST_POLL = 0.002
LAST_POLL = 0.5
# An in-memory database has no file to watch.
EMBEDDED_POLL = 0.05
# How often a waiting process repeats that it waits. Workers believe it for longer.
REPEAT_SECONDS = 3.0
# A job that was enqueued in a transaction is visible only after the commit.
UNSEEN_SECONDS = 30.0
IDLE_SECONDS = 5.0
GROUP = 500

Key = tuple[str, str]
E = TypeVar("E")


class JobFailed(HoldfastError):
    """The awaited job failed and has no result. `error_class` is that of its last attempt. If the
    class is one of a declared failure, the exception is an instance of that failure too. Recover
    the job with `holdfast dead-letters`."""

    def __init__(self, job: Job) -> None:
        self.job_id, self.job_type = job.id, job.job_type
        self.error_class = job.error_class or "FAILURE"
        self.context: dict[str, int | str] = {}
        says = f": {job.last_error}" if job.last_error else ""
        Exception.__init__(self, f"Job {job.id} ({job.job_type}) failed{says}")


class ResultCanceled(JobFailed):
    """The awaited job was canceled and has no result."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.error_class = "CANCELED"
        Exception.__init__(self, f"Job {job.id} ({job.job_type}) was canceled")


def result_of(job: Job) -> Any:
    """The result of an ended job. Raises JobFailed or ResultCanceled."""
    if job.state is State.COMPLETED:
        return job.result
    if job.state is State.CANCELED:
        raise ResultCanceled(job)
    raise _failed_with(_declared(job.error_class))(job)


def _declared(error_class: str | None) -> tuple[type[Failure], ...]:
    """The failures with this class, without those that inherit it from another of them."""
    found = [kind for kind in _failures(Failure) if kind.error_class == error_class]
    return tuple(kind for kind in found if not set(kind.__mro__[1:]) & set(found))


def _failures(kind: type[Failure]) -> Iterator[type[Failure]]:
    for one in kind.__subclasses__():
        if not issubclass(one, JobFailed):
            yield one
            yield from _failures(one)


@cache
def _failed_with(kinds: tuple[type[Failure], ...]) -> type[JobFailed]:
    """The class of exceptions that are a JobFailed and the failure of the job.

    Two modules may declare the same error class. The row does not say which of them the handler
    raised, so the exception is an instance of both.
    """
    if not kinds:
        return JobFailed
    name, members = kinds[0].__name__, {"__doc__": kinds[0].__doc__}
    try:
        return type(name, (JobFailed, *kinds), members)
    except TypeError:
        # They derive from built-in exceptions that no class can combine.
        return type(name, (JobFailed, kinds[0]), members)


class ResultWaiter(Generic[E]):
    """Resolves a future for each awaited job of one store, in one thread.

    Another *statement* and *find* make it wait for something else than jobs. *find* raises NotFound
    for an unknown id.
    """

    def __init__(
        self, store: Store, statement: Statement, find: Callable[[Store, str, str], E]
    ) -> None:
        self.store = store
        self._statement = statement
        self._find = find
        self._waiting: dict[Key, list[Future[E]]] = {}
        self._since: dict[Key, float] = {}
        self._lock = threading.Lock()
        self._wake: WakeUp | None = None
        self._thread: threading.Thread | None = None
        self._is_new = False
        self._closing = False

    def wait_for(self, org_id: str, job_id: str) -> Future[E]:
        """A future of the ended job."""
        future: Future[E] = Future()
        with self._lock:
            self._waiting.setdefault((org_id, job_id), []).append(future)
            self._since.setdefault((org_id, job_id), time.monotonic())
            self._is_new = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-results", daemon=True
                )
                self._thread.start()
            if self._wake is not None:
                self._wake.poke()
        return future

    def close(self) -> None:
        """End the thread. Futures that are still waiting fail with StoreError."""
        self._closing = True
        with self._lock:
            thread, wake = self._thread, self._wake
            if wake is not None:
                wake.poke()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2.0)

    def _run(self) -> None:
        wake = self.store.wake_up([ENDED])
        with self._lock:
            self._wake = wake
        try:
            self._resolve_until_idle(wake)
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._wake = self._thread = None
                    left = [future for some in self._waiting.values() for future in some]
                    self._waiting.clear()
                    self._since.clear()
                else:
                    left = []
            wake.close()
            for future in left:
                if future.set_running_or_notify_cancel():
                    future.set_exception(StoreError("The store was closed."))

    def _resolve_until_idle(self, wake: WakeUp) -> None:
        pause, announced_at, busy_at = FIRST_POLL, float("-inf"), time.monotonic()
        poll_at, is_woken = busy_at, True
        last = EMBEDDED_POLL if self.store.is_embedded else LAST_POLL
        while not self._closing:
            now = time.monotonic()
            with self._lock:
                self._drop_canceled()
                keys, is_new, self._is_new = list(self._waiting), self._is_new, False
                if keys:
                    busy_at = now
                elif now - busy_at > IDLE_SECONDS:
                    # Under the lock: the next wait_for starts another thread.
                    self._wake = self._thread = None
                    return
            if keys and now - announced_at >= REPEAT_SECONDS:
                announced_at = now
                self.store.announce([AWAITING])
            if is_new or is_woken or now >= poll_at:
                pause = FIRST_POLL if is_new else min(pause * 1.5, last)
                try:
                    for at in range(0, len(keys), GROUP):
                        self._resolve(keys[at : at + GROUP])
                except StoreError:
                    # The database may come back; callers decide how long they wait.
                    pause = last
                poll_at = time.monotonic() + pause
            until = min(poll_at, announced_at + REPEAT_SECONDS) if keys else now + IDLE_SECONDS
            is_woken = wake.wait(max(0.0, until - time.monotonic()))

    def _drop_canceled(self) -> None:
        for key, futures in list(self._waiting.items()):
            if all(future.cancelled() for future in futures):
                del self._waiting[key], self._since[key]

    def _resolve(self, keys: list[Key]) -> None:
        rows = [{"org_id": org_id, "id": job_id} for org_id, job_id in keys]
        ended = self.store.read(lambda tx: tx.many(self._statement, jobs=rows))
        for row in ended:
            key = str(row["org_id"]), str(row["id"])
            self._answer(key, self._find(self.store, *key))
        unseen = time.monotonic() - UNSEEN_SECONDS
        overdue = [key for key in keys if self._since.get(key, unseen) < unseen]
        for key in overdue:
            try:
                self._find(self.store, *key)
                self._since[key] = float("inf")
            except NotFound as exc:
                self._answer(key, exc)

    def _answer(self, key: Key, answer: E | NotFound) -> None:
        with self._lock:
            futures = self._waiting.pop(key, [])
            self._since.pop(key, None)
        for future in futures:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(answer, NotFound):
                future.set_exception(answer)
            else:
                future.set_result(answer)
