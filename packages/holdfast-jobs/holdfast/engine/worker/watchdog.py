"""Watchdog: detects threads of a worker that died, or stalled although there is work.

A worker that cannot record outcomes or renew leases must not continue: its jobs would be executed
in vain and then again by other workers. It exits, and its supervisor starts another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from holdfast.engine.classify import safe_stack

Run = Callable[[], None]
Guard = Callable[[Run], Run]


def unguarded(run: Run) -> Run:
    """Leave a thread unwatched."""
    return run


class Watchdog:
    """Watches the threads of one worker and calls *failed* with the first failure."""

    def __init__(
        self,
        *,
        stall_seconds: float,
        failed: Callable[[str], None],
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.stall_seconds = stall_seconds
        # The first failure, if any.
        self.failure: str | None = None
        # Whether the failed thread stalled instead of ending.
        self.is_stalled = False
        self._failed = failed
        self._within = within
        self._threads: set[threading.Thread] = set()
        self._loops: dict[str, Callable[[], float | None]] = {}
        self._answered_at = time.monotonic()
        self._is_closed = False

    def guard(self, run: Run) -> Run:
        """Wrap *run* of an internal thread that must live as long as the worker."""

        def within() -> None:
            with self._within():
                run()

        return self.guard_loop(within)

    def guard_loop(self, run: Run) -> Run:
        """Wrap *run* of the thread that runs the event loop and its handlers."""

        def guarded() -> None:
            thread = threading.current_thread()
            self._threads.add(thread)
            self._run(run)
            self._threads.discard(thread)
            self.fail(f"{thread.name} has ended")

        return guarded

    def guard_executor(self, run: Run) -> Run:
        """Wrap *run* of a thread that may return, but must not end with an exception."""
        return lambda: self._run(run)

    def _run(self, run: Run) -> None:
        try:
            run()
        except BaseException as exc:
            self.fail(f"{threading.current_thread().name} died: {_place_of(exc)}")

    def watch(self, name: str, progress_at: Callable[[], float | None]) -> None:
        """Watch a loop. *progress_at* returns when it last did work; None if it has none."""
        self._loops[name] = progress_at

    def note_answer(self) -> None:
        """Record that the store answered a write, so it cannot be the cause of a stall."""
        self._answered_at = time.monotonic()

    def check(self) -> None:
        """Check every thread and loop. Cheap enough for every iteration of the claim loop."""
        for thread in list(self._threads):
            if not thread.is_alive():
                self._threads.discard(thread)
                self.fail(f"{thread.name} has ended")
        for name, progress_at in self._loops.items():
            since = progress_at()
            # While the store answers nothing, waiting for it is not a failure.
            if since is not None and self._answered_at - since > self.stall_seconds:
                self.is_stalled = True
                self.fail(f"{name} has been unresponsive for {time.monotonic() - since:.0f} s")

    def fail(self, reason: str) -> None:
        """Record a failure of this worker; only the first one counts."""
        if self._is_closed or self.failure is not None:
            return
        self.failure = reason
        self._failed(reason)

    def close(self) -> None:
        """Accept that threads end from now on."""
        self._is_closed = True


def _place_of(exc: BaseException) -> str:
    """The class of an exception and where it was raised; never its message."""
    head, *frames = safe_stack(exc).splitlines()
    own = [line.strip() for line in frames if line.startswith("  ")]
    return f"{head} at {own[-1]}" if own else head
