"""Retry delays: named policies and Retry-After. Pure.

A delay is computed when the attempt fails, from the policy in force at that time. Only the next
``not_before_at`` is stored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from holdfast.errors import ConfigError

RETRY_AFTER_CEILING = timedelta(minutes=5)
LONGEST = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry delays: exponential with full jitter, or a fixed list of *steps*."""

    first: timedelta = timedelta(seconds=5)
    """Upper bound of the first delay."""
    multiplier: float = 2.0
    """Factor by which the bound grows with each attempt."""
    longest: timedelta = timedelta(minutes=5)
    """Maximum of the bound."""
    steps: tuple[timedelta, ...] = ()
    """Fixed delays without jitter; the last one repeats."""
    is_by_run: bool = False
    """Use `retry_backoff_seconds` of the run."""

    def __post_init__(self) -> None:
        for name in ("first", "longest"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or not timedelta(0) < value <= LONGEST:
                raise ConfigError(f"A retry policy needs {name}= above zero and at most a year.")
        if not isinstance(self.multiplier, (int, float)) or not 1 <= self.multiplier <= 1000:
            raise ConfigError("A retry policy needs a multiplier= from 1 to 1000.")
        if not isinstance(self.steps, tuple) or not all(
            isinstance(step, timedelta) and timedelta(0) <= step <= LONGEST for step in self.steps
        ):
            raise ConfigError("The steps= of a retry policy are a tuple of timedeltas.")

    @classmethod
    def by_run(cls) -> RetryPolicy:
        """Use ``retry_backoff_seconds`` of the run, or of the profile in a worker."""
        return cls(is_by_run=True)

    def resolve(self, backoff_seconds: Sequence[int]) -> RetryPolicy:
        """Return this policy with the delays of the run, if it uses them."""
        if not self.is_by_run:
            return self
        return replace(self, steps=tuple(timedelta(seconds=step) for step in backoff_seconds))

    def delay(
        self, attempt_count: int, rng: random.Random, retry_after: timedelta | None = None
    ) -> timedelta:
        """Return the delay after attempt number *attempt_count* failed."""
        if self.steps:
            calculated = self.steps[min(attempt_count, len(self.steps)) - 1]
        else:
            # Capping the exponent keeps a long retry history from overflowing a float.
            growth = self.multiplier ** min(attempt_count - 1, 64)
            ceiling = min(self.longest.total_seconds(), self.first.total_seconds() * growth)
            calculated = timedelta(seconds=rng.uniform(0.0, ceiling))
        if retry_after is None:
            return calculated
        # The ceiling limits the delay that an upstream can request; it never shortens the policy's
        # delay.
        return max(calculated, min(retry_after, RETRY_AFTER_CEILING))


CRITIC = RetryPolicy(first=timedelta(seconds=1), longest=timedelta(seconds=60))
STAGE_ATTEMPTS = 5


def parse_retry_after(header: str | None, now: datetime) -> timedelta | None:
    """Parse a ``Retry-After`` header, in seconds or as an HTTP date. Invalid values are ignored."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return timedelta(seconds=int(text))
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(until - now, timedelta(0))
