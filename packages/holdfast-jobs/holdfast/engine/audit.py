"""The audit: append-only events, written in the transaction of the change that they describe."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from holdfast.document import encode
from holdfast.engine.job import Actor
from holdfast.store import Statements, Tx
from holdfast.store.caller_connection import Step

SQL = Statements("holdfast.engine", "audit.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")
DEAD_LETTER_SQL = Statements("holdfast.engine", "dead_letter.sql")

PLATFORM_ORG = "00000000-0000-0000-0000-000000000000"
"""The tenant of events that concern no tenant: queues, schedules, runs."""


# Not frozen: there is at least one for every settled job.
@dataclass(slots=True)
class Entry:
    """One event to write."""

    org_id: str
    job_id: str
    name: str
    attempt: int
    detail: Mapping[str, Any] | None = None


def record(tx: Tx, actor: Actor, entries: Sequence[Entry]) -> None:
    """Write events in the caller's transaction, after the rows that they describe, in this order.

    Their digests are computed from the current rows.
    """
    of_jobs: list[Entry] = []
    of_letters: list[Entry] = []
    for entry in entries:
        is_of_letter = entry.name == "job.deadlettered" or entry.name.startswith("dead_letter.")
        (of_letters if is_of_letter else of_jobs).append(entry)
    if of_jobs:
        statement, params = record_step(actor, of_jobs)
        tx.affected(statement, **params)
    if of_letters:
        tx.affected(DEAD_LETTER_SQL.insert_dead_letter_events, **_params(actor, of_letters))


def record_step(actor: Actor, entries: Sequence[Entry]) -> Step:
    """The statement that writes events about jobs, with its parameters."""
    return JOB_SQL.insert_events, _params(actor, entries)


def _params(actor: Actor, entries: Sequence[Entry]) -> dict[str, Any]:
    events = [
        {
            "place": place,
            "org_id": entry.org_id,
            "id": entry.job_id,
            "name": entry.name,
            "attempt": entry.attempt,
            "detail": None if entry.detail is None else encode(entry.detail),
        }
        for place, entry in enumerate(entries)
    ]
    return {"actor_type": actor.type, "actor_id": actor.id, "events": events}


@lru_cache(maxsize=1_024)
def subject_id(subject: str) -> str:
    """The id under which the events of a subject such as ``queue:q:default`` are found."""
    return str(uuid.uuid5(uuid.UUID(PLATFORM_ORG), subject))


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on something that is not a job.

    *request_id*, *correlation_id* and *project_id* are those of its cause, if there is one.
    """

    actor: Actor
    org_id: str
    subject: str
    name: str
    detail: Mapping[str, Any] | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    project_id: str | None = None


def record_action(
    tx: Tx,
    actor: Actor,
    *,
    subject: str,
    name: str,
    detail: Mapping[str, Any] | None = None,
    org_id: str = PLATFORM_ORG,
) -> None:
    """Write the audit event of an action on something that is not a job."""
    record_actions(tx, [Deed(actor, org_id, subject, name, detail)])


def record_actions(tx: Tx, deeds: Sequence[Deed]) -> None:
    """Write the audit events of any number of actions in one statement, in the order given."""
    if deeds:
        statement, params = actions_step(deeds)
        tx.affected(statement, **params)


def actions_step(deeds: Sequence[Deed]) -> Step:
    """The statement that writes actions, with its parameters."""
    rows = [
        {
            "place": place,
            "org_id": deed.org_id,
            "project_id": deed.project_id,
            "subject_id": subject_id(deed.subject),
            "kind": deed.subject.partition(":")[0],
            "name": deed.name,
            "actor_type": deed.actor.type,
            "actor_id": deed.actor.id,
            "request_id": deed.request_id,
            "correlation_id": deed.correlation_id,
            "subject": deed.subject,
            "detail": encode({"subject": deed.subject, **(deed.detail or {})}),
        }
        for place, deed in enumerate(deeds)
    ]
    return SQL.insert_actions, {"actions": rows}
