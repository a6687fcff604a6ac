"""Checks before every changing action: the role, and a reason for the audit."""

from __future__ import annotations

from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.refusal import InvalidAction

LONGEST_REASON = 500


def admit(
    context: OperatorContext,
    action: Action,
    reason: str,
    *,
    org_id: str | None,
    subject: str,
    longest: int = LONGEST_REASON,
) -> str:
    """Return the reason in stored form if *action* is allowed. Every refusal is audited."""
    context.check(action, org_id=org_id, subject=subject)
    try:
        (reason,) = read_texts(reason=(reason, longest))
    except InvalidAction as exc:
        context.refuse(action, exc, org_id=org_id, subject=subject)
    return reason
