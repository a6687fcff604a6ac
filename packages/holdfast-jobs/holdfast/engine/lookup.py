"""Look up one job, or the record of an idempotency key, of one tenant."""

from __future__ import annotations

from holdfast.engine.job import Job, KeyRecord
from holdfast.engine.request import full_key, owner_of
from holdfast.errors import JobNotFound
from holdfast.store import Statements, Store

SQL = Statements("holdfast.engine", "lookup.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")


def find_job(store: Store, org_id: str, job_id: str) -> Job:
    """Return the job; raises JobNotFound if this tenant has none with the id."""
    row = store.read(lambda tx: tx.maybe(SQL.find_with_progress, org_id=org_id, id=job_id))
    if row is None:
        raise JobNotFound(job_id)
    return Job.from_row(row)


def find_key(
    store: Store, job_type: str, org_id: str, project_id: str | None, idempotency_key: str
) -> KeyRecord | None:
    """The record of a caller's idempotency key; None if it is unknown or has expired."""
    key = full_key(job_type, org_id, project_id, idempotency_key)
    given = {"org_id": org_id, "idempotency_key": key, "key_of": owner_of(key)}
    row = store.read(lambda tx: tx.maybe(JOB_SQL.find_key, **given))
    return None if row is None else KeyRecord.from_row(row)
