"""Retention: finished jobs are archived, and pruned when their retention is over.

An archived job has left the table that workers claim from. It is still found, counted and shown,
and its key still dedupes. Failed jobs are not archived: operators act on them in place, and they
are kept until their dead letter is closed. Deliveries are kept as long as jobs are by default. All
passes are bounded, idempotent and safe to run concurrently in any process.

Keys expire without a sweep: the record of a key ends at ``expires_at``, and its job row is pruned
no earlier than that.
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
from holdfast.store import Row, Statement, Statements, Store, Tx

SQL = Statements("holdfast.engine", "retention.sql")

# The rows that one transaction moves or deletes: enough to be cheap, few enough not to delay a
# settle that waits for it on SQLite.
BITE = 1_000
# The number of such transactions in one maintenance pass: enough for a worker that runs 10,000 jobs
# a second, without delaying rescues by more than a few seconds.
BITES = 50

ARCHIVED = (State.COMPLETED, State.CANCELED)


STEPS = frozenset({"archive", "prune", "prune_deliveries"})


def archive_and_prune(
    store: Store, retention: RetentionSettings, steps: Collection[str] = STEPS
) -> dict[str, int]:
    """One bounded pass of each of *steps*; returns the number of moved or deleted rows per kind.

    A step that is left out counts 0.
    """
    after = timedelta(hours=retention.archive_after_hours)
    turns: dict[str, tuple[str, Callable[[], int]]] = {
        "archive": ("archived", lambda: archive_jobs(store, after=after, limit=BITE)),
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


def archive_jobs(store: Store, *, after: timedelta, limit: int) -> int:
    """Archive at most *limit* jobs that completed or were canceled at least *after* ago."""

    def work(tx: Tx) -> int:
        ended = tx.many(SQL.find_archivable, after_ms=ms(after), limit=limit)
        if not ended:
            return 0
        moved = tx.many(SQL.archive_jobs, ended=ended)
        tx.affected(SQL.archive_stages, ended=moved)
        return tx.affected(SQL.delete_jobs, ended=moved)

    return store.write(work)


def prune_jobs(store: Store, retention: RetentionSettings, *, limit: int) -> int:
    """Delete finished jobs whose retention is over and whose key has expired, at most *limit*.

    Each leaves a last event, ``job.pruned``. A job that is missing without one was deleted
    manually.
    """

    def work(tx: Tx) -> int:
        archived = _limits(retention, tx.many(SQL.list_archived_kinds), ARCHIVED)
        pruned = 0
        if archived:
            over = tx.many(SQL.find_prunable, kinds=archived, limit=limit)
            pruned += _prune(tx, SQL.prune_history, over)
        failed = _limits(retention, tx.many(SQL.list_failed_kinds), (State.FAILED,))
        for find in (SQL.find_prunable_failed, SQL.find_prunable_replays):
            if failed and pruned < limit:
                over = tx.many(find, kinds=failed, limit=limit - pruned)
                pruned += _prune(tx, SQL.delete_jobs, over)
        return pruned

    return store.write(work)


def _prune(tx: Tx, delete: Statement, over: list[Row]) -> int:
    """Delete these jobs and record the deletion of each in the audit, which outlives them."""
    if not over:
        return 0
    tx.affected(SQL.record_pruned, ended=over, actor_type=SYSTEM.type.value, actor_id=SYSTEM.id)
    return tx.affected(delete, ended=over)


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


def _limits(
    retention: RetentionSettings, kinds: Iterable[Row], states: Iterable[State]
) -> list[dict[str, Any]]:
    """The retention of each kind in each of these states."""
    return [
        {**kind, "state": state, "keep_ms": ms(keep_of(retention, **kind, state=state))}
        for kind, state in product(kinds, states)
    ]


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
            for state in (*ARCHIVED, State.FAILED)
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
