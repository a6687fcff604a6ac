"""A violation to plant into a full store, and the text that verify must report.

``{name}`` in a statement or a subject is a field of FullStore. Statements run without triggers and
checks (see planting.py), so the violation is one that a restore or a superuser could leave.
"""

from __future__ import annotations

from dataclasses import dataclass

BOTH = ("sqlite", "postgres")
OTHER = "0198c0de-0000-7000-8000-00000000000b"
NOWHERE = "0198c0de-0000-7000-8000-00000000dead"
LATER = "'2027-01-01T00:00:00.000Z'"
EARLIER = "'2026-07-01T00:00:00.000Z'"


@dataclass(frozen=True, slots=True)
class Plant:
    """One violation: statements to run, and a text that a finding must name."""

    name: str
    statements: tuple[str, ...]
    subject: str
    on: tuple[str, ...] = BOTH
    # Undoes changes of the whole server, such as a change of a role.
    undo: str = ""
    # Runs with checks and triggers, as the owner of the tables.
    is_schema: bool = False
    # Why verify cannot find it; documented in docs/operations/verify.md.
    out_of_reach: str = ""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


# The columns of an envelope; a copy has another id, key and number of its event.
COLUMNS = """id, org_id, event_id, turn, created_at, not_before_at, scheduled_for, project_id,
    replay_of, max_attempts, priority, job_type, category, origin_queue, queue, limit_key, stage,
    pipeline_version, actor_type, actor_id, request_id, correlation_id, idempotency_key, unit_key,
    payload_hash, traceparent, routing_decision, payload"""
FORGED = (
    COLUMNS.replace("id,", f"'{NOWHERE}',", 1)
    .replace("event_id", "event_id + 100000")
    .replace("idempotency_key", "NULL")
    .replace("unit_key", "NULL")
)
FACTS = (
    "outcome",
    "attempt",
    "cancel",
    "key_seen",
    "stage",
    "ready",
    "waiting",
    "running",
    "submitted",
)
_EVENT = (
    "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
    " actor_id, request_id, correlation_id, at) SELECT org_id, id, job_type, '{event}', 1,"
    " 'system', 'hand', request_id, correlation_id, updated_at FROM holdfast.job"
    " WHERE id = '{job}'"
)


def change(name: str, job: str, table: str, changes: str) -> Plant:
    """A row of a job of the full store with other values than it should have."""
    key = "id" if table == "envelope" else "job_id"
    text = f"UPDATE holdfast.job_{table} SET {changes} WHERE {key} = '{{{job}}}'"
    return Plant(name, (text,), f"{{{job}}}")


def delete(job: str) -> tuple[str, ...]:
    """Statements that delete a job with everything that belongs to it."""
    return (
        *(f"DELETE FROM holdfast.job_{fact} WHERE job_id = '{{{job}}}'" for fact in FACTS),
        f"DELETE FROM holdfast.job_envelope WHERE id = '{{{job}}}'",
    )


def leave(job: str) -> tuple[str, ...]:
    """Statements that remove a job from its place."""
    return tuple(
        f"DELETE FROM holdfast.job_{place} WHERE job_id = '{{{job}}}'" for place in FACTS[-4:]
    )


def enter(place: str, job: str, token: int = 0) -> str:
    """A statement that puts a job into a place where jobs wait."""
    return (
        f"INSERT INTO holdfast.job_{place} (org_id, job_id, queue, limit_key, turn, created_at,"
        " lease_token, unit) SELECT org_id, id, origin_queue, limit_key, coalesce(turn, id),"
        f" created_at, {token}, coalesce(job_type || unit_key, '') FROM holdfast.job_envelope"
        f" WHERE id = '{{{job}}}'"
    )


def end(job: str, state: str, result: str = "NULL") -> str:
    """A statement that writes an outcome by hand."""
    return (
        "INSERT INTO holdfast.job_outcome (org_id, job_id, finished_at, key_expires_at,"
        " lease_token, attempt_count, state, result, started_event_id, started_attempt, claimed_at,"
        " claimed_by) SELECT job.org_id, job.id, job.updated_at, '2026-12-01T00:00:00.000Z',"
        f" job.lease_token, job.attempt_count, '{state}', {result}, running.started_event_id,"
        " running.started_attempt, running.claimed_at, running.claimed_by FROM holdfast.job AS job"
        " LEFT JOIN holdfast.job_running AS running ON running.org_id = job.org_id"
        f" AND running.job_id = job.id WHERE job.id = '{{{job}}}'"
    )


def event(name: str, job: str) -> str:
    """A statement that writes an event about a job by hand."""
    return _EVENT.replace("{event}", name).replace("{job}", f"{{{job}}}")
