"""Read the change feed in order, without losing events of transactions that commit late.

Ids of events ascend, but transactions commit out of order. A reader publishes what it sees at once,
and keeps the ranges of ids that it did not see. A transaction gets its own id before the ids of its
events (audit.sql). So when every transaction has ended that ran after a range was noticed, an id of
the range that is still absent was rolled back. It is the rule by which the audit is sealed; here it
delays only the absent ids and not the events behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from holdfast.errors import InvalidArgument
from holdfast.feed.change import Change, change_from
from holdfast.feed.position import Position, Range, clip, contains, gaps_in, subtract, without
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.feed", "feed.sql")

PAGE = 500
# With more open ranges a reader waits for transactions to end before it reads on.
MOST_GAPS = 1_000
# How many of the newest events a new reader searches for ids that are not there yet.
WINDOW = 50_000
# The maximum number of events in the ranges of a position that a client sends.
MOST_LATE = 10_000


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of absent ids. *stamp* is None until a later transaction has stamped it."""

    low: int
    high: int
    stamp: int | None = None

    @property
    def ids(self) -> Range:
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Track:
    """How far a reader has come."""

    top: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def position(self) -> Position:
        return Position(self.top, tuple(gap.ids for gap in self.gaps))

    @property
    def needs_stamp(self) -> bool:
        return any(gap.stamp is None for gap in self.gaps)

    def stamped(self, stamp: int) -> Track:
        """The track with a stamp on the gaps that have none.

        The stamp is the id of a transaction that began after these gaps were noticed.
        """
        stamps = (gap if gap.stamp is not None else replace(gap, stamp=stamp) for gap in self.gaps)
        return replace(self, gaps=tuple(stamps))

    def watching(self, ranges: Iterable[Range]) -> Track:
        """The track with further ids that may still appear."""
        added = [Gap(*one) for one in subtract(ranges, self.position.missing)]
        return replace(self, gaps=tuple(sorted((*self.gaps, *added), key=lambda gap: gap.low)))


@dataclass(frozen=True, slots=True)
class Step:
    """What one read found, and the track after it."""

    changes: tuple[Change, ...]
    track: Track
    # Whether the read reached its limit: there may be more.
    is_full: bool = field(default=False)


def begin(store: Store) -> Track:
    """The track of a reader that starts with the next event."""
    return store.read(begin_in)


def begin_in(tx: Tx) -> Track:
    """:func:`begin` in a transaction."""
    newest = tx.one(SQL.find_newest)["newest"]
    rows = tx.many(SQL.find_gaps, upto=newest, window=WINDOW)
    return Track(newest, tuple(Gap(row["low"], row["high"]) for row in rows))


def stamp(store: Store, track: Track) -> Track:
    """Stamp the gaps of a track that have no stamp, in a new transaction."""
    if not track.needs_stamp:
        return track
    return track.stamped(store.write(lambda tx: tx.one(SQL.read_stamp)["stamp"]))


def step(tx: Tx, track: Track, limit: int = PAGE) -> Step:
    """Read the next events: first those in the gaps, then those with higher ids."""
    late: list[Row] = []
    gaps = track.gaps
    if gaps:
        # Before the lookup: what is absent after these transactions have ended stays absent.
        oldest = tx.one(SQL.read_oldest)["oldest"]
        ranges = [{"low": gap.low, "high": gap.high} for gap in gaps]
        late = tx.many(SQL.list_in_ranges, ranges=ranges, limit=limit)
        gaps = _remaining(gaps, late, oldest, is_full=len(late) == limit)
    is_full = len(late) == limit
    fresh: list[Row] = []
    if not is_full and len(gaps) <= MOST_GAPS:
        fresh = tx.many(SQL.list_after, after=track.top, limit=limit)
        is_full = len(fresh) == limit
    noticed = gaps_in((row["id"] for row in fresh), track.top)
    top = fresh[-1]["id"] if fresh else track.top
    changes = _changes(track.position, late, fresh, noticed)
    found = Track(top, (*gaps, *(Gap(*one) for one in noticed)))
    return Step(changes, found, is_full)


def _remaining(
    gaps: Sequence[Gap], late: Sequence[Row], oldest: int, *, is_full: bool
) -> tuple[Gap, ...]:
    """The gaps that may still be filled."""
    seen = [row["id"] for row in late]
    found = []
    for gap in gaps:
        has_ended = gap.stamp is not None and oldest >= gap.stamp
        for low, high in without([gap.ids], seen):
            # A full page may end before the rest of the gap.
            is_unread = is_full and high > seen[-1]
            if is_unread or not has_ended:
                found.append(Gap(max(low, seen[-1] + 1) if has_ended else low, high, gap.stamp))
    return tuple(found)


def _changes(
    position: Position, late: Sequence[Row], fresh: Sequence[Row], noticed: Sequence[Range]
) -> tuple[Change, ...]:
    found = []
    for row in (*late, *fresh):
        position = position.after(row["id"], noticed)
        found.append(change_from(row, position))
    return tuple(found)


def find_late(store: Store, ranges: Sequence[Range]) -> list[Row]:
    """The events in ranges that a reader did not see before. Raises InvalidArgument for too many.

    The ranges of a position are ids that were absent, so they hold few events. A forged position
    could name any range.
    """
    found: list[Row] = []
    wanted = list(ranges)
    while wanted:
        asked = [{"low": low, "high": high} for low, high in wanted]
        rows = store.many(SQL.list_in_ranges, ranges=asked, limit=PAGE)
        found += rows
        if len(found) > MOST_LATE:
            raise InvalidArgument({"after": "is too old; start again without it"})
        last = rows[-1]["id"] if len(rows) == PAGE else wanted[-1][1]
        wanted = list(clip(wanted, last + 1, wanted[-1][1]))
    return found


def resume(
    store: Store, cursor: Position, track: Track, late: Sequence[Row], org_id: str | None
) -> Iterator[tuple[Change, ...]]:
    """Yield, page by page, what a reader at *cursor* missed and a reader at *track* has read.

    *late* are the events in the ranges of *cursor*. Events in the gaps of *track* are left out: its
    reader still publishes them.
    """
    open_ids = track.position.missing
    position = cursor
    page = []
    for row in late:
        position = position.after(row["id"])
        page.append(change_from(row, position))
    yield tuple(one for one in page if org_id in (None, one.org_id))
    after = cursor.top
    while after < track.top:
        asked = {"after": after, "upto": track.top, "limit": PAGE}
        if org_id is None:
            rows = store.many(SQL.list_of_all, **asked)
        else:
            rows = store.many(SQL.list_of_tenant, org_id=org_id, **asked)
        page = []
        for row in rows:
            if not contains(open_ids, row["id"]):
                position = position.after(row["id"], open_ids)
                page.append(change_from(row, position))
        yield tuple(page)
        after = rows[-1]["id"] if len(rows) == PAGE else track.top
