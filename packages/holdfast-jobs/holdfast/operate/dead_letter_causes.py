"""Dead letters grouped by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.clock import read_instant
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk import SUBJECT
from holdfast.operate.dead_letter import DeadLetterState
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.page import LONGEST_PAGE
from holdfast.operate.replay import SQL


@dataclass(frozen=True, slots=True)
class Cause:
    """Open dead letters with the same cause and state."""

    job_type: str
    error_class: str
    stage: str
    queue: str
    state: DeadLetterState
    letters: int
    escalated: int
    oldest_at: datetime
    newest_at: datetime


def list_causes(context: OperatorContext, wanted: DeadLetterFilter) -> Sequence[Cause]:
    """Return the open dead letters that match, grouped, the largest group first."""
    wanted = wanted.check()
    org_id = context.tenant_for(Action.LOOK, wanted.org_id, subject=SUBJECT)
    params = wanted.params(org_id)
    rows = context.store.read(lambda tx: tx.many(SQL.list_causes, **params, limit=LONGEST_PAGE))
    return [
        Cause(
            row["job_type"],
            row["error_class"],
            row["stage"],
            row["queue"],
            DeadLetterState(row["state"]),
            row["letters"],
            row["escalated"],
            read_instant(row["oldest_at"]),
            read_instant(row["newest_at"]),
        )
        for row in rows
    ]
