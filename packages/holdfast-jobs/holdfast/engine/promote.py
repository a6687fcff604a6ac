"""Poll queues, and promote: deferred jobs that are due become ready.

A deferred job does not slow down claims until it is due. A delayed notification waits on
q:maintenance and is promoted to the queue it was meant for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from holdfast.engine.deadline import expire_jobs
from holdfast.errors import RuleBroken
from holdfast.event import Events
from holdfast.store import Row, Statement, Statements, Store

SQL = Statements("holdfast.engine", "flow.sql")

LIMIT = 1_000
# If more is due than one pass takes, another pass takes equally many of every tenant. 2,000 rows
# take a third of a second on PostgreSQL, and a worker that promotes does not claim.
TENANTS_LIMIT = 5_000


def poll_queues(store: Store, queues: Iterable[str], events: Events | None = None) -> list[Row]:
    """Which of *queues* have jobs to claim or to promote, in one statement.

    Jobs whose deadline has passed are canceled first.
    """
    names = [{"name": queue} for queue in queues]
    seen = store.many(SQL.poll_queues, queues=names)
    if any(row["has_expired"] for row in seen) and expire_jobs(store, events):
        seen = store.many(SQL.poll_queues, queues=names)
    return seen


def promote_jobs(store: Store, queues: Collection[str]) -> int:
    """Promote the due jobs of *queues* in bounded passes; returns how many."""
    promoted: list[str] = []
    for queue in queues:
        try:
            moved = _promote(store, SQL.promote_due, queue=queue, limit=LIMIT)
        except RuleBroken:
            promoted += _promote_by_tenant(store, queue)
            continue
        promoted += moved
        if len(moved) == LIMIT:
            promoted += _promote_fairly(store, queue)
    elsewhere = sorted(set(promoted) - set(queues))
    if elsewhere:
        store.announce(elsewhere)
    return len(promoted)


def _promote_fairly(store: Store, queue: str) -> list[str]:
    """Promote equally many jobs per tenant, for when one tenant's due jobs precede all others."""
    rows = store.many(SQL.find_due, queue=queue, limit=TENANTS_LIMIT)
    if not rows:
        return []
    each = max(1, LIMIT // len(rows))
    return _promote(store, SQL.promote_fairly, queue=queue, tenants=rows, each=each)


def _promote_by_tenant(store: Store, queue: str) -> list[str]:
    """Promote each tenant alone, for when the database refuses a job.

    The rows of that job were changed by hand. The other jobs of its tenant wait until it is
    repaired; verify names it.
    """
    promoted: list[str] = []
    for tenant in store.many(SQL.find_due, queue=queue, limit=TENANTS_LIMIT):
        with suppress(RuleBroken):
            promoted += _promote(
                store, SQL.promote_fairly, queue=queue, tenants=[tenant], each=LIMIT
            )
    return promoted


def _promote(store: Store, statement: Statement, **params: Any) -> list[str]:
    """Promote jobs; return the queues that they were moved to."""
    return [to for (to,) in store.values(statement, **params)]
