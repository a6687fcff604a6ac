"""Retention: finished jobs are pruned when their retention is over.

Failed jobs are kept until their dead letter is closed. Deliveries are kept as long as jobs are by
default. All passes are bounded, idempotent and safe to run concurrently in any process.

Keys expire without a sweep: the record of a key ends at ``expires_at``, and its job is pruned no
earlier than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

from holdfast.clock import ms
from holdfast.config import RetentionRule, RetentionSettings
from holdfast.document import encode
from holdfast.engine.category import Category
from holdfast.engine.job import SYSTEM, Actor, State
from holdfast.errors import ConfigError
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine", "retention.sql")

# The rows that one transaction deletes: enough to be cheap, few enough not to delay a
# settle that waits for it on SQLite.
BITE = 1_000
# The number of such transactions in one maintenance pass: enough for a worker that runs 10,000 jobs
# a second, without delaying rescues by more than a few seconds.
BITES = 50

STEPS = frozenset({"prune", "prune_deliveries"})


def prune(
    store: Store, retention: RetentionSettings, steps: Collection[str] = STEPS
) -> dict[str, int]:
    """One bounded pass of each of *steps*; returns the number of deleted rows per kind.

    A step that is left out counts 0.
    """
    turns: dict[str, tuple[str, Callable[[], int]]] = {
        "prune": ("pruned", lambda: prune_jobs(store, retention, limit=BITE)),
        "prune_deliveries": ("deliveries", lambda: prune_deliveries(store, retention, limit=BITE)),
    }
    return {
        counted: in_bites(take) if step in steps else 0 for step, (counted, take) in turns.items()
    }


def shortest_keep(retention: RetentionSettings) -> timedelta:
    """The shortest retention of any finished job."""
    return timedelta(days=min([retention.keep_days, *(rule.keep_days for rule in retention.rules)]))


def in_bites(take: Callable[[], int]) -> int:
    """Call *take* until it returns less than a bite, and return the number of rows taken."""
    total = 0
    for _ in range(BITES):
        taken = take()
        total += taken
        if taken < BITE:
            break
    return total


def prune_jobs(store: Store, retention: RetentionSettings, *, limit: int) -> int:
    """Delete finished jobs whose retention is over and whose key has expired, at most *limit*.

    Each leaves a last event, ``job.pruned``. A job that is missing without one was deleted
    manually.
    """
    given = {"rules": _rules(retention), "shortest_ms": ms(shortest_keep(retention))}

    def work(tx: Tx) -> int:
        pruned = 0
        for find in (SQL.find_prunable, SQL.find_prunable_failed, SQL.find_prunable_replays):
            if pruned < limit:
                pruned += _prune(tx, tx.many(find, **given, limit=limit - pruned))
        return pruned

    return store.write(work)


def _prune(tx: Tx, over: list[Row]) -> int:
    """Delete these jobs and record the deletion of each in the audit, which outlives them."""
    if not over:
        return 0
    tx.affected(SQL.keep_remainders, ended=over)
    tx.affected(SQL.record_pruned, ended=over, actor_type=SYSTEM.type.value, actor_id=SYSTEM.id)
    return tx.affected(SQL.delete_jobs, ended=over)


def prune_deliveries(store: Store, retention: RetentionSettings, *, limit: int) -> int:
    """Delete at most *limit* deliveries whose retention is over, and as many feed notices.

    A delivery whose job still exists is kept: a replay of that job must find what was sent.
    """
    given = {"keep_ms": ms(timedelta(days=retention.keep_days)), "limit": limit}

    def work(tx: Tx) -> int:
        pruned = tx.many(SQL.prune_deliveries, **given)
        record_removed(tx, pruned, actor=SYSTEM, reason="retention")
        return max(len(pruned), tx.affected(SQL.prune_in_app, **given))

    return store.write(work)


def record_removed(tx: Tx, removed: Sequence[Row], *, actor: Actor, reason: str) -> None:
    """Record that deliveries were deleted; one missing without a record was deleted manually."""
    if removed:
        given = {"actor_type": actor.type, "actor_id": actor.id}
        tx.affected(SQL.record_removed, removed=removed, detail=encode({"reason": reason}), **given)


def _rules(retention: RetentionSettings) -> list[dict[str, Any]]:
    """The rules as rows, and the default for jobs without a rule."""
    rules = [
        {
            "category": rule.category,
            "job_type": rule.job_type,
            "state": rule.state,
            "keep_ms": ms(timedelta(days=rule.keep_days)),
        }
        for rule in retention.rules
    ]
    default = ms(timedelta(days=retention.keep_days))
    return [*rules, {"category": None, "job_type": None, "state": None, "keep_ms": default}]


def keep_of(
    retention: RetentionSettings, *, category: str, job_type: str | None, state: str
) -> timedelta:
    """The retention of finished jobs of a kind: by the most specific rule, or the default."""
    kind = {"category": category, "job_type": job_type, "state": state}
    fitting = [rule for rule in retention.rules if _fits(rule, kind)]
    days = max(fitting, key=_rank).keep_days if fitting else retention.keep_days
    return timedelta(days=days)


def _fits(rule: RetentionRule, kind: Mapping[str, str | None]) -> bool:
    return all(getattr(rule, name) in (None, value) for name, value in kind.items())


def _rank(rule: RetentionRule) -> tuple[bool, bool, bool]:
    """A rule for a job type overrides one for a category, which overrides one for a state."""
    return rule.job_type is not None, rule.category is not None, rule.state is not None


def check_retention(retention: RetentionSettings, categories: Iterable[Category]) -> None:
    """Raise ConfigError for a retention shorter than the life of keys, or for conflicting rules."""
    problems = []
    selectors = [(rule.category, rule.job_type, rule.state) for rule in retention.rules]
    for selector in sorted(set(selectors), key=str):
        if selectors.count(selector) > 1:
            problems.append(f"there are two rules for {_words(*selector)}")
    job_types = {None, *(rule.job_type for rule in retention.rules)}
    for category, job_type in product(categories, sorted(job_types, key=str)):
        keep = min(
            keep_of(retention, category=category.name, job_type=job_type, state=state)
            for state in (State.COMPLETED, State.CANCELED, State.FAILED)
        )
        if keep < category.key_ttl:
            problems.append(
                f"{_words(category.name, job_type, None)} would be kept {_days(keep)} days, and"
                f" its keys live {_days(category.key_ttl)}; keep it longer, or name the category"
                " that a rule for a job type is meant for"
            )
    if problems:
        raise ConfigError("Invalid retention settings: " + "; ".join(problems) + ".")


def _words(category: str | None, job_type: str | None, state: str | None) -> str:
    given = {"category": category, "job_type": job_type, "state": state}
    return ", ".join(f"{name} {value!r}" for name, value in given.items() if value is not None)


def _days(length: timedelta) -> str:
    return f"{length / timedelta(days=1):g}"
