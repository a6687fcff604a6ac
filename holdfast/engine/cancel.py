"""Cancel: a waiting job ends at once, a running one is asked and stops at its next step.

A job that waits for a provider's batch ends at once, too. What comes back for it later finds no
claim that is still held, and is dropped.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.document import BadDocument, check
from holdfast.engine import audit
from holdfast.engine.job import Actor, State
from holdfast.engine.letter import end_canceled_replay
from holdfast.errors import InvalidJob, JobNotFound
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")


class CancelAnswer(StrEnum):
    """What a cancel request achieved."""

    CANCELED = "canceled"
    REQUESTED = "requested"
    TOO_LATE = "too_late"


def cancel_job(
    store: Store, *, org_id: str, job_id: str, actor: Actor, reason: str
) -> CancelAnswer:
    """Ask for a job to be stopped. Every request is audited, effective or not."""
    for name, text in (("actor", actor.id), ("reason", reason)):
        try:
            check(text)
        except BadDocument as exc:
            raise InvalidJob({name: str(exc)}) from exc

    def work(tx: Tx) -> CancelAnswer:
        job = tx.maybe(SQL.find_job, org_id=org_id, id=job_id)
        if job is None:
            raise JobNotFound(job_id)
        changed = tx.maybe(SQL.request_cancel, org_id=org_id, id=job_id)
        if changed is None:
            answer = CancelAnswer.TOO_LATE
        elif changed["state"] == State.CANCELED:
            answer = CancelAnswer.CANCELED
        else:
            answer = CancelAnswer.REQUESTED
        attempt = job["attempt_count"] + 1
        detail = {"reason": reason[:200], "answer": answer, "was": job["state"]}
        entries = [audit.Entry(org_id, job_id, "job.cancel_requested", attempt, detail)]
        if answer is CancelAnswer.CANCELED:
            entries.append(audit.Entry(org_id, job_id, "job.canceled", attempt))
        audit.record(tx, actor, entries)
        if answer is CancelAnswer.CANCELED:
            end_canceled_replay(tx, job, actor=actor)
        return answer

    return store.write(work)
