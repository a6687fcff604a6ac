"""Clocks of the simulator: one that moves only when advanced, one that follows real time.

The simulator accepts any :class:`Clock`, including that of the application under test, for example
``holdfast.FakeClock``. A ``Holdfast`` also accepts both clocks here, so that one clock drives both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A clock that can be advanced."""

    def now(self) -> datetime:
        """The current time."""

    def advance(self, delta: timedelta | None = None, /, **lengths: float) -> None:
        """Advance by a timedelta or by its keywords, as in ``advance(hours=24)``."""


class VirtualClock:
    """A clock that moves only when :meth:`advance` is called."""

    is_fake = True

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
        self._began = self._now
        self._lock = threading.Lock()
        self.on_advance: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """The current time."""
        with self._lock:
            return self._now

    def advance(self, delta: timedelta | None = None, /, **lengths: float) -> None:
        """Advance by a timedelta or by its keywords, as in ``advance(seconds=30)``."""
        step = forward(delta, lengths)
        with self._lock:
            self._now += step
        for hook in self.on_advance:
            hook()

    def monotonic(self) -> float:
        """Return by how many seconds the clock was advanced in total."""
        return (self.now() - self._began).total_seconds()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Advance by *timeout* instead of waiting; return whether *event* is set."""
        self.advance(seconds=timeout)
        return event.is_set()


class MovingClock:
    """A clock that follows real time unless it is frozen, and can be advanced."""

    is_fake = False

    def __init__(self) -> None:
        self._ahead = timedelta()
        self._frozen_at: datetime | None = None
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The current time."""
        with self._lock:
            return (self._frozen_at or datetime.now(UTC)) + self._ahead

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait until *event* is set or *timeout* seconds have passed; return if it is set."""
        return event.wait(timeout)

    @property
    def is_frozen(self) -> bool:
        """True while the clock is frozen."""
        return self._frozen_at is not None

    def advance(self, delta: timedelta | None = None, /, **lengths: float) -> None:
        """Advance by a timedelta or by its keywords, as in ``advance(hours=24)``."""
        step = forward(delta, lengths)
        with self._lock:
            self._ahead += step

    def freeze(self) -> None:
        """Stop until :meth:`thaw`. It can still be advanced."""
        with self._lock:
            self._frozen_at = self._frozen_at or datetime.now(UTC)

    def thaw(self) -> None:
        """Run again from the current time."""
        with self._lock:
            if self._frozen_at is not None:
                self._ahead -= datetime.now(UTC) - self._frozen_at
                self._frozen_at = None


def forward(delta: timedelta | None, lengths: dict[str, float]) -> timedelta:
    """Return the duration to advance by. A negative one is rejected."""
    step = delta if delta is not None else timedelta(**lengths)
    if step < timedelta(0):
        raise ValueError("A clock cannot be moved back.")
    return step
