"""Cancel many jobs by filter, with a dry run. Each job is canceled like a single one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.actor import Role
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.job import State
from holdfast.errors import Forbidden, JobNotFound
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.cancel import LONGEST_REASON, cancel_job
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Statements, Tx

if TYPE_CHECKING:
    from holdfast.operate.jobs import JobFilter

SQL = Statements("holdfast.operate", "overview.sql")

LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class CancelAllAnswer:
    """The result of a bulk cancel; for a dry run, how many jobs match.

    *is_capped* means that more jobs match than one call cancels.
    """

    is_dry_run: bool
    matched: int
    is_capped: bool
    done: int = 0
    requested: int = 0
    too_late: int = 0
    refused: int = 0


def cancel_matching(
    context: OperatorContext, wanted: JobFilter, *, reason: str, is_dry_run: bool, limit: int
) -> CancelAllAnswer:
    """Cancel the jobs that match *wanted*, at most *limit* of them."""
    wanted = wanted.check()
    org_id = context.tenant_for(Action.CANCEL, wanted.org_id, subject="jobs")
    if not 1 <= limit <= LONGEST:
        raise InvalidAction({"limit": f"must be from 1 to {LONGEST}"})
    if wanted == type(wanted)():
        raise InvalidAction({"filter": "is empty and would match everything; name a condition"})
    if wanted.state is not None and State(wanted.state).is_terminal:
        raise InvalidAction({"state": f"{wanted.state} jobs cannot be canceled"})
    if org_id is None and context.role is not Role.ADMIN:
        refusal = Forbidden(
            "cancel across tenants requires the role admin; pass org_id for one tenant."
        )
        context.refuse(Action.CANCEL, refusal, org_id=None, subject="jobs")
    reason = admit(
        context, Action.CANCEL, reason, org_id=org_id, subject="jobs", longest=LONGEST_REASON
    )
    found = _find(context, wanted, org_id, LONGEST + 1)
    answer = CancelAllAnswer(is_dry_run, min(LONGEST, len(found)), len(found) > LONGEST)
    if is_dry_run:
        return answer
    counts: Counter[str] = Counter()
    for job_id in found[:limit]:
        try:
            counts[cancel_job(context, job_id, reason=reason)] += 1
        except JobNotFound:
            counts[CancelAnswer.TOO_LATE] += 1
        except Forbidden:
            counts["refused"] += 1
    return CancelAllAnswer(
        is_dry_run,
        answer.matched,
        answer.is_capped,
        counts[CancelAnswer.CANCELED],
        counts[CancelAnswer.REQUESTED],
        counts[CancelAnswer.TOO_LATE],
        counts["refused"],
    )


def _find(context: OperatorContext, wanted: JobFilter, org_id: str | None, limit: int) -> list[str]:
    known = {*context.app.known_queues, *context.app.queues.rules().queues}
    queues = known if wanted.queue is None else {wanted.queue}
    params = {
        "queues": [{"name": name} for name in sorted(queues)],
        "org_id": org_id,
        "state": wanted.state,
        "job_type": wanted.job_type,
        "error_class": wanted.error_class,
        "limit": limit,
    }

    def work(tx: Tx) -> list[str]:
        tx.one(SQL.bound_reading)
        return [str(row["id"]) for row in tx.many(SQL.list_unfinished, **params)]

    return context.store.read(work)
