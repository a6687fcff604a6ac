"""The chain of seals: a leaf per event, and a digest per seal that includes the previous digest.

The check reads all seals and then all events once, in pages. Each page has its own transaction:
sealed rows do not change, so the check needs no snapshot of the whole audit.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import decode
from holdfast.ids import read_uuid
from holdfast.store import Row, Statement, Statements, Store, Tx

SQL = Statements("holdfast.sealed_audit", "seal.sql")

LEAF = 32
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_NUMBER = re.compile(r"[0-9]{1,9}")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
FIRST_ORG = "00000000-0000-0000-0000-000000000000"
LAST_ORG = "ffffffff-ffff-ffff-ffff-ffffffffffff"

# A seal covers at most 5,000 events, so a page of seals is at most 8 MB.
SEALS = 50
EVENTS = 2_000

CUT = "the seal is missing, but its digest was stored elsewhere: the chain was truncated"
WRITTEN_ANEW = "the digest differs from the one stored elsewhere: the chain was rewritten"

Read = Callable[[Callable[[Tx], list[Row]]], list[Row]]
"""Runs a read: ``store.read``, or a function that reads in a transaction that is already open."""


# json.dumps creates an encoder for every call that sorts keys.
_ENCODER = json.JSONEncoder(sort_keys=True)


def with_digest(detail: Any, digest: str | None) -> Any:
    """Return the sealed and exported detail of an event: with its digest, if it has one."""
    if digest is None:
        return detail
    return {**detail, "digest": digest} if isinstance(detail, dict) else {"digest": digest}


def leaf_of(event: Mapping[str, Any]) -> str:
    """Return the short hash of an event: 128 bits over every field."""
    detail, at = event["detail"], event["at"]
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
        at if isinstance(at, str) and _INSTANT.fullmatch(at) else write_instant(read_instant(at)),
        with_digest(decode(detail) if isinstance(detail, str) else detail, event.get("digest")),
    ]
    return hashlib.sha256(_ENCODER.encode(parts).encode()).hexdigest()[:LEAF]


def digest_of(key: str, before: str, leaves: str) -> str:
    """Return the digest of *leaves* after the digest *before*: an HMAC if there is a key."""
    text = f"{before}\n{leaves}".encode()
    if key:
        return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
    return hashlib.sha256(text).hexdigest()


def leaves_in(text: str) -> list[str]:
    """Return the leaves of a seal, one per event, in order."""
    return [text[at : at + LEAF] for at in range(0, len(text), LEAF)]


@dataclass(frozen=True, slots=True)
class Tampering:
    """A difference between the audit and its seals; *seal* is None if the event has no seal."""

    org_id: str
    seal: int | None
    seq: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """An earlier head of a tenant's chain, stored outside the database."""

    org_id: str
    number: int
    digest: str

    @classmethod
    def read(cls, text: str) -> Anchor:
        """Parse ``ORG:NUMBER:DIGEST``, as logged for a seal. Raises ValueError."""
        org_id, _, rest = text.partition(":")
        number, _, digest = rest.partition(":")
        if not (_NUMBER.fullmatch(number) and _DIGEST.fullmatch(digest)):
            raise ValueError("must be ORG:NUMBER:DIGEST, the digest in 64 hexadecimal digits")
        return cls(read_uuid(org_id), int(number), digest.lower())


def verify_seals(store: Store, org_id: str, *, key: str = "") -> list[Tampering]:
    """Return the edited, deleted and inserted events and the broken seals of one tenant."""
    return list(check_seals(store.read, org_id, key=key))


def check_seals(
    read: Read, org_id: str | None = None, *, key: str = "", anchors: Sequence[Anchor] = ()
) -> Iterator[Tampering]:
    """Yield the differences of one tenant or of all; *anchors* detect a truncated chain.

    *read* may use a different transaction per page.
    """
    # Read first: later events may be sealed during the check.
    reach = _ask(read, SQL.read_reach)[0]
    if org_id is None and reach["sealed_to"] != reach["newest"]:
        problem = f"seals reach event {reach['newest']}, sealing had come to {reach['sealed_to']}"
        yield Tampering(FIRST_ORG, None, None, problem)
    yield from _check_chains(read, org_id, key)
    yield from _check_events(read, org_id, max(reach["sealed_to"], reach["newest"]))
    yield from check_anchors(read, anchors)


def check_anchors(read: Read, anchors: Sequence[Anchor]) -> Iterator[Tampering]:
    """Yield the anchors that the current chains do not contain."""
    if not anchors:
        return
    asked = [{"org_id": anchor.org_id, "number": anchor.number} for anchor in anchors]
    rows = _ask(read, SQL.find_digests, asked=asked)
    found = {(row["org_id"], row["number"]): row["digest"] for row in rows}
    for anchor in anchors:
        digest = found.get((anchor.org_id, anchor.number))
        if digest is None:
            yield Tampering(anchor.org_id, anchor.number, None, CUT)
        elif digest != anchor.digest:
            yield Tampering(anchor.org_id, anchor.number, None, WRITTEN_ANEW)


