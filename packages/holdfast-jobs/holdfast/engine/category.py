"""Categories: defaults that jobs share, and the rules that the engine enforces on their handlers.

Seven are built in; applications declare more. The store has a copy of each, so that a process that
does not know the category of a job can still compute how long its idempotency key lasts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypedDict

from holdfast.clock import ms
from holdfast.engine import audit
from holdfast.engine.job import (
    CRITICAL_QUEUE,
    DEAD_LETTER_QUEUE,
    DEFAULT_QUEUE,
    MAINTENANCE_QUEUE,
    SYSTEM,
)
from holdfast.engine.retry import RetryPolicy
from holdfast.errors import ConfigError
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.engine", "category.sql")

NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
QUEUE = re.compile(r"q:[a-z][a-z0-9_-]{0,49}")
REFUSAL = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,300}")
LONGEST_KEY_TTL = timedelta(days=3660)
LONGEST_DELAY = timedelta(days=30)

# Maintenance jobs run unattended, so their run time is bounded.
MAINTENANCE_TIMEOUT = timedelta(minutes=10)
LONGEST_MAINTENANCE = timedelta(hours=1)


class CategoryRules(StrEnum):
    """The constraints that the engine enforces on the handlers of a category."""

    GENERAL = "general"
    NOTIFICATION = "notification"
    AUDIT_ENRICHMENT = "audit_enrichment"
    PLANNING = "planning"
    EXPORT = "export"
    MAINTENANCE = "maintenance"

    @property
    def may_be_scheduled(self) -> bool:
        return self in (CategoryRules.MAINTENANCE, CategoryRules.NOTIFICATION)

    @property
    def delivers_artifact(self) -> bool:
        """Whether the result must refer to an artifact that the job stored."""
        return self in (CategoryRules.PLANNING, CategoryRules.EXPORT)


@dataclass(frozen=True, slots=True)
class Category:
    """Shared defaults of jobs: queue, attempts, timeout, and lifetime of idempotency keys."""

    name: str
    queue: str
    max_attempts: int
    retry: RetryPolicy
    key_ttl: timedelta
    rules: CategoryRules
    # Why dead letters of this category cannot be replayed.
    replay_refusal: str | None = None

    @property
    def key_ttl_ms(self) -> int:
        return ms(self.key_ttl)

    def timeout_of(self, declared: timedelta | None) -> timedelta | None:
        """The timeout of a handler; raises ConfigError if *declared* is too long."""
        if self.rules is not CategoryRules.MAINTENANCE:
            return declared
        if declared is not None and declared > LONGEST_MAINTENANCE:
            raise ConfigError(
                f"A handler of category {self.name!r} may run for an hour at most; do the work in"
                " several jobs, or leave a checkpoint and snooze."
            )
        return declared or MAINTENANCE_TIMEOUT


def _built_in(
    name: str,
    queue: str,
    attempts: int,
    longest_minutes: float,
    ttl_days: int,
    rules: CategoryRules,
) -> Category:
    policy = RetryPolicy(longest=timedelta(minutes=longest_minutes))
    return Category(name, queue, attempts, policy, timedelta(days=ttl_days), rules)


GENERAL = _built_in("general", DEFAULT_QUEUE, 5, 5, 30, CategoryRules.GENERAL)
# The migration that creates the table inserts the same rows; a test compares the two.
CATEGORIES = {
    category.name: category
    for category in (
        GENERAL,
        _built_in("notification", "q:notifications", 10, 30, 7, CategoryRules.NOTIFICATION),
        _built_in("audit_enrichment", DEFAULT_QUEUE, 5, 5, 30, CategoryRules.AUDIT_ENRICHMENT),
        _built_in("planning", "q:planning", 3, 2, 30, CategoryRules.PLANNING),
        _built_in("export", "q:exports", 5, 10, 30, CategoryRules.EXPORT),
        _built_in("import", "q:exports", 5, 10, 30, CategoryRules.EXPORT),
        _built_in("maintenance", "q:maintenance", 5, 5, 7, CategoryRules.MAINTENANCE),
    )
}


class CategoryOptions(TypedDict, total=False):
    """The options of a category; the defaults are those of the category general."""

    queue: str
    max_attempts: int
    longest_delay: timedelta
    key_ttl: timedelta
    rules: CategoryRules | str
    replay_refusal: str | None


def _is_length(value: object, longest: timedelta) -> bool:
    return isinstance(value, timedelta) and timedelta(0) < value <= longest


def make_category(
    name: str,
    *,
    queue: str | None = None,
    max_attempts: int = GENERAL.max_attempts,
    longest_delay: timedelta = GENERAL.retry.longest,
    key_ttl: timedelta = GENERAL.key_ttl,
    rules: CategoryRules | str = CategoryRules.GENERAL,
    replay_refusal: str | None = None,
) -> Category:
    """Create a category from a validated declaration."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(f"Category {name!r} must be a lower-case word such as 'report'.")
    if name in CATEGORIES:
        raise ConfigError(f"Category {name!r} is built in; choose another name.")
    if queue is None:
        # Maintenance jobs are bounded and rate-limited by default.
        queue = MAINTENANCE_QUEUE if rules == CategoryRules.MAINTENANCE else GENERAL.queue
    if not isinstance(queue, str) or not QUEUE.fullmatch(queue):
        raise ConfigError(f"Category {name!r}: queue {queue!r} must look like 'q:default'.")
    if queue in (DEAD_LETTER_QUEUE, CRITICAL_QUEUE):
        raise ConfigError(
            f"Category {name!r}: queue {queue} is reserved. {DEAD_LETTER_QUEUE} holds dead"
            f" letters; a handler selects {CRITICAL_QUEUE} itself, with slo=."
        )
    if type(max_attempts) is not int or not 1 <= max_attempts <= 100:
        raise ConfigError(f"Category {name!r}: max_attempts must be from 1 to 100.")
    if not _is_length(longest_delay, LONGEST_DELAY):
        raise ConfigError(f"Category {name!r}: longest_delay must be up to 30 days.")
    if not _is_length(key_ttl, LONGEST_KEY_TTL):
        raise ConfigError(f"Category {name!r}: key_ttl must be up to ten years.")
    if rules not in tuple(CategoryRules):
        raise ConfigError(f"Category {name!r}: rules must be one of {', '.join(CategoryRules)}.")
    if replay_refusal is not None and not (
        isinstance(replay_refusal, str) and REFUSAL.fullmatch(replay_refusal)
    ):
        raise ConfigError(
            f"Category {name!r}: replay_refusal must be a reason of 1 to 300 characters on one"
            " line."
        )
    policy = RetryPolicy(longest=longest_delay)
    return Category(
        name, queue, max_attempts, policy, key_ttl, CategoryRules(rules), replay_refusal
    )


def sync_categories(store: Store, categories: Iterable[Category]) -> list[str]:
    """Store declared categories; return the names of those that changed.

    Every worker process does so when it starts. Storing the same declaration again changes nothing.
    """
    rows = [
        {
            "name": category.name,
            "queue": category.queue,
            "max_attempts": category.max_attempts,
            "longest_ms": ms(category.retry.longest),
            "key_ttl_ms": category.key_ttl_ms,
            "duty": category.rules,
            "replay_refusal": category.replay_refusal,
        }
        for category in categories
        if category.name not in CATEGORIES
    ]
    if not rows:
        return []

    def work(tx: Tx) -> list[str]:
        changed = {row["name"] for row in tx.many(SQL.save_categories, categories=rows)}
        if changed:
            detail = {"categories": [row for row in rows if row["name"] in changed]}
            audit.record_action(
                tx, SYSTEM, subject="categories", name="category.declared", detail=detail
            )
        return sorted(changed)

    return store.write(work)
