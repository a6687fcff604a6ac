"""Upkeep of workflows: overdue steps, ends that were missed, and retention."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.actor import SYSTEM
from holdfast.clock import ms
from holdfast.engine.cancel import cancel_job
from holdfast.engine.state_hook import STEP, Reached, run_state_statements
from holdfast.errors import Forbidden, JobNotFound
from holdfast.store import Tx
from holdfast.store.caller_connection import noting_queues
from holdfast.workflows.cancel import SQL

if TYPE_CHECKING:
    from holdfast.app import Holdfast

LIMIT = 200


def upkeep(app: Holdfast) -> int:
    """One bounded pass; returns how many rows it changed. One statement if there is no work."""
    found = app.store.one(SQL.find_upkeep, since_ms=_since_ms(app))
    changed = cancel_overdue(app) if found["has_overdue"] else 0
    changed += catch_up(app) if found["has_workflows"] else 0
    return changed + (prune(app) if found["has_old"] else 0)


def _since_ms(app: Holdfast) -> int:
    return -ms(timedelta(days=app.settings.workflows.keep_days))


def cancel_overdue(app: Holdfast) -> int:
    """Cancel the unfinished jobs of steps whose deadline has passed."""
    steps = app.store.many(SQL.find_overdue, limit=LIMIT)
    for step in steps:
        key = {"org_id": step["org_id"], "id": step["workflow_id"], "step": step["step"]}
        for row in app.store.many(SQL.list_overdue, **key):
            try:
                cancel_job(
                    app.store,
                    org_id=str(step["org_id"]),
                    job_id=str(row["id"]),
                    actor=SYSTEM,
                    reason=f"the deadline of step {step['step']} has passed",
                )
            except (Forbidden, JobNotFound):
                continue
        # Last: an interrupted pass is repeated.
        app.store.execute(SQL.clear_deadline, **key)
    return len(steps)


def catch_up(app: Holdfast) -> int:
    """End the items of jobs that a process ended before it knew the tables of workflows."""
    if not app.store.many(SQL.find_unseen, limit=1):
        return 0

    def work(tx: Tx) -> int:
        found = [
            Reached(
                str(row["org_id"]),
                str(row["job_id"]),
                row["job_type"],
                row["state"],
                str(row["first_id"]),
                STEP,
                str(row["workflow_id"]),
            )
            for row in tx.many(SQL.find_unseen, limit=LIMIT)
        ]
        run_state_statements(tx, found)
        return len(found)

    with noting_queues() as queues:
        done = app.store.write(work)
    if queues:
        app.store.announce(sorted(queues))
    return done


def prune(app: Holdfast) -> int:
    """Delete workflows, waits and events whose retention is over."""
    kept = {"since_ms": _since_ms(app), "limit": LIMIT}
    statements = (SQL.prune_workflows, SQL.prune_waits, SQL.prune_events)
    return sum(app.store.execute(statement, **kept) for statement in statements)
