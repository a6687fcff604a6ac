"""Positions in the change feed. Pure.

Transactions commit out of order, so an event may appear after events with higher ids were read. A
position is therefore the highest id that was read, and the ranges of lower ids that were not there
yet. Its text is ``105`` or ``105~90-99.103``. Everything else up to 105 has been read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.errors import InvalidArgument

Range = tuple[int, int]

# A text with more ranges would exceed what proxies accept as a header.
MOST_RANGES = 64
_LARGEST = 2**63 - 1
_TEXT = re.compile(r"\d{1,19}(~\d{1,19}(-\d{1,19})?(\.\d{1,19}(-\d{1,19})?){0,63})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position:
    """The highest id that was read, and the ranges of ids below it that were not."""

    top: int = 0
    missing: tuple[Range, ...] = ()

    def has_read(self, event_id: int) -> bool:
        """Whether a reader at this position has already read this event."""
        return event_id <= self.top and not contains(self.missing, event_id)

    def after(self, event_id: int, gaps: Iterable[Range] = ()) -> Position:
        """The position after reading an event; *gaps* are the ids between the two that are open."""
        if event_id <= self.top:
            return Position(self.top, without(self.missing, [event_id]))
        added = clip(gaps, self.top + 1, event_id - 1)
        return Position(event_id, (*self.missing, *added))

    def __str__(self) -> str:
        """The text of the position.

        With too many ranges it is the text of an earlier position: a reader that resumes there
        reads some events twice and misses none.
        """
        top, missing = self.top, self.missing
        if len(missing) > MOST_RANGES:
            top, missing = missing[MOST_RANGES][0] - 1, missing[:MOST_RANGES]
        if not missing:
            return str(top)
        return f"{top}~" + ".".join(
            f"{low}" if low == high else f"{low}-{high}" for low, high in missing
        )


def read_position(text: str) -> Position:
    """Parse the text of a position. Raises InvalidArgument."""
    if not isinstance(text, str) or _TEXT.fullmatch(text) is None:
        raise _bad()
    head, _, tail = text.partition("~")
    missing: list[Range] = []
    for part in tail.split(".") if tail else ():
        low, _, high = part.partition("-")
        missing.append((int(low), int(high or low)))
    top = int(head)
    edges = [edge for low, high in missing for edge in (low, high)]
    is_ordered = all(low <= high for low, high in missing) and all(
        left[1] < right[0] for left, right in itertools.pairwise(missing)
    )
    if top > _LARGEST or not is_ordered or any(not 0 < edge <= top for edge in edges):
        raise _bad()
    return Position(top, tuple(missing))


def _bad() -> InvalidArgument:
    return InvalidArgument({"after": "must be the id of an event that this feed sent"})


def contains(ranges: Iterable[Range], event_id: int) -> bool:
    """Whether an id is in one of the ranges."""
    return any(low <= event_id <= high for low, high in ranges)


def clip(ranges: Iterable[Range], low: int, high: int) -> tuple[Range, ...]:
    """The parts of the ranges from *low* to *high*."""
    cut = ((max(start, low), min(end, high)) for start, end in ranges)
    return tuple((start, end) for start, end in cut if start <= end)


def without(ranges: Iterable[Range], ids: Iterable[int]) -> tuple[Range, ...]:
    """The ranges without these ids."""
    found = list(ranges)
    for event_id in ids:
        for place, (low, high) in enumerate(found):
            if low <= event_id <= high:
                parts = ((low, event_id - 1), (event_id + 1, high))
                found[place : place + 1] = [part for part in parts if part[0] <= part[1]]
                break
    return tuple(found)


def subtract(ranges: Iterable[Range], taken: Iterable[Range]) -> tuple[Range, ...]:
    """The parts of the ranges that are in none of *taken*."""
    found = list(ranges)
    for low, high in taken:
        found = [
            part
            for start, end in found
            for part in ((start, min(end, low - 1)), (max(start, high + 1), end))
            if part[0] <= part[1]
        ]
    return tuple(sorted(set(found)))


def gaps_in(ids: Iterable[int], after: int) -> tuple[Range, ...]:
    """The ranges of ids above *after* that ascending *ids* leave out."""
    found = []
    for event_id in ids:
        if event_id > after + 1:
            found.append((after + 1, event_id - 1))
        after = event_id
    return tuple(found)
