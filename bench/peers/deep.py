"""Holdfast beside a million jobs that are queued, and beside a million that are finished.

Two databases take turns: one with the rows and one without. Both are filled and drained through the
public interface, so that the rows are as the engine writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.peers.contender import Contender
from bench.peers.measures import HOLDFAST
from bench.peers.report import Record, Row

# Workers that drain the many rows between the two parts.
DRAINERS = 2
ALONE = "alone"


def measure_depth(
    database: str, deep: Contender, empty: Contender, rows: int, jobs: int, rounds: int
) -> Iterator[Record]:
    """Drain *jobs* of a backlog of *rows*, and beside *rows* finished ones."""
    deep.fresh()
    deep.fill(rows)
    for number in range(rounds):
        deep.fill(max(0, rows - deep.filled))
        measured = deep.drain(1, jobs, to_empty=False)
        yield Record(database, "queued", HOLDFAST, number, measured)
        yield Record(database, "queued", ALONE, number, _alone(empty, jobs, to_empty=False))
    if deep.filled:
        deep.drain(DRAINERS, deep.filled)
    for number in range(rounds):
        deep.fill(jobs)
        measured = deep.drain(1, jobs)
        yield Record(database, "finished", HOLDFAST, number, measured)
        yield Record(database, "finished", ALONE, number, _alone(empty, jobs, to_empty=True))


def _alone(empty: Contender, jobs: int, *, to_empty: bool) -> dict[str, float]:
    empty.fresh()
    empty.fill(jobs)
    return empty.drain(1, jobs, to_empty=to_empty)


def depth_rows(records: list[Record], database: str, rows: int) -> list[Row]:
    """The drain beside *rows* others relative to one alone, by time and by processor time."""
    found = []
    for measure, required in (("queued", 0.9), ("finished", 0.95)):
        own = [one for one in records if (one.database, one.measure) == (database, measure)]
        beside = {one.number: one.values for one in own if one.contender == HOLDFAST}
        alone = {one.number: one.values for one in own if one.contender == ALONE}
        pairs = [(beside[number], alone[number]) for number in beside if number in alone]
        rates = [here["rate"] / there["rate"] for here, there in pairs]
        spent = [here["cpu"] / there["cpu"] for here, there in pairs]
        found.append(Row(f"{database}, {rows:,} {measure}, to without", rates, required))
        found.append(Row("… by processor time", spent))
    return found
