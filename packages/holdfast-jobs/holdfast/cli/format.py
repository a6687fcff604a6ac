"""Human-readable values: ages instead of timestamps, durations with one unit, counted nouns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float) -> str:
    """A duration with its largest unit: ``31s``, ``5m``, ``2h``, ``12d``."""
    whole = int(abs(seconds))
    for length, unit in _UNITS:
        if whole >= length:
            return f"{whole // length}{unit}"
    return "0s"


def age(at: datetime, now: datetime | None = None) -> str:
    """The time since or until *at*: ``5m ago``, ``in 2h``."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(seconds)}"


def moment(at: datetime, now: datetime | None = None) -> str:
    """A timestamp to the second, with its age: ``2026-01-05 09:00:00 UTC (5m ago)``."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({age(at, now)})"


def tallied(words: Iterable[str]) -> str:
    """Count each word: ``3 completed, 1 failed``."""
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))
