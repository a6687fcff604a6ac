"""Clocks: time is a parameter, so that tests and simulations control it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from holdfast.errors import InvalidArgument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Returns the time and waits."""

    @property
    def is_fake(self) -> bool:
        """Whether this clock overrides the clock of the database."""
        ...

    def now(self) -> datetime: ...

    def monotonic(self) -> float:
        """Monotonic seconds, for durations and not for points in time."""
        ...

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait until *event* is set or *timeout* seconds have passed; return whether it is set."""
        ...


class SystemClock:
    """The system clock."""

    is_fake = False

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait until *event* is set or *timeout* seconds have passed; return whether it is set."""
        return event.wait(timeout)


class FakeClock:
    """A clock for tests that only moves when it is advanced."""

    is_fake = True

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and (not isinstance(start, datetime) or start.tzinfo is None):
            raise InvalidArgument({"start": "must be a datetime with a time zone"})
        self._now = start or datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
        self._began = self._now
        self._lock = threading.Lock()
        self.on_advance: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """The current time of the clock."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Seconds that the clock was advanced in total."""
        return (self.now() - self._began).total_seconds()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Advance by *timeout* seconds instead of waiting; return whether *event* is set."""
        self.advance(seconds=timeout)
        return event.is_set()

    def advance(self, delta: timedelta | None = None, /, **lengths: float) -> None:
        """Move forward by a timedelta or by its keywords, as in ``advance(seconds=30)``."""
        try:
            step = delta if delta is not None else timedelta(**lengths)
            if not isinstance(step, timedelta):
                raise TypeError(type(step).__name__)
            then = self.now() + step
        except (TypeError, ValueError, OverflowError) as exc:
            raise InvalidArgument({"delta": f"is not a valid duration: {exc}"}) from None
        if step < timedelta(0):
            raise InvalidArgument({"delta": "must not be negative: the clock cannot be moved back"})
        with self._lock:
            self._now = then
        for hook in self.on_advance:
            hook()


def ms(length: timedelta | float) -> int:
    """A length in whole milliseconds; plain numbers are seconds."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    return round(seconds * 1000)


def read_instant(value: str | datetime) -> datetime:
    """Convert a value from a database to an aware UTC datetime."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.astimezone(UTC)


def write_instant(value: datetime) -> str:
    """The canonical text of an instant: UTC, milliseconds, fixed width, sortable as text."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z"
