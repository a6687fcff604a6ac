"""When a failed attempt is tried again: named policies, categories, Retry-After. Pure.

A delay is computed at the moment of failure from the policy in force then; only the next
``not_before_at`` is stored, so nothing is a precomputed schedule.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from holdfast.clock import ms
from holdfast.engine.job import DEFAULT_QUEUE

RETRY_AFTER_CEILING = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential delay with full jitter, or a fixed list of *steps* without jitter."""

    first: timedelta = timedelta(seconds=5)
    multiplier: float = 2.0
    longest: timedelta = timedelta(minutes=5)
    steps: tuple[timedelta, ...] = ()

    def delay(
        self, attempt_count: int, rng: random.Random, retry_after: timedelta | None = None
    ) -> timedelta:
        """How long to wait after attempt number *attempt_count* failed."""
        if self.steps:
            calculated = self.steps[min(attempt_count, len(self.steps)) - 1]
        else:
            # Capping the exponent keeps a long retry history from overflowing a float.
            growth = self.multiplier ** min(attempt_count - 1, 64)
            ceiling = min(self.longest.total_seconds(), self.first.total_seconds() * growth)
            calculated = timedelta(seconds=rng.uniform(0.0, ceiling))
        if retry_after is None:
            return calculated
        # The ceiling stops an upstream from parking us; it never shortens our own delay.
        return max(calculated, min(retry_after, RETRY_AFTER_CEILING))


CRITIC = RetryPolicy(first=timedelta(seconds=1), longest=timedelta(seconds=60))
STAGE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Category:
    """What jobs of a kind share: where they wait, how often they try, how long keys last."""

    name: str
    queue: str
    max_attempts: int
    retry: RetryPolicy
    key_ttl: timedelta

    @property
    def key_ttl_ms(self) -> int:
        return ms(self.key_ttl)


def _category(
    name: str, queue: str, attempts: int, longest_minutes: float, ttl_days: int
) -> Category:
    policy = RetryPolicy(longest=timedelta(minutes=longest_minutes))
    return Category(name, queue, attempts, policy, timedelta(days=ttl_days))


GENERAL = _category("general", DEFAULT_QUEUE, 5, 5, 30)
CATEGORIES = {
    category.name: category
    for category in (
        GENERAL,
        _category("notification", "q:notifications", 10, 30, 7),
        _category("audit_enrichment", DEFAULT_QUEUE, 5, 5, 30),
        _category("planning", "q:planning", 3, 2, 30),
        _category("export", "q:exports", 5, 10, 30),
        _category("maintenance", "q:maintenance", 5, 5, 7),
    )
}


def category_of(name: str) -> Category:
    """The category a stored name means; a name nobody registered behaves as general."""
    return CATEGORIES.get(name, GENERAL)


def parse_retry_after(header: str | None, now: datetime) -> timedelta | None:
    """A ``Retry-After`` header as a length: seconds or an HTTP date. Nonsense is ignored."""
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
