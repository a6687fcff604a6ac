"""The audit: append-only, in the transaction of the change; sealed afterwards.

Sealing gives every tenant's events a gapless sequence and a hash chain without touching the hot
path: a pass takes the events whose transactions have all ended and writes one seal a tenant.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import decode, encode
from holdfast.engine.job import Actor
from holdfast.event import AuditSealed
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.borrow import Step

SQL = Statements("holdfast.engine", "audit.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

LEAF = 32

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
    """Write events in the caller's transaction."""
    if entries:
        statement, params = record_step(actor, entries)
        if tx.affected(statement, **params) < len(entries):
            # The others are about jobs in history: a cancel that came too late, a lost lease.
            tx.affected(JOB_SQL.insert_archived_events, **params)


def record_step(actor: Actor, entries: Sequence[Entry], *, archived: bool = False) -> Step:
    """The statement that writes events about jobs, all archived or none, with its parameters."""
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
    statement = JOB_SQL.insert_archived_events if archived else JOB_SQL.insert_events
    return statement, {"actor_type": actor.type, "actor_id": actor.id, "events": events}


def subject_id(subject: str) -> str:
    """The id under which the events of a subject such as ``queue:q:default`` are found."""
    return str(uuid.uuid5(uuid.UUID(PLATFORM_ORG), subject))


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
    tx.affected(
        SQL.insert_action,
        org_id=org_id,
        subject_id=subject_id(subject),
        kind=subject.partition(":")[0],
        name=name,
        actor_type=actor.type,
        actor_id=actor.id,
        subject=subject,
        detail=encode({"subject": subject, **(detail or {})}),
    )


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one pass sealed."""

    events: int
    seals: tuple[AuditSealed, ...] = ()


def seal_events(store: Store, *, limit: int = 5_000, key: str = "") -> Sealed:
    """Seal the next events, at most *limit*. Safe to run twice, anywhere, at any time."""
    return store.write(lambda tx: _seal(tx, limit, key))


def _seal(tx: Tx, limit: int, key: str) -> Sealed:
    cursor = tx.maybe(SQL.lock_cursor)
    if cursor is None:
        return Sealed(0)
    sealed_to, sealable_to = cursor["sealed_to"], cursor["next_to"]
    if cursor["newest"] == sealed_to == sealable_to:
        return Sealed(0)
    events: list[Row] = []
    seals: list[AuditSealed] = []
    # Only ids that were handed out before a moment whose transactions have all ended: a smaller id
    # can no longer turn up. A horizon from the future means that the database was restored on
    # another server, where nothing of that time is still running.
    ended = cursor["oldest_running"] >= cursor["next_horizon"]
    restored = cursor["next_horizon"] > cursor["next_transaction"]
    if sealable_to > sealed_to and (ended or restored):
        events = tx.many(SQL.list_unsealed, after=sealed_to, upto=sealable_to, limit=limit)
        seals = _chain(tx, events, key)
        # A full page may end before the limit of this round; the rest is next.
        sealed_to = events[-1]["id"] if len(events) == limit else sealable_to
    if sealed_to >= sealable_to:
        tx.affected(SQL.move_cursor, sealed_to=sealed_to)
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
        leaves = "".join(_leaf(event) for event in own)
        digest = _digest(key, head["digest"] if head else "", leaves)
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


def _leaf(event: Row) -> str:
    detail = event["detail"]
    parts = [
        event["id"],
        event["org_id"],
        event["project_id"],
        event["job_id"],
        event["job_type"],
        event["name"],
        event["attempt"],
        event["actor_type"],
        event["actor_id"],
        event["request_id"],
        event["correlation_id"],
        write_instant(read_instant(event["at"])),
        None if detail is None else decode(detail),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:LEAF]


def _digest(key: str, before: str, leaves: str) -> str:
    text = f"{before}\n{leaves}".encode()
    if key:
        return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
    return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True, slots=True)
class Tampering:
    """A place where the audit is not what was sealed."""

    org_id: str
    seal: int
    seq: int | None
    problem: str


def verify_seals(store: Store, org_id: str, *, key: str = "") -> list[Tampering]:
    """Every edited, deleted or inserted event and every broken seal of one tenant."""
    return store.read(lambda tx: list(_verify(tx, org_id, key)))


def _verify(tx: Tx, org_id: str, key: str) -> Iterator[Tampering]:
    digest, next_seq, next_number, covered_to = "", 1, 1, 0
    for seal in tx.many(SQL.list_seals, org_id=org_id):
        number = seal["number"]
        if number != next_number:
            yield Tampering(org_id, next_number, None, "the seal is missing")
        if _digest(key, digest, seal["leaves"]) != seal["digest"] or (
            seal["first_seq"] != next_seq and number == next_number
        ):
            yield Tampering(org_id, number, None, "the seal does not follow from the one before")
        digest, next_number = seal["digest"], number + 1
        next_seq = seal["first_seq"] + seal["event_count"]
        yield from _compare(tx, org_id, seal, covered_to)
        covered_to = seal["last_event_id"]


def _compare(tx: Tx, org_id: str, seal: Row, after: int) -> Iterator[Tampering]:
    events = tx.many(SQL.list_covered, org_id=org_id, after=after, last=seal["last_event_id"])
    sealed = [seal["leaves"][at : at + LEAF] for at in range(0, len(seal["leaves"]), LEAF)]
    found = {_leaf(event): event for event in events}
    known = set(sealed)
    for place, leaf in enumerate(sealed):
        if leaf not in found:
            yield Tampering(
                org_id, seal["number"], seal["first_seq"] + place, "the event was edited or deleted"
            )
    for leaf, event in found.items():
        if leaf not in known:
            yield Tampering(
                org_id, seal["number"], None, f"event {event['id']} was edited or inserted"
            )