@dataclass(slots=True)
class _Head:
    """The position of the check in the chain of one tenant."""

    org_id: str
    digest: str = ""
    next_seq: int = 1
    next_number: int = 1

    def follow(self, seal: Row, key: str) -> Iterator[Tampering]:
        """Move to the next seal; yield mismatches."""
        number, leaves = seal["number"], seal["leaves"]
        if number != self.next_number:
            yield Tampering(self.org_id, self.next_number, None, "the seal is missing")
        fits = (
            digest_of(key, self.digest, leaves) == seal["digest"]
            and len(leaves) == LEAF * seal["event_count"]
            and (seal["first_seq"] == self.next_seq or number != self.next_number)
        )
        if not fits:
            problem = "the seal does not follow from the one before"
            yield Tampering(self.org_id, number, None, problem)
        self.digest, self.next_number = seal["digest"], number + 1
        self.next_seq = seal["first_seq"] + seal["event_count"]


def _check_chains(read: Read, org_id: str | None, key: str) -> Iterator[Tampering]:
    """Check that every seal follows from the previous one and still covers events."""
    head = _Head(org_id or FIRST_ORG)
    for seal in _seals(read, org_id):
        if seal["org_id"] != head.org_id:
            head = _Head(seal["org_id"])
        yield from head.follow(seal, key)
        if not seal["has_events"]:
            yield from _Covered.by(seal).missing()


def _seals(read: Read, org_id: str | None) -> Iterator[Row]:
    after = {"after_org": org_id or FIRST_ORG, "after_number": 0}
    return pages(
        read,
        SQL.list_seals,
        after,
        lambda seal: {"after_org": seal["org_id"], "after_number": seal["number"]},
        to_org=org_id or LAST_ORG,
        limit=SEALS,
    )


def pages(
    read: Read,
    statement: Statement,
    after: Mapping[str, Any],
    behind: Callable[[Row], Mapping[str, Any]],
    *,
    limit: int,
    **params: Any,
) -> Iterator[Row]:
    """Yield the rows of a statement in pages; *behind* returns the start after a row."""
    while True:
        rows = _ask(read, statement, **after, limit=limit, **params)
        yield from rows
        if len(rows) < limit:
            return
        after = behind(rows[-1])


def _ask(read: Read, statement: Statement, **params: Any) -> list[Row]:
    return read(lambda tx: tx.many(statement, **params))


@dataclass(slots=True)
class _Covered:
    """A seal, and its leaves whose event has not been found yet."""

    org_id: str
    number: int
    last_event_id: int
    leaves: dict[str, int] = field(default_factory=dict)

    @classmethod
    def by(cls, seal: Row) -> _Covered:
        leaves = leaves_in(seal["leaves"])
        numbered = {leaf: seal["first_seq"] + place for place, leaf in enumerate(leaves)}
        return cls(seal["org_id"], seal["number"], seal["last_event_id"], numbered)

    def take(self, event: Row) -> Iterator[Tampering]:
        try:
            known = self.leaves.pop(leaf_of(event), None)
        except (TypeError, ValueError):
            # An event with an unreadable timestamp or document was edited after it was sealed.
            known = None
        if known is None:
            problem = f"event {event['id']} was edited or inserted"
            yield Tampering(self.org_id, self.number, None, problem)

    def missing(self) -> Iterator[Tampering]:
        for seq in self.leaves.values():
            yield Tampering(self.org_id, self.number, seq, "the event was edited or deleted")


def _check_events(read: Read, org_id: str | None, upto: int) -> Iterator[Tampering]:
    """Check that every event matches a leaf of its seal and every leaf has its event.

    Only up to *upto*: later events may still get neighbours with smaller ids, and a seal written
    during the check would seem to lack events that were already read.
    """
    # At most one seal per tenant: the one in which the previous page ended.
    begun: dict[tuple[str, int], _Covered] = {}
    after, is_last = 0, False
    while not is_last:
        page = _ask(read, SQL.list_covered, org_id=org_id, after=after, upto=upto, limit=EVENTS)
        is_last = len(page) < EVENTS
        _begin(read, page, begun)
        for event in page:
            after = event["id"]
            if event["seal"] is not None:
                yield from begun[event["org_id"], event["seal"]].take(event)
            else:
                problem = f"event {after} is in no seal: it was inserted, or its seal was removed"
                yield Tampering(event["org_id"], None, None, problem)
        for place, seal in list(begun.items()):
            if is_last or seal.last_event_id <= after:
                yield from seal.missing()
                del begun[place]


def _begin(read: Read, page: Sequence[Row], begun: dict[tuple[str, int], _Covered]) -> None:
    """Read the seals of a page that are not in *begun* yet."""
    places = {(event["org_id"], event["seal"]) for event in page if event["seal"] is not None}
    asked = [{"org_id": org, "number": number} for org, number in sorted(places - begun.keys())]
    if asked:
        for seal in _ask(read, SQL.find_seals, asked=asked):
            begun[seal["org_id"], seal["number"]] = _Covered.by(seal)
