"""The sealing pass: a gapless sequence and a hash chain over the audit events of each tenant.

Sealing is off the hot path. A pass seals events whose transactions have all ended and writes one
seal per tenant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.config import Settings
from holdfast.event import AuditSealed, Events
from holdfast.sealed_audit.chain import SQL, digest_of, leaf_of
from holdfast.store import Row, Store, Tx

# Small passes: 2,000 events at once took 40 ms every few seconds, which determined the p99 wait of
# a tenant with few jobs.
PASS_LIMIT = 200
PASSES_PER_INTERVAL = 10


def seal_once(store: Store, settings: Settings, events: Events, limit: int = PASS_LIMIT) -> int:
    """Seal the next events, at most *limit*; return how many."""
    sealed = seal_events(store, limit=limit, key=settings.audit_key)
    for head in sealed.seals:
        events.emit(head)
    return sealed.events


def seal_backlog(store: Store, settings: Settings, events: Events) -> int:
    """Seal the share of one maintenance interval, in small passes; return how many events."""
    total = 0
    for _ in range(PASSES_PER_INTERVAL):
        sealed = seal_once(store, settings, events)
        total += sealed
        if sealed < PASS_LIMIT:
            break
    return total


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of one pass."""

    events: int
    seals: tuple[AuditSealed, ...] = ()


def seal_events(store: Store, *, limit: int = 5_000, key: str = "") -> Sealed:
    """Seal the next events, at most *limit*. Any number of processes may run it at any time."""
    # Read before this transaction has a number: a transaction that holds the id of an earlier event
    # has a smaller number. The end of the snapshot is too late: transactions before it still run.
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
    # Only ids that were assigned before a moment whose transactions have all ended: no smaller id
    # can appear any more. A horizon in the future means that the database was restored on another
    # server, where no transaction of that time is running.
    ended = cursor["oldest_running"] >= cursor["next_horizon"]
    restored = cursor["next_horizon"] > cursor["this_transaction"]
    if sealable_to > sealed_to and (ended or restored):
        events = tx.many(SQL.list_unsealed, after=sealed_to, upto=sealable_to, limit=limit)
        seals = _chain(tx, events, key)
        # A full page may end before the limit of this round; the next pass continues.
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
    rows: list[Row] = []
    seals: list[AuditSealed] = []
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
        seals.append(AuditSealed(org_id, number, first_seq + len(own) - 1, digest))
    if rows:
        tx.affected(SQL.insert_seals, seals=rows)
    return seals
