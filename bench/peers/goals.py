"""Figures of Holdfast relative to others, and their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.measures import (
    EARLIER,
    GRAPHILE,
    HOLDFAST,
    HUEY,
    OBSERVED,
    PGQUEUER,
    POSTGRES,
    PROCRASTINATE,
    SQLITE,
)
from bench.peers.report import Record, Row


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of Holdfast relative to another, and its target."""

    database: str
    what: str
    measure: str
    value: str
    # Another contender, another measure of Holdfast, or a number.
    peer: str = HOLDFAST
    other_measure: str = ""
    fixed: float | None = None
    required: float | None = None
    stretch: float | None = None
    at_most: bool = False
    subject: str = HOLDFAST

    def row(self, records: Sequence[Record]) -> Row:
        """The ratio of each round that has both figures."""
        mine = self._by_round(records, self.subject, self.measure)
        theirs = self._by_round(records, self.peer, self.other_measure or self.measure)
        ratios = [
            value / (theirs[number] if self.fixed is None else self.fixed)
            for number, value in mine.items()
            if self.fixed is not None or number in theirs
        ]
        return Row(self.what, ratios, self.required, self.stretch, self.at_most)

    def _by_round(self, records: Sequence[Record], peer: str, measure: str) -> dict[int, float]:
        return {
            record.number: record.values[self.value]
            for record in records
            if (record.database, record.contender, record.measure) == (self.database, peer, measure)
            and self.value in record.values
        }


# Bytes of a drained job while a job was one wide row.
WAL_BYTES, DISK_BYTES = 3_900, 3_381
ON_POSTGRES = (
    Goal(POSTGRES, "drain, 1 process, to PgQueuer", "drain_1", "rate", PGQUEUER, required=1.2),
    Goal(POSTGRES, "drain, 1 process, to before", "drain_1", "rate", EARLIER, required=2.2),
    Goal(
        POSTGRES, "drain, 1 process, to Graphile Worker", "drain_1", "rate", GRAPHILE,
        stretch=1.0,
    ),
    Goal(POSTGRES, "drain, 1 process, to Procrastinate", "drain_1", "rate", PROCRASTINATE),
    Goal(POSTGRES, "processor time of a drained job, to PgQueuer", "drain_1", "cpu", PGQUEUER),
    Goal(
        POSTGRES, "processor time of a drained job, to Graphile Worker", "drain_1", "cpu",
        GRAPHILE,
    ),
    Goal(
        POSTGRES, "drain, 2 processes, to one process", "drain_2", "rate",
        other_measure="drain_1", required=1.5,
    ),
    Goal(POSTGRES, "drain, 2 processes, to PgQueuer", "drain_2", "rate", PGQUEUER),
    Goal(
        POSTGRES, "drain, 2 processes, to Graphile Worker", "drain_2", "rate", GRAPHILE,
        stretch=1.0,
    ),
    Goal(POSTGRES, "bulk enqueue, to PgQueuer", "bulk", "rate", PGQUEUER, required=1.0),
    Goal(POSTGRES, "bulk enqueue, to Graphile Worker", "bulk", "rate", GRAPHILE, stretch=1.0),
    Goal(
        POSTGRES, "single enqueue, to PgQueuer", "single", "rate", PGQUEUER,
        required=1.0, stretch=1.2,
    ),
    Goal(
        POSTGRES, "pick-up p50, to PgQueuer", "pick_up", "p50", PGQUEUER,
        required=1.0, stretch=0.8, at_most=True,
    ),
    Goal(
        POSTGRES, "pick-up p99, to PgQueuer", "pick_up", "p99", PGQUEUER,
        required=1.0, stretch=0.8, at_most=True,
    ),
    Goal(
        POSTGRES, f"WAL of a drained job, to {WAL_BYTES:,} B", "drain_1", "wal",
        fixed=WAL_BYTES, required=0.3, at_most=True,
    ),
    Goal(
        POSTGRES, "WAL of a drained job, to Graphile Worker", "drain_1", "wal", GRAPHILE,
        stretch=0.8, at_most=True,
    ),
    Goal(
        POSTGRES, f"disk of a drained job, to {DISK_BYTES:,} B", "drain_1", "disk",
        fixed=DISK_BYTES, required=0.5, at_most=True,
    ),
    Goal(
        POSTGRES, "drain with metrics and traces, to without", "drain_1", "rate",
        required=0.85, subject=OBSERVED,
    ),
    Goal(POSTGRES, "processor time with both, to without", "drain_1", "cpu", subject=OBSERVED),
)  # fmt: skip
ON_SQLITE = (
    Goal(SQLITE, "drain, 1 process, to Huey", "drain_1", "rate", HUEY, required=6.0, stretch=10.0),
    Goal(SQLITE, "processor time of a drained job, to Huey", "drain_1", "cpu", HUEY),
    Goal(SQLITE, "drain, 1 process, to before", "drain_1", "rate", EARLIER),
    Goal(SQLITE, "bulk enqueue, to before", "bulk", "rate", EARLIER, required=1.5),
    Goal(SQLITE, "bulk enqueue, to Huey's single", "bulk", "rate", HUEY),
    Goal(
        SQLITE, "drain, 4 processes, to one process", "drain_4", "rate",
        other_measure="drain_1", required=1.0,
    ),
    Goal(SQLITE, "drain, 4 processes, to Huey", "drain_4", "rate", HUEY),
    Goal(
        SQLITE, "drain with metrics and traces, to without", "drain_1", "rate",
        required=0.85, subject=OBSERVED,
    ),
    Goal(SQLITE, "processor time with both, to without", "drain_1", "cpu", subject=OBSERVED),
)  # fmt: skip
GOALS = {POSTGRES: ON_POSTGRES, SQLITE: ON_SQLITE}
# Rows of the table of medians: text, measure, value, digits.
FIGURES = (
    ("drain, 1 process, jobs/s", "drain_1", "rate", 0),
    ("… CPU of the worker, µs a job", "drain_1", "cpu_worker", 0),
    ("… CPU of the server, µs a job", "drain_1", "cpu_server", 0),
    ("… WAL, bytes a job", "drain_1", "wal", 0),
    ("… disk, bytes a job", "drain_1", "disk", 0),
    ("drain, 2 processes, jobs/s", "drain_2", "rate", 0),
    ("drain, 4 processes, jobs/s", "drain_4", "rate", 0),
    ("bulk enqueue, jobs/s", "bulk", "rate", 0),
    ("single enqueue, jobs/s", "single", "rate", 0),
    ("pick-up p50, ms", "pick_up", "p50", 1),
    ("pick-up p99, ms", "pick_up", "p99", 1),
)
