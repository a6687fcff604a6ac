"""Hand committed changes to webhooks.

A pass reads the next changes, stores a delivery for every endpoint that wants them, and moves the
cursor, all in one transaction. So no change is lost or delivered twice, whichever process crashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.clock import write_instant
from holdfast.document import decode
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.feed.change import Change, matches_name
from holdfast.feed.position import Position, read_position
from holdfast.feed.read import Gap, Track, begin_in, step
from holdfast.outbox.delivery import Content
from holdfast.outbox.intend import OutgoingMessage
from holdfast.outbox.post import Posted
from holdfast.store import Row, Tx
from holdfast.webhooks.channel import CHANNEL, SQL

if TYPE_CHECKING:
    from holdfast.app import Holdfast

LIMIT = 200
# Deliveries of webhooks and their jobs have this correlation. A webhook for their changes would
# cause the next one.
CORRELATION = "holdfast:webhooks"


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint that gets changes."""

    org_id: str
    id: str
    url: str
    events: tuple[str, ...]
    after: Position

    def wants(self, change: Change) -> bool:
        """Whether the endpoint gets this change."""
        if self.org_id not in (change.org_id, PLATFORM_ORG) or self.after.has_read(change.id):
            return False
        return not self.events or any(matches_name(one, change.name) for one in self.events)


def pump(hf: Holdfast) -> int:
    """Store deliveries for all changes that are waiting; return how many."""
    stored = 0
    while hf.store.maybe(SQL.has_endpoints) is not None:
        count, is_full = pump_once(hf)
        stored += count
        if not is_full:
            break
    return stored


def pump_once(hf: Holdfast, limit: int = LIMIT) -> tuple[int, bool]:
    """One pass. Return the number of deliveries, and whether there may be more changes."""
    hf.sync()
    posted, is_full = hf.store.write(lambda tx: _pass(hf, tx, limit))
    for one in posted:
        hf.outbox.tell_posted(one)
    return sum(len(one.intended) for one in posted), is_full


def _pass(hf: Holdfast, tx: Tx, limit: int) -> tuple[list[Posted], bool]:
    cursor = tx.maybe(SQL.lock_cursor)
    if cursor is None:
        return [], False
    track = _read_track(cursor)
    found = step(tx, track, limit)
    if found.track == track:
        return [], False
    posted = []
    changes = [one for one in found.changes if not _is_own(one)]
    if changes:
        for target in map(_target, tx.many(SQL.list_active)):
            messages = [_message(target, one) for one in changes if target.wants(one)]
            if messages:
                about = {"correlation_id": f"{CORRELATION}:{target.id}"}
                posted.append(hf.outbox.post_in(tx, messages, org_id=target.org_id, options=about))
    tx.affected(SQL.move_cursor, **_write_track(found.track))
    return posted, found.is_full


def _is_own(change: Change) -> bool:
    """Whether a change is about webhooks themselves."""
    return change.correlation_id.startswith(CORRELATION) or change.name.startswith("webhook.")


def start_here(tx: Tx) -> Position:
    """The position from which a new endpoint gets changes.

    With the first endpoint the cursor starts there as well; nothing has moved it before.
    """
    tx.one(SQL.hold_cursor)
    track = begin_in(tx)
    if tx.maybe(SQL.has_endpoints) is None:
        tx.affected(SQL.move_cursor, **_write_track(track))
    return track.position


def _read_track(cursor: Row) -> Track:
    """The track of the cursor, with a stamp of this transaction on gaps of earlier ones."""
    now = cursor["this_transaction"]
    gaps = [Gap(low, high, stamp) for low, high, stamp in json.loads(cursor["gaps"])]
    # A stamp in the future is one of another server, where the database was before it was restored.
    known = [gap if (gap.stamp or 0) <= now else Gap(gap.low, gap.high, 0) for gap in gaps]
    return Track(cursor["top"], tuple(known)).stamped(now)


def _write_track(track: Track) -> dict[str, Any]:
    return {
        "top": track.top,
        "gaps": json.dumps([[gap.low, gap.high, gap.stamp] for gap in track.gaps]),
    }


def _target(row: Row) -> Target:
    return Target(
        str(row["org_id"]),
        str(row["id"]),
        row["url"],
        tuple(read_events(row["events"])),
        read_position(row["after_position"]),
    )


def read_events(stored: Any) -> Sequence[str]:
    """The event names of an endpoint, as they are stored."""
    found = decode(stored) if isinstance(stored, str) else stored
    return [str(one) for one in found] if isinstance(found, Iterable) else []


def _message(target: Target, change: Change) -> OutgoingMessage:
    data: Mapping[str, Any] = {
        "type": change.name,
        "timestamp": write_instant(change.at),
        "data": change.document(),
    }
    return OutgoingMessage(
        subject=f"change {change.id}",
        recipient=f"webhook:{target.id}",
        version=1,
        channel=CHANNEL,
        address=target.url,
        content=Content(change.name, target.id, data=data),
    )
