"""The export of the audit as lines of JSON, and its check, which needs no database.

Each line has a type. ``export`` is the first line, with the tenant and the time span. ``end`` is
the last line, with counts. A ``seal`` comes right before the first of its events and has a leaf for
every event that it covers. An ``event`` names its seal, or none if it was not sealed yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import BadDocument, decode, encode, parse
from holdfast.errors import ConfigError
from holdfast.sealed_audit.chain import (
    CUT,
    EVENTS,
    LEAF,
    SQL,
    WRITTEN_ANEW,
    Anchor,
    Read,
    Tampering,
    digest_of,
    leaf_of,
    leaves_in,
    with_digest,
)
from holdfast.store import Row

FORMAT = 1
FIELDS = (
    "id", "org_id", "project_id", "job_id", "job_type", "name", "attempt", "actor_type",
    "actor_id", "request_id", "correlation_id", "at", "detail", "seal",
)  # fmt: skip


def export_lines(
    read: Read, head: Mapping[str, Any], *, above: int, upto: int, sealed_to: int
) -> Iterator[str]:
    """Yield the events with ids above *above* up to *upto* and their seals, read in pages.

    Only events up to *sealed_to* count as sealed: a seal that is written during the export may
    cover events with smaller ids that are already written.
    """
    yield encode({"type": "export", "format": FORMAT, **head})
    counts = {"events": 0, "seals": 0, "unsealed": 0}
    # Seals already written whose events may continue on the next page, with their last ids.
    written: dict[tuple[str, int], int] = {}
    is_last = False
    while not is_last:
        page = _events(read, head["org_id"], above, upto)
        is_last = len(page) < EVENTS
        kept = [_outline(event, sealed_to) for event in page]
        kept = [event for event in kept if _is_within(event["at"], head)]
        seals = _seals(read, kept, written)
        for event in kept:
            seal = seals.pop((event["org_id"], event["seal"]), None)
            if seal is not None:
                counts["seals"] += 1
                yield encode({"type": "seal", **seal})
            counts["events"] += 1
            counts["unsealed"] += event["seal"] is None
            yield encode({"type": "event", **event})
        if page:
            above = page[-1]["id"]
        written = {place: last for place, last in written.items() if last > above}
    yield encode({"type": "end", **counts})


def _events(read: Read, org_id: str | None, after: int, upto: int) -> list[Row]:
    params = {"org_id": org_id, "after": after, "upto": upto, "limit": EVENTS}
    return read(lambda tx: tx.many(SQL.list_covered, **params))


def _outline(event: Row, sealed_to: int) -> dict[str, Any]:
    """Return an event for the export; an unreadable field was edited, and is kept unchanged."""
    at, detail = event["at"], event["detail"]
    with suppress(ValueError):
        at = write_instant(read_instant(at))
    with suppress(ValueError):
        detail = None if detail is None else decode(detail)
    seal = event["seal"] if event["id"] <= sealed_to else None
    read = {"at": at, "detail": with_digest(detail, event["digest"]), "seal": seal}
    return {name: read.get(name, event[name]) for name in FIELDS}


def _is_within(at: str, head: Mapping[str, Any]) -> bool:
    since, until = head["since"], head["until"]
    return (since is None or at >= since) and (until is None or at < until)


def _seals(
    read: Read, page: list[dict[str, Any]], written: dict[tuple[str, int], int]
) -> dict[tuple[str, int], Row]:
    """Return the seals of a page that were not written before."""
    places = {(event["org_id"], event["seal"]) for event in page if event["seal"] is not None}
    asked = [{"org_id": org, "number": number} for org, number in sorted(places - written.keys())]
    if not asked:
        return {}
    seals = read(lambda tx: tx.many(SQL.list_exported_seals, asked=asked))
    found = {(seal["org_id"], seal["number"]): seal for seal in seals}
    written.update((place, seal["last_event_id"]) for place, seal in found.items())
    return found


@dataclass(slots=True)
class _Chain:
    """The newest seal of a tenant in an export, and its leaves without an event so far."""

    org_id: str
    # An export of a time span may begin and end within a seal.
    is_whole: bool
    number: int = 0
    digest: str = ""
    leaves: dict[str, int] = field(default_factory=dict)

    def take_seal(self, seal: Mapping[str, Any], key: str) -> Iterator[Tampering]:
        number, leaves, before = seal["number"], seal["leaves"], seal["before"]
        yield from self.missing()
        follows = self.is_whole or self.number > 0
        if follows and number != self.number + 1:
            yield Tampering(self.org_id, self.number + 1, None, "the seal is missing")
        elif (
            digest_of(key, before, leaves) != seal["digest"]
            or (follows and before != self.digest)
            or len(leaves) != LEAF * seal["event_count"]
        ):
            problem = "the seal does not follow from the one before"
            yield Tampering(self.org_id, number, None, problem)
        places = enumerate(leaves_in(leaves), seal["first_seq"])
        self.leaves = {leaf: seq for seq, leaf in places}
        self.number, self.digest = number, seal["digest"]

    def take_event(self, event: Mapping[str, Any]) -> Iterator[Tampering]:
        known = None
        if event["seal"] == self.number:
            with suppress(ValueError):
                known = self.leaves.pop(leaf_of(event), None)
        if known is None:
            problem = f"event {event['id']} was edited or inserted"
            yield Tampering(self.org_id, event["seal"], None, problem)

    def missing(self) -> Iterator[Tampering]:
        if self.is_whole:
            for seq in self.leaves.values():
                yield Tampering(self.org_id, self.number, seq, "the event was edited or deleted")


def check_export(
    lines: Iterable[str], *, key: str = "", anchors: Sequence[Anchor] = ()
) -> Iterator[Tampering]:
    """Yield every difference between the events and the seals of an export.

    Raises ConfigError if the lines are not an export. In the export of a time span, missing events
    cannot be detected.
    """
    rows = _read_lines(lines)
    head = next(rows)
    is_whole = head["since"] is None and head["until"] is None
    chains: dict[str, _Chain] = {}
    kept = {(anchor.org_id, anchor.number): anchor for anchor in anchors}
    for row in rows:
        if row["type"] == "end":
            continue
        org_id = row["org_id"]
        chain = chains.setdefault(org_id, _Chain(org_id, is_whole))
        if row["type"] == "seal":
            yield from chain.take_seal(row, key)
            anchor = kept.pop((org_id, row["number"]), None)
            if anchor is not None and anchor.digest != row["digest"]:
                yield Tampering(org_id, row["number"], None, WRITTEN_ANEW)
        elif row["seal"] is not None:
            yield from chain.take_event(row)
    for chain in chains.values():
        yield from chain.missing()
    for anchor in kept.values():
        yield Tampering(anchor.org_id, anchor.number, None, CUT)


_TEXT, _NUMBER, _MAYBE_TEXT, _MAYBE_NUMBER = (str,), (int,), (str, NoneType), (int, NoneType)
_SHAPES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "export": {"format": _NUMBER, "since": _MAYBE_TEXT, "until": _MAYBE_TEXT},
    "seal": {
        **dict.fromkeys(("org_id", "leaves", "digest", "before"), _TEXT),
        **dict.fromkeys(("number", "first_seq", "event_count"), _NUMBER),
    },
    "event": {
        **dict.fromkeys(FIELDS, (object,)),
        "org_id": _TEXT,
        "seal": _MAYBE_NUMBER,
        "at": _TEXT,
    },
    "end": {"events": _NUMBER},
}


def _read_lines(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of an export: one of type export, any number of others, one of type end."""
    events, before = 0, ""
    for number, line in enumerate(lines, 1):
        row = _read_line(number, line)
        kind = row["type"]
        if (kind == "export") != (before == "") or before == "end":
            raise ConfigError(f"Line {number} has a type that is not allowed there.")
        if kind == "export" and row["format"] != FORMAT:
            raise ConfigError(
                f"The export has the unsupported format {row['format']}; expected {FORMAT}."
            )
        if kind == "end" and row["events"] != events:
            raise ConfigError(
                f"The export has {events} events, but its last line declares {row['events']}."
            )
        events += kind == "event"
        before = kind
        yield row
    if before != "end":
        raise ConfigError("The export is incomplete: its last line is missing.")


def _read_line(number: int, line: str) -> Mapping[str, Any]:
    try:
        row = parse(line)
    except BadDocument as exc:
        raise ConfigError(f"Line {number} of the export {exc}.") from exc
    shape = _SHAPES.get(str(row.get("type"))) if isinstance(row, dict) else None
    if shape is None or not all(
        name in row and isinstance(row[name], kinds) for name, kinds in shape.items()
    ):
        raise ConfigError(f"Line {number} is not a line of an export.")
    found: Mapping[str, Any] = row
    return found
