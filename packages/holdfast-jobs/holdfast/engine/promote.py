"""Promote: deferred jobs that are due become claimable.

A deferred job does not slow down claims until it is due. A delayed notification waits on
q:maintenance and is promoted to the queue it was meant for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.store import Statement, Statements, Store

SQL = Statements("holdfast.engine", "flow.sql")

LIMIT = 1_000
# If more is due than one pass takes, another pass takes equally many of every tenant. 2,000 rows
# take a third of a second on PostgreSQL, and a worker that promotes does not claim.
TENANTS_LIMIT = 5_000


def promote_jobs(store: Store, queues: Collection[str]) -> int:
    """Promote the due jobs of *queues* in bounded passes; returns how many."""
    promoted: list[str] = []
    for queue in queues:
        moved = _promote(store, SQL.promote_due, queue=queue, limit=LIMIT)
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


def _promote(store: Store, statement: Statement, **params: Any) -> list[str]:
    """Promote jobs; return the queues that they were moved to."""
    return [to for (to,) in store.values(statement, **params)]
