"""Cancellation by an operator: the role is checked, and every request is audited."""

from __future__ import annotations

from holdfast.engine import cancel
from holdfast.engine.cancel import CancelAnswer
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.locate import locate_job
from holdfast.operate.refusal import InvalidAction

# The maximum length that the audit stores.
LONGEST_REASON = 200


def cancel_job(context: OperatorContext, job_id: str, *, reason: str) -> CancelAnswer:
    """Cancel a job: at once if it is waiting, at its next step if it is running.

    Raises JobNotFound for another tenant's job. *reason* is kept in the audit.
    """
    org_id, job_id = locate_job(context, Action.CANCEL, job_id)
    try:
        (reason,) = read_texts(reason=(reason, LONGEST_REASON))
    except InvalidAction as exc:
        context.refuse(Action.CANCEL, exc, org_id=org_id, subject=f"job:{job_id}")
    return cancel.cancel_job(
        context.store,
        org_id=org_id,
        job_id=job_id,
        actor=context.actor,
        reason=reason,
        role=context.role,
        registry=context.registry,
    )
