"""Replay: enqueue the job of a dead letter again, as a new job that begins at the failed stage.

The item, the job, its copied stages and the audit are written in one transaction with a fixed
number of statements, for one item or for many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.clock import ms, read_instant, write_instant
from holdfast.document import encode
from holdfast.engine import audit
from holdfast.engine.enqueue import Enqueued, InsertRows, events_of, insert_steps
from holdfast.engine.request import position_of
from holdfast.operate.authorization import OperatorContext
from holdfast.operate.dead_letter import DeadLetter, DeadLetterState
from holdfast.operate.refusal import StepRefused
from holdfast.store import Row, Statements, Tx
from holdfast.store.caller_connection import run

SQL = Statements("holdfast.operate", "dead_letter.sql")

# Columns that a replay copies from the job that it repeats.
_SHARED = (
    *("org_id", "project_id", "job_type", "category", "actor_type", "actor_id", "request_id"),
    *("correlation_id", "priority", "limit_key", "traceparent", "routing_decision", "origin_queue"),
)


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays of a transaction, and the events to emit after its commit."""

    made: tuple[Mapping[str, Any], ...]
    batch: InsertRows
    enqueued: tuple[Enqueued, ...]

    def announce(self, context: OperatorContext) -> None:
        """Wake the workers, and emit the events."""
        if not self.made:
            return
        context.store.announce(self.batch.queues)
        for event in events_of([self.batch], self.enqueued):
            context.events.emit(event)


def step_of(letter: DeadLetter, to_state: DeadLetterState, **changes: Any) -> dict[str, Any]:
    """Return the row that takes a letter one step further; other columns stay."""
    return {
        "tenant": letter.org_id,
        "letter_id": letter.job_id,
        "from_version": letter.version,
        "to_state": to_state,
        "to_kind": letter.kind,
        "list": None if letter.checklist is None else encode(letter.checklist),
        "evidence": letter.evidence_ref,
        "is_safe": letter.is_safe_to_repeat,
        "replays": 0,
        "verifies": 0,
        "fixed_with": None,
        "last_words": None,
        **changes,
    }


def make_replays(
    tx: Tx,
    context: OperatorContext,
    letters: Sequence[DeadLetter],
    *,
    ids: Sequence[str],
    reason: str,
    full_restart: bool,
    detail: Mapping[str, Any] | None = None,
) -> Replays:
    """Replay those of *letters* that are unchanged since they were read; *ids* are for the jobs."""
    steps = [step_of(letter, DeadLetterState.REPLAYING, replays=1) for letter in letters]
    taken = tx.many(SQL.step_letters, steps=steps)
    batch = InsertRows()
    if not taken:
        return Replays((), batch, ())
    new_id = {
        (letter.org_id, letter.job_id): made for letter, made in zip(letters, ids, strict=True)
    }
    rows = [{"org_id": row["org_id"], "job_id": row["job_id"]} for row in taken]
    made = []
    for source in tx.many(SQL.list_sources, letters=rows):
        replay_id = new_id[source["org_id"], source["letter_id"]]
        made.append(_add(batch, source, replay_id, context, full_restart=full_restart))
    enqueued = run(tx, insert_steps(batch))
    for item in enqueued:
        if not item.created:
            raise StepRefused(
                f"The idempotency key {item.idempotency_key!r} of the replay is already used by"
                f" job {item.id}. Nothing was done."
            )
    if not full_restart:
        tx.affected(SQL.take_over_stages, taken=made)
    tx.affected(
        SQL.insert_replays,
        replays=made,
        reason=reason,
        actor_type=context.actor.type.value,
        actor_id=context.actor.id,
    )
    told = {"reason": reason[:200], "role": context.role, **(detail or {})}
    audit.record(tx, context.actor, [_entry(row, told) for row in made])
    return Replays(tuple(made), batch, tuple(enqueued))


def _add(
    batch: InsertRows, source: Row, replay_id: str, context: OperatorContext, *, full_restart: bool
) -> dict[str, Any]:
    """Add the job that repeats *source* to the batch; return the row of the replay."""
    begin = _begin(source, context, full_restart=full_restart)
    due = source["scheduled_for"]
    batch.shared.append(
        {
            **{name: source[name] for name in _SHARED},
            **begin,
            "frame": len(batch.shared),
            "jobs": 1,
            "scheduled_for": None if due is None else write_instant(read_instant(due)),
            "replay_of": source["letter_id"],
            "queue": source["origin_queue"],
        }
    )
    number = source["replay_count"]
    batch.jobs.append(
        {
            "frame": len(batch.jobs),
            "id": replay_id,
            "idempotency_key": f"{source['idempotency_key']}:replay-{number}",
            "payload": source["payload"],
            "payload_hash": source["payload_hash"],
            "unit_key": source["unit_key"],
            "turn": position_of(replay_id, source["priority"], ms(context.settings.ageing_seconds)),
        }
    )
    return {
        "org_id": source["org_id"],
        "job_id": source["letter_id"],
        "number": number,
        "replay_job_id": replay_id,
        "full_restart": full_restart,
        "failed_stage": source["failed_stage"],
        "failed_job_id": source["failed_job_id"],
        "stage": begin["stage"],
        "from_stage": begin["stage"],
        "attempts": source["attempts"],
    }


def _begin(source: Row, context: OperatorContext, *, full_restart: bool) -> dict[str, Any]:
    """Return the first stage of the replay, with the budget of that stage."""
    if full_restart:
        handler = context.registry.get(source["job_type"])
        return {
            "stage": handler.first.name,
            "pipeline_version": handler.version,
            "max_attempts": handler.first.max_attempts,
        }
    return {
        "stage": source["failed_stage"],
        "pipeline_version": source["pipeline_version"],
        "max_attempts": source["max_attempts"],
    }


def _entry(row: Mapping[str, Any], told: Mapping[str, Any]) -> audit.Entry:
    detail = {
        "replay": row["number"],
        "replay_job_id": row["replay_job_id"],
        "stage": row["stage"],
        "full_restart": row["full_restart"],
        **told,
    }
    return audit.Entry(
        row["org_id"], row["job_id"], "dead_letter.replay_requested", row["attempts"], detail
    )
