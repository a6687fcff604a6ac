"""Cancel: a waiting job is canceled at once; a running one is asked to stop at its next step.

A job that waits for a provider batch is canceled at once too. A later reply for it finds no held
claim and is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from holdfast.actor import ActorType, Role
from holdfast.document import BadDocument, check
from holdfast.engine import audit
from holdfast.engine.dead_letter import end_canceled_replays
from holdfast.engine.handler import Registry
from holdfast.engine.job import Actor, State
from holdfast.engine.state_hook import reached_row, run_state_statements
from holdfast.errors import Forbidden, InvalidJob, JobNotFound, StoreBusy
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.caller_connection import noting_queues

SQL = Statements("holdfast.engine", "job.sql")
JOB_TYPE_SQL = Statements("holdfast.engine", "job_type.sql")


class CancelAnswer(StrEnum):
    """The effect of a cancel request."""

    CANCELED = "canceled"
    REQUESTED = "requested"
    TOO_LATE = "too_late"


def cancel_job(
    store: Store,
    *,
    org_id: str,
    job_id: str,
    actor: Actor,
    reason: str,
    role: Role | None = None,
    registry: Registry | None = None,
) -> CancelAnswer:
    """Request the cancellation of a job. Every request is audited, effective or not.

    If the job type declares a ``cancel_role``, *role* must be at least that; without a role only
    the system may cancel. Raises Forbidden otherwise.
    """
    check_texts(actor, reason)
    _check_role(store, registry, org_id=org_id, job_id=job_id, actor=actor, role=role)

    def work(tx: Tx) -> CancelAnswer:
        asked = [{"org_id": org_id, "id": job_id}]
        for answer in request_cancels(tx, asked, actor=actor, reason=reason).values():
            return answer
        raise JobNotFound(job_id)

    with noting_queues() as queues:
        # The caller gets a quick reply, even while another transaction holds the row.
        answered = store.write_soon(work)
    if queues:
        store.announce(sorted(queues))
    return answered


def check_texts(actor: Actor, reason: str) -> None:
    """Raise InvalidJob if the actor or the reason cannot be stored."""
    for name, text in (("actor", actor.id), ("reason", reason)):
        try:
            check(text)
        except BadDocument as exc:
            raise InvalidJob({name: str(exc)}) from exc


def request_cancels(
    tx: Tx,
    asked: Sequence[Row],
    *,
    actor: Actor,
    reason: str,
    detail: Mapping[str, Any] | None = None,
) -> dict[tuple[str, str], CancelAnswer]:
    """Cancel jobs in a fixed number of statements; all are audited. Returns those that exist."""
    jobs = _hold(tx, asked)
    answers = {key: _ANSWERS.get(job["state"], CancelAnswer.TOO_LATE) for key, job in jobs.items()}
    open_jobs = [jobs[key] for key, answer in answers.items() if answer != CancelAnswer.TOO_LATE]
    waiting = [jobs[key] for key, answer in answers.items() if answer is CancelAnswer.CANCELED]
    if open_jobs:
        tx.affected(SQL.insert_cancels, jobs=_ids(open_jobs))
    if waiting:
        tx.many(SQL.cancel_jobs, jobs=_ids(waiting))
    entries, canceled = list[audit.Entry](), list[Row]()
    for key, job in jobs.items():
        attempt = job["attempt_count"] + 1
        says = {"reason": reason[:200], "answer": answers[key], "was": job["state"]}
        says |= detail or {}
        entries.append(audit.Entry(*key, "job.cancel_requested", attempt, says))
        if answers[key] is CancelAnswer.CANCELED:
            entries.append(audit.Entry(*key, "job.canceled", attempt))
            canceled.append(job)
    run_state_statements(tx, [reached_row(job, State.CANCELED) for job in canceled])
    audit.record(tx, actor, entries)
    end_canceled_replays(tx, canceled, actor=actor)
    return answers


_ANSWERS = {
    State.QUEUED: CancelAnswer.CANCELED,
    State.BATCH_SUBMITTED: CancelAnswer.CANCELED,
    State.PROCESSING: CancelAnswer.REQUESTED,
}
# A job is seldom moved by another transaction even once while it is canceled.
HOLDS = 10


def _hold(tx: Tx, asked: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Return these jobs, with the columns of ``list_cancelable``, and keep each where it is.

    A settle, a claim or a rescue that began before has ended then, and a later one waits and finds
    the request. So the state that is returned decides.
    """
    held = set[tuple[str, str]]()
    for _ in range(HOLDS):
        missing = [row for row in asked if _key(row) not in held]
        held |= {_key(row) for row in tx.many(SQL.hold_places, jobs=_ids(missing))}
        jobs = {_key(row): row for row in tx.many(SQL.list_cancelable, jobs=_ids(asked))}
        if jobs.keys() <= held:
            return jobs
    raise StoreBusy("Other transactions moved a job while it was canceled. Try again.")


def _ids(rows: Sequence[Row]) -> list[Row]:
    return [{"org_id": row["org_id"], "id": row["id"]} for row in rows]


def _key(row: Row) -> tuple[str, str]:
    return str(row["org_id"]), str(row["id"])


def _check_role(
    store: Store,
    registry: Registry | None,
    *,
    org_id: str,
    job_id: str,
    actor: Actor,
    role: Role | None,
) -> None:
    """Raise Forbidden and audit it, unless the caller may cancel jobs of this type."""
    job = store.maybe(JOB_TYPE_SQL.find_cancel_rule, org_id=org_id, id=job_id)
    if job is None:
        raise JobNotFound(job_id)
    least = _least_role(registry, job["job_type"], job["cancel_role"])
    if least is None or _may_cancel(actor, role, least):
        return
    # A caller without a role acts for its tenant, with the rights of a member.
    detail = {"action": "cancel", "role": role or Role.MEMBER, "why": Forbidden.__name__}
    store.write(
        lambda tx: audit.record_action(
            tx,
            actor,
            subject=f"job:{job_id}",
            name="operator.refused",
            detail=detail,
            org_id=org_id,
        )
    )
    raise Forbidden(
        f"Job {job_id} was not canceled: only the system or the role {least} cancels jobs of type"
        f" {job['job_type']!r}. Use hf.operate(actor=…, role={str(least)!r}).cancel(…)."
    )


def may_cancel(job: Row, *, actor: Actor, role: Role | None, registry: Registry | None) -> bool:
    """Whether the rule of the type of *job*, a row of ``list_cancelable``, allows a cancel."""
    least = _least_role(registry, job["job_type"], job["cancel_role"])
    return least is None or _may_cancel(actor, role, least)


def _may_cancel(actor: Actor, role: Role | None, least: Role) -> bool:
    return actor.type is ActorType.SYSTEM if role is None else role.rank >= least.rank


def _least_role(registry: Registry | None, job_type: str, stored: str | None) -> Role | None:
    """The stricter of the roles that the store and this process declare."""
    declared = None
    if registry is not None and job_type in registry:
        declared = registry.get(job_type).cancel_role
    found = [role for role in (declared, None if stored is None else Role(stored)) if role]
    return max(found, key=lambda role: role.rank, default=None)
