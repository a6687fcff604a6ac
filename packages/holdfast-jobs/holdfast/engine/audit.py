"""The audit: append-only, in the transaction of the change; sealed afterwards.

Sealing gives every tenant's events a gapless sequence and a hash chain without touching the hot
path: a pass takes the events whose transactions have all ended and writes one seal a tenant.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from holdfast.document import encode

# What is checked is checked by chain.py; whoever seals finds it here.
from holdfast.engine.chain import Tampering as Tampering
from holdfast.engine.chain import digest_of, leaf_of
from holdfast.engine.chain import verify_seals as verify_seals
from holdfast.engine.job import Actor
from holdfast.event import AuditSealed
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.borrow import Step

SQL = Statements("holdfast.engine", "audit.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")
LETTER_SQL = Statements("holdfast.engine", "letter.sql")

PLATFORM_ORG = "00000000-0000-0000-0000-000000000000"
"""The tenant of what concerns no tenant: queues, schedules, runs."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event to be written."""

    org_id: str
    job_id: str
    name: str
    attempt: int
    detail: Mapping[str, Any] | None = None


def record(tx: Tx, actor: Actor, entries: Sequence[Entry]) -> None:
    """Write events in the caller's transaction, after the rows that they are about.

    Their digests are of the rows as they are now.
    """
    of_jobs = [entry for entry in entries if not _is_of_letter(entry)]
    if of_jobs:
        statement, params = record_step(actor, of_jobs)
        if tx.affected(statement, **params) < len(of_jobs):
            # The others are about jobs in history: a cancel that came too late, a lost lease.
            tx.affected(JOB_SQL.insert_archived_events, **params)
    of_letters = [entry for entry in entries if _is_of_letter(entry)]
    if of_letters:
        tx.affected(LETTER_SQL.insert_letter_events, **_params(actor, of_letters))


def _is_of_letter(entry: Entry) -> bool:
    return entry.name == "job.deadlettered" or entry.name.startswith("dead_letter.")


def record_step(actor: Actor, entries: Sequence[Entry], *, archived: bool = False) -> Step:
    """The statement that writes events about jobs, all archived or none, with its parameters."""
    statement = JOB_SQL.insert_archived_events if archived else JOB_SQL.insert_events
    return statement, _params(actor, entries)


def _params(actor: Actor, entries: Sequence[Entry]) -> dict[str, Any]:
    events = [
        {
            "org_id": entry.org_id,
            "id": entry.job_id,
            "name": entry.name,
            "attempt": entry.attempt,
            "detail": None if entry.detail is None else encode(entry.detail),
        }
        for entry in entries
    ]
    return {"actor_type": actor.type, "actor_id": actor.id, "events": events}


@lru_cache(maxsize=1_024)
def subject_id(subject: str) -> str:
    """The id under which the events of a subject such as ``queue:q:default`` are found."""
    return str(uuid.uuid5(uuid.UUID(PLATFORM_ORG), subject))


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody did to a thing that is no job.

    *request_id*, *correlation_id* and *project_id* are those of what brought it about, if anything
    did.
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
    """Write what somebody did to a thing that is no job, in the same audit and the same chain."""
    record_actions(tx, [Deed(actor, org_id, subject, name, detail)])


def record_actions(tx: Tx, deeds: Sequence[Deed]) -> None:
    """The same for any number of deeds in one statement; they stand in the order given."""
    if deeds:
        statement, params = actions_step(deeds)
        tx.affected(statement, **params)


def actions_step(deeds: Sequence[Deed]) -> Step:
    """The statement that writes deeds, with its parameters."""
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


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one pass sealed."""

    events: int
    seals: tuple[AuditSealed, ...] = ()


def seal_events(store: Store, *, limit: int = 5_000, key: str = "") -> Sealed:
    """Seal the next events, at most *limit*. Safe to run twice, anywhere, at any time."""
    # Read before the transaction has a number: a transaction that holds the id of an earlier event
    # has a smaller one. The end of the snapshot would not do, it is behind running transactions.
    found = store.maybe(SQL.find_newest)
    if found is None or found["newest"] == found["sealed_to"] == found["next_to"]:
        return Sealed(0)
    newest = found["newest"]
    return store.write(lambda tx: _seal(tx, newest, limit, key))


def _seal(tx: Tx, newest: int, limit: int, key: str) -> Sealed:
    cursor = tx.maybe(SQL.lock_cursor)
    if cursor is None:
        return Sealed(0)
    sealed_to, sealable_to = cursor["sealed_to"], cursor["next_to"]
    if newest <= sealed_to == sealable_to:
        # Another process sealed them in the meantime.
        return Sealed(0)
    events: list[Row] = []
    seals: list[AuditSealed] = []
    # Only ids that were handed out before a moment whose transactions have all ended: a smaller id
    # can no longer turn up. A horizon from the future means that the database was restored on
    # another server, where nothing of that time is still running.
    ended = cursor["oldest_running"] >= cursor["next_horizon"]
    restored = cursor["next_horizon"] > cursor["this_transaction"]
    if sealable_to > sealed_to and (ended or restored):
        events = tx.many(SQL.list_unsealed, after=sealed_to, upto=sealable_to, limit=limit)
        seals = _chain(tx, events, key)
        # A full page may end before the limit of this round; the rest is next.
        sealed_to = events[-1]["id"] if len(events) == limit else sealable_to
    if sealed_to >= sealable_to:
        tx.affected(SQL.move_cursor, sealed_to=sealed_to, next_to=max(newest, sealed_to))
    else:
        tx.affected(SQL.step_cursor, sealed_to=sealed_to)
    return Sealed(len(events), tuple(seals))


def _chain(tx: Tx, events: Sequence[Row], key: str) -> list[AuditSealed]:
    by_org: dict[str, list[Row]] = defaultdict(list)
    for event in events:
        by_org[event["org_id"]].append(event)
    heads = {
        row["org_id"]: row
        for row in tx.many(SQL.find_heads, orgs=[{"org_id": org_id} for org_id in by_org])
    }
    rows, told = [], []
    for org_id, own in by_org.items():
        head = heads.get(org_id)
        first_seq = head["first_seq"] + head["event_count"] if head else 1
        number = head["number"] + 1 if head else 1
        leaves = "".join(leaf_of(event) for event in own)
        digest = digest_of(key, head["digest"] if head else "", leaves)
        rows.append(
            {
                "org_id": org_id,
                "number": number,
                "first_seq": first_seq,
                "event_count": len(own),
                "first_event_id": own[0]["id"],
                "last_event_id": own[-1]["id"],
                "leaves": leaves,
                "digest": digest,
            }
        )
        told.append(AuditSealed(org_id, number, first_seq + len(own) - 1, digest))
    if rows:
        tx.affected(SQL.insert_seals, seals=rows)
    return told
