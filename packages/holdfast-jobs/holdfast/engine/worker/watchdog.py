"""Watchdog: no thread of a worker ends unnoticed, and none stands still while there is work.

A worker whose outcomes are not recorded, or whose leases are not renewed, must not go on: it runs
handlers for nothing, and others run them again. It ends, and its supervisor starts another.
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
    """For a thread that nobody watches."""
    return run


class Watchdog:
    """Watches the threads of one worker; the first one that fails is told to *failed*."""

    def __init__(
        self,
        *,
        stall_seconds: float,
        failed: Callable[[str], None],
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.stall_seconds = stall_seconds
        # What went wrong; None as long as nothing did.
        self.failure: str | None = None
        # Whether a thread stands still, instead of having ended.
        self.is_stalled = False
        self._failed = failed
        self._within = within
        self._threads: set[threading.Thread] = set()
        self._loops: dict[str, Callable[[], float | None]] = {}
        self._answered_at = time.monotonic()
        self._is_closed = False

    def guard(self, run: Run) -> Run:
        """*run* for a thread of the worker's own that has to live as long as the worker."""

        def within() -> None:
            with self._within():
                run()

        return self.guard_loop(within)

    def guard_loop(self, run: Run) -> Run:
        """The same for the thread that runs the event loop, and the handlers on it."""

        def guarded() -> None:
            thread = threading.current_thread()
            self._threads.add(thread)
            self._run(run)
            self._threads.discard(thread)
            self.fail(f"{thread.name} has ended")

        return guarded

    def guard_executor(self, run: Run) -> Run:
        """The same for a thread that may end by itself, but not by an exception."""
        return lambda: self._run(run)

    def _run(self, run: Run) -> None:
        try:
            run()
        except BaseException as exc:
            self.fail(f"{threading.current_thread().name} died: {_place_of(exc)}")

    def watch(self, name: str, progress_at: Callable[[], float | None]) -> None:
        """Watch a loop: *progress_at* says when it last did something; None if it has no work."""
        self._loops[name] = progress_at

    def note_answer(self) -> None:
        """The store answered a write: nobody can stand still because of it."""
        self._answered_at = time.monotonic()

    def check(self) -> None:
        """Look at every thread and loop. Cheap enough for every turn of the claim loop."""
        for thread in list(self._threads):
            if not thread.is_alive():
                self._threads.discard(thread)
                self.fail(f"{thread.name} has ended")
        for name, progress_at in self._loops.items():
            since = progress_at()
            # As long as the store does not answer anybody, waiting for it is no fault.
            if since is not None and self._answered_at - since > self.stall_seconds:
                self.is_stalled = True
                self.fail(f"{name} has stood still for {time.monotonic() - since:.0f} s")

    def fail(self, reason: str) -> None:
        """Something is wrong with this worker; only the first thing counts."""
        if self._is_closed or self.failure is not None:
            return
        self.failure = reason
        self._failed(reason)

    def close(self) -> None:
        """From here on threads end because they are asked to."""
        self._is_closed = True


def _place_of(exc: BaseException) -> str:
    """The class of an exception and where it was raised; never its message."""
    head, *frames = safe_stack(exc).splitlines()
    own = [line.strip() for line in frames if line.startswith("  ")]
    return f"{head} at {own[-1]}" if own else head
