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


COLUMNS = """id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
    correlation_id, idempotency_key, payload, payload_hash, priority, unit_key, scheduled_for,
    traceparent, routing_decision, replay_of, origin_queue, created_at, state, queue, stage,
    pipeline_version, attempt_count, max_attempts, not_before_at, lease_token, lease_expires_at,
    claimed_at, claimed_by, cancel_requested_at, provider_batch_id, first_failed_at, last_error,
    last_error_at, error_class, result, updated_at, finished_at, key_last_seen_at, key_expires_at,
    turn, limit_key"""
COPIED = COLUMNS.replace("idempotency_key", "idempotency_key || 'x'", 1)
FORGED = COPIED.replace("id,", f"'{NOWHERE}',", 1)
_EVENT = (
    "INSERT INTO holdfast.job_event (org_id, job_id, job_type, name, attempt, actor_type,"
    " actor_id, request_id, correlation_id, at) SELECT org_id, id, job_type, '{event}', 1,"
    " 'system', 'hand', request_id, correlation_id, updated_at FROM holdfast.job_record"
    " WHERE id = '{job}'"
)


def change(name: str, job: str, changes: str, table: str = "job") -> Plant:
    """A job of the full store with other values than it should have."""
    text = f"UPDATE holdfast.{table} SET {changes} WHERE id = '{{{job}}}'"
    return Plant(name, (text,), f"{{{job}}}")


def event(name: str, job: str) -> str:
    """A statement that writes an event about a job by hand."""
    return _EVENT.replace("{event}", name).replace("{job}", f"{{{job}}}")
