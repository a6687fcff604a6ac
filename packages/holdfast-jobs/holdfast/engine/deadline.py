"""Deadlines: a waiting job whose deadline has passed is canceled and never started.

A claim passes over such a job, so it does not start even before a pass has canceled it. A job that
runs at its deadline may finish; its retry or its next call after a snooze is not started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from holdfast.clock import ms
from holdfast.engine import audit
from holdfast.engine.job import SYSTEM, State
from holdfast.engine.state_hook import reached_row, run_state_statements
from holdfast.errors import RuleBroken
from holdfast.event import About, Events, JobSettled
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.store import ENDED

SQL = Statements("holdfast.engine", "unique.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

LIMIT = 1_000
DEADLINE_PASSED = "deadline_passed"


def expire_jobs(store: Store, events: Events | None = None) -> int:
    """Cancel waiting jobs whose deadline has passed, in one bounded pass; returns how many."""
    found: list[Row] = []

    def work(tx: Tx) -> list[Row]:
        found[:] = tx.many(SQL.find_expired, limit=LIMIT)
        expired = _cancel(tx, found)
        tx.affected(SQL.close_deadlines)
        return expired

    try:
        expired = store.write(work)
    except RuleBroken:
        # The database refuses one of them, whose rows were changed by hand.
        expired = [row for one in found for row in _cancel_alone(store, one)]
    if events is not None and events.subscribers:
        for row in expired:
            events.emit(_event(row))
    if expired:
        store.announce([ENDED])
    return len(expired)


def _cancel(tx: Tx, found: list[Row]) -> list[Row]:
    """Cancel those of *found* that no worker has claimed since, and return them."""
    if not found:
        return []
    canceled = {(row["org_id"], row["id"]) for row in tx.many(JOB_SQL.cancel_jobs, jobs=found)}
    expired = [row for row in found if (row["org_id"], row["id"]) in canceled]
    run_state_statements(tx, [reached_row(row, State.CANCELED) for row in expired])
    audit.record(tx, SYSTEM, [_entry(row) for row in expired])
    return expired


def _cancel_alone(store: Store, row: Row) -> list[Row]:
    try:
        return store.write(lambda tx: _cancel(tx, [row]))
    except RuleBroken:
        # It is never started, and verify names it.
        return []


def _entry(row: Row) -> audit.Entry:
    detail = {"reason": DEADLINE_PASSED, "deadline_at": row["deadline_at"]}
    return audit.Entry(row["org_id"], row["id"], "job.canceled", row["attempt_count"] + 1, detail)


def _event(row: Row) -> JobSettled:
    about = About(
        row["id"],
        row["job_type"],
        row["org_id"],
        row["project_id"],
        row["request_id"],
        row["correlation_id"],
    )
    return JobSettled(about, row["queue"], row["attempt_count"] + 1, "canceled", row["stage"])


def prune_flow(store: Store, *, retention: timedelta, steps: Collection[str]) -> Counter[str]:
    """Delete closed deadlines, and unique keys that no unfinished job holds. Bounded."""
    params = {"keep_ms": ms(retention), "limit": LIMIT}
    outcomes: Counter[str] = Counter()
    if "prune_deadlines" in steps:
        outcomes["deadlines_pruned"] = store.execute(SQL.prune_deadlines, **params)
    if "prune_keys" in steps:
        outcomes["keys_pruned"] = store.execute(SQL.prune_keys, **params)
    return outcomes
