"""Cancel a workflow: no further step starts, and its unfinished jobs are canceled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.actor import Actor, Role
from holdfast.engine.audit import record_action
from holdfast.engine.cancel import CancelAnswer, cancel_job
from holdfast.errors import Forbidden, JobNotFound
from holdfast.store import Statements, Tx
from holdfast.workflows.handle import WorkflowDetail

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SQL = Statements("holdfast.workflows", "operate.sql")


def cancel_workflow(
    app: Holdfast, workflow: WorkflowDetail, *, actor: Actor, reason: str, role: Role | None = None
) -> int:
    """Cancel a workflow; return how many jobs were canceled or asked to stop.

    The first transaction ends the workflow, so that no step starts after it. Each job is then
    canceled like a single one. A repeated call cancels what an interrupted one left.
    """
    key = {"org_id": workflow.org_id, "id": workflow.id}

    def work(tx: Tx) -> None:
        tx.maybe(SQL.lock_workflow, **key)
        changed = tx.affected(SQL.cancel_workflow, **key)
        tx.affected(SQL.cancel_waiting, **key)
        record_action(
            tx,
            actor,
            subject=f"workflow:{workflow.id}",
            name="workflow.cancel_requested",
            detail={"reason": reason[:200], "was": workflow.state, "changed": bool(changed)},
            org_id=workflow.org_id,
        )

    app.store.write_soon(work)
    canceled = 0
    for row in app.store.many(SQL.list_unended, **key):
        try:
            answer = cancel_job(
                app.store,
                org_id=workflow.org_id,
                job_id=str(row["id"]),
                actor=actor,
                reason=f"workflow {workflow.id} was canceled",
                role=role,
                registry=app.registry,
            )
        except (Forbidden, JobNotFound):
            continue
        canceled += answer is not CancelAnswer.TOO_LATE
    return canceled
