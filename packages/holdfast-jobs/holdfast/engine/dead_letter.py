"""Dead letters: written when a job fails, and updated when a replay of it ends.

Both happen in the transaction that ends the job. A replay has no dead letter of its own: its
outcome is written to the dead letter of the job that it repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.document import encode, stable_hash
from holdfast.engine import audit
from holdfast.engine.classify import safe_context
from holdfast.engine.job import Actor, Canceled, Claimed, Completed, Dead, Outcome
from holdfast.event import DeadLetterEscalated
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.engine", "dead_letter.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

# Keys of a failure's context that may hold the error code of the other side.
UPSTREAM_CODES = ("upstream_code", "status", "status_code", "http_status")


@dataclass(frozen=True, slots=True)
class Written:
    """Audit entries of the written dead letters, and escalations by tenant and replay."""

    entries: list[audit.Entry] = field(default_factory=list)
    escalated: dict[tuple[str, str], DeadLetterEscalated] = field(default_factory=dict)


def write_dead_letters(tx: Tx, settled: Sequence[tuple[Claimed, Outcome]]) -> Written:
    """Insert dead letters of failed jobs, and record the outcomes of replays."""
    written, of_item = Written(), set()
    ends = {
        (job.org_id, job.id): (job, outcome)
        for job, outcome in settled
        if job.replay_of is not None and isinstance(outcome, (Completed, Dead, Canceled))
    }
    if ends:
        for row in _end_replays(tx, [_end(job, outcome) for job, outcome in ends.values()]):
            key = row["org_id"], row["replay_job_id"]
            job, outcome = ends[key]
            of_item.add(key)
            is_escalated = isinstance(outcome, Dead) and row["escalated_at"] == row["updated_at"]
            written.entries.extend(_entries(row, is_escalated=is_escalated))
            if is_escalated:
                written.escalated[key] = _escalation(job, row)
    letters = [
        _row_of(job, outcome)
        for job, outcome in settled
        if isinstance(outcome, Dead) and (job.org_id, job.id) not in of_item
    ]
    if letters:
        tx.affected(JOB_SQL.insert_dead_letters, letters=letters)
    return written


def end_canceled_replays(tx: Tx, jobs: Iterable[Row], *, actor: Actor) -> None:
    """Record in their dead letters that those of *jobs* that are waiting replays were canceled."""
    ends = [
        {"org_id": job["org_id"], "id": job["id"], "is_permanent": 0}
        for job in jobs
        if job["replay_of"] is not None
    ]
    if ends:
        ended = _end_replays(tx, ends)
        entries = [entry for row in ended for entry in _entries(row, is_escalated=False)]
        audit.record(tx, actor, entries)


def _end_replays(tx: Tx, ends: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the dead letters of replays that ended; each row names its replay."""
    ended = tx.many(SQL.end_replays, ended=ends)
    if not ended:
        return []
    replay_of = {(row["org_id"], row["job_id"]): row["replay_job_id"] for row in ended}
    items = tx.many(SQL.end_replaying, ended=ends)
    return [
        {**row, "replay_job_id": replay_of[row["org_id"], row["job_id"]]}
        for row in items
        if (row["org_id"], row["job_id"]) in replay_of
    ]


def _end(job: Claimed, outcome: Outcome) -> dict[str, Any]:
    end: dict[str, Any] = {"org_id": job.org_id, "id": job.id, "is_permanent": 0}
    if isinstance(outcome, Dead):
        letter = _row_of(job, outcome)
        end |= {
            "stack": letter["last_stack"],
            "context": letter["sanitized_context"],
            "tries": letter["attempts"],
            "is_permanent": 0 if outcome.fault.retryable else 1,
        }
    return end


def _row_of(job: Claimed, outcome: Dead) -> dict[str, Any]:
    fault = outcome.fault
    context: dict[str, Any] = {
        # The context of a handler never overrides the engine's own fields.
        **fault.context,
        # Callers choose their own ids, which may contain a name or an address.
        **safe_context({"request_id": job.request_id, "correlation_id": job.correlation_id}),
        "stage": job.stage,
        "attempts": job.attempt,
        "max_attempts": job.max_attempts,
        "worker_id": job.claimed_by,
        "job_version": job.pipeline_version,
        "payload_hash": stable_hash(job.payload)[:12],
    }
    code = next((fault.context[name] for name in UPSTREAM_CODES if name in fault.context), None)
    if code is not None:
        context["upstream_code"] = code
    return {
        "org_id": job.org_id,
        "id": job.id,
        "last_stack": fault.stack,
        "sanitized_context": encode(context),
        "attempts": job.attempt,
    }


def _entries(row: Row, *, is_escalated: bool) -> list[audit.Entry]:
    """The audit entries of the original job for the end of a replay."""
    known = {"replay": row["replay_count"], "replay_job_id": row["replay_job_id"]}
    if row["state"] == "replayed":
        names = ["dead_letter.replayed"]
    else:
        known["error_class"] = row["error_class"]
        names = ["dead_letter.reopened", *(["dead_letter.escalated"] if is_escalated else [])]
    return [
        audit.Entry(row["org_id"], row["job_id"], name, row["attempts"], known) for name in names
    ]


def _escalation(job: Claimed, row: Row) -> DeadLetterEscalated:
    return DeadLetterEscalated(
        job.about, row["job_id"], job.queue, job.stage, row["error_class"], row["replay_count"]
    )
