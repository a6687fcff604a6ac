"""Finds the tenant of a job by its id; members of a tenant find only their own jobs."""

from __future__ import annotations

from holdfast.engine.audit import JOB_SQL
from holdfast.errors import JobNotFound
from holdfast.ids import read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.store import Tx


def locate_job(context: OperatorContext, action: Action, job_id: str) -> tuple[str, str]:
    """Return the tenant and the id of a job that *context* may do *action* on.

    Raises JobNotFound for an unknown id and for another tenant's job, and Forbidden for a role
    without permission. Refusals are audited, except for reads by an actor who may see every tenant.
    """
    subject = f"job:{job_id[:100]}"
    try:
        known_id = read_uuid(job_id)
    except ValueError:
        known_id = None
    org_id = (
        None if known_id is None else context.store.read(lambda tx: _org_of(tx, context, known_id))
    )
    if known_id is None or org_id is None:
        error = JobNotFound(job_id[:100])
        if context.org_id is None and action is Action.LOOK:
            raise error
        context.refuse(action, error, org_id=context.org_id, subject=subject)
    context.check(action, org_id=org_id, subject=subject)
    return org_id, known_id


def _org_of(tx: Tx, context: OperatorContext, job_id: str) -> str | None:
    org_id = context.org_id
    if org_id is None:
        row = tx.maybe(JOB_SQL.find_org, id=job_id)
        if row is None or row["org_id"] is None:
            return None
        org_id = str(row["org_id"])
    # An id in the audit may belong to a queue or a schedule.
    return None if tx.maybe(JOB_SQL.find_job, org_id=org_id, id=job_id) is None else org_id
