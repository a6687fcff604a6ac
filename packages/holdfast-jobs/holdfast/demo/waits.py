"""How long jobs waited until a worker claimed them, from the audit."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.clock import read_instant
from holdfast.demo.app import FIRMS, FLOOD, QUIET, Firm
from holdfast.store import Row, Statements, Store

SQL = Statements("holdfast.demo", "demo.sql")

# The longest wait of a quiet tenant is at most this share of the median wait of the flood.
CLEARLY_LESS = 0.5


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of some jobs, in seconds."""

    jobs: int
    median: float
    worst: float

    @classmethod
    def from_seconds(cls, seconds: Sequence[float]) -> Waits:
        if not seconds:
            return cls(0, 0.0, 0.0)
        return cls(len(seconds), statistics.median(seconds), max(seconds))


@dataclass(frozen=True, slots=True)
class Fairness:
    """The waits of the flood and of the quiet tenants."""

    flood: Waits
    quiet: Waits
    by_firm: tuple[tuple[Firm, Waits], ...]

    @property
    def holds(self) -> bool:
        """Whether every quiet tenant was served and waited much less than the flood."""
        return (
            self.flood.jobs > 0
            and all(waits.jobs > 0 for _, waits in self.by_firm)
            and self.quiet.worst <= CLEARLY_LESS * self.flood.median
        )

    @property
    def sentence(self) -> str:
        return (
            f"The flood: {self.flood.jobs:,} jobs. The quiet tenants beside it waited"
            f" {length(self.quiet.median)} at the median, {length(self.quiet.worst)} at worst;"
            f" the flood's own jobs {length(self.flood.median)} at the median."
        )


def measure(store: Store) -> Fairness:
    """Measure the waits: from the creation of each job to its first start."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in store.read(lambda tx: tx.many(SQL.list_waits)):
        found[row["org_id"]].append(wait_of(row))
    return Fairness(
        Waits.from_seconds(found[FLOOD.org_id]),
        Waits.from_seconds([seconds for firm in QUIET for seconds in found[firm.org_id]]),
        tuple((firm, Waits.from_seconds(found[firm.org_id])) for firm in FIRMS),
    )


def wait_of(row: Row) -> float:
    """Seconds from a job's creation to its start."""
    return (read_instant(row["at"]) - read_instant(row["created_at"])).total_seconds()


def length(seconds: float) -> str:
    """A wait with its unit: 12 ms, 2.4 s."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
