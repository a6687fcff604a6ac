"""Ticks as rows: one dispatcher takes each tick and records its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.clock import ms, read_instant, write_instant
from holdfast.engine.schedule.misfire import GRACE, TICK_LIMIT, Due, decide
from holdfast.engine.schedule.schedule import Schedule
from holdfast.event import ScheduleSkipped
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine.schedule", "schedule.sql")


class TickOutcome(StrEnum):
    """The outcome of a tick. ``taken`` and ``held`` are not final."""

    TAKEN = "taken"
    ENQUEUED = "enqueued"
    RAN = "ran"
    SKIPPED = "skipped"
    MISSED = "missed"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a schedule, or several consecutive missed ticks recorded under the first."""

    schedule: str
    fire_at: datetime
    org_id: str
    outcome: TickOutcome = TickOutcome.TAKEN
    ticks: int = 1
    detail: str | None = None
    job_id: str | None = None
    run_id: str | None = None

    @property
    def key(self) -> tuple[str, datetime]:
        return self.schedule, self.fire_at

    @property
    def skipped(self) -> ScheduleSkipped:
        """The event of a tick that did nothing."""
        return ScheduleSkipped(
            self.schedule, self.fire_at, self.outcome, self.detail or "", self.ticks
        )

    def row(self) -> dict[str, Any]:
        return {
            "schedule": self.schedule,
            "fire_at": write_instant(self.fire_at),
            "org_id": self.org_id,
            "outcome": self.outcome,
            "ticks": self.ticks,
            "detail": self.detail,
            "job_id": self.job_id,
            "run_id": self.run_id,
        }


def decide_row(row: Row, *, limit: int = TICK_LIMIT) -> Due:
    """:func:`decide` for a due schedule. Raises BadTiming."""
    return decide(
        Schedule.from_row(row),
        ticked_to=read_instant(row["ticked_to"]),
        now=read_instant(row["now"]),
        held_at=read_instant(row["next_fire_at"]) if row["was_held"] else None,
        limit=limit,
    )


def held_tick(row: Row, reason: str) -> Tick:
    """The first due tick of a schedule that cannot be fired yet."""
    fire_at = read_instant(row["next_fire_at"])
    return Tick(row["name"], fire_at, row["org_id"], TickOutcome.HELD, detail=reason)


def hold_unknown(
    tx: Tx, types: Sequence[str], runs: Sequence[str], refused: Mapping[str, str]
) -> list[Tick]:
    """Hold the due ticks that this process cannot fire; return those that were not held before.

    *refused* has the reason for each run that is declared here but cannot be performed.
    """
    rows = tx.many(
        SQL.hold_unknown,
        grace_ms=ms(GRACE),
        types=[{"job_type": job_type} for job_type in types],
        runs=[{"run_name": name} for name in runs],
        refused=[{"run_name": name, "says": says[:300]} for name, says in refused.items()],
    )
    return [
        Tick(
            row["schedule"],
            read_instant(row["fire_at"]),
            row["org_id"],
            TickOutcome.HELD,
            detail=row["detail"],
        )
        for row in rows
    ]


def take_ticks(tx: Tx, found: Sequence[Due], held: Sequence[Tick] = ()) -> list[Tick]:
    """Write the decisions; return the ticks that this dispatcher took.

    Ticks of another dispatcher are left out, and so are ticks that were and still are held.
    """
    return write_ticks(tx, [*held, *ticks_of(found)])


def ticks_of(found: Iterable[Due]) -> list[Tick]:
    """The ticks of due schedules, as decided."""
    return [tick for due in found for tick in _ticks(due)]


def write_ticks(tx: Tx, ticks: Sequence[Tick]) -> list[Tick]:
    """Write ticks, and return those that no other dispatcher has written."""
    if not ticks:
        return []
    rows = tx.many(SQL.take_ticks, found=[tick.row() for tick in ticks])
    ours = {(row["schedule"], read_instant(row["fire_at"])) for row in rows}
    return [tick for tick in ticks if tick.key in ours]


def _ticks(due: Due) -> Iterator[Tick]:
    name, org_id = due.schedule.name, due.schedule.org_id
    if due.missed:
        says = f"not fired up to {write_instant(due.missed[-1])}"
        yield Tick(name, due.missed[0], org_id, TickOutcome.MISSED, len(due.missed), says)
    for fire_at in due.fires:
        yield Tick(name, fire_at, org_id)


def move_schedules(tx: Tx, found: Sequence[Due]) -> None:
    """Store the new position of each schedule."""
    moves = [
        {
            "name": due.schedule.name,
            "ticked_to": write_instant(due.ticked_to),
            "next_fire_at": write_instant(due.next_fire_at),
            "last_fire_at": write_instant(due.fires[-1]) if due.fires else None,
        }
        for due in found
    ]
    if moves:
        tx.affected(SQL.move_schedules, moves=moves)


# A taken tick becomes a run within the next transaction.
PATIENCE = timedelta(minutes=10)
STRAY_LIMIT = 100
PRUNE_LIMIT = 1_000


def close_stray_ticks(store: Store) -> list[Tick]:
    """Close the ticks of runs whose dispatcher is gone. Bounded, idempotent, safe anywhere.

    If the run was opened, the tick gets its outcome. Otherwise the tick is missed and not started
    late: the cause of the crash is unknown, and the next tick follows.
    """
    params = {"patience_ms": ms(PATIENCE), "limit": STRAY_LIMIT}

    def work(tx: Tx) -> list[Tick]:
        strays = [_ended(row) for row in tx.many(SQL.find_stray, **params)]
        end_ticks(tx, strays)
        return strays

    return store.write(work)


def prune_ticks(store: Store, *, retention: timedelta) -> int:
    """Delete ticks past their retention, except held ones. Bounded, safe to run anywhere."""
    return store.execute(SQL.prune_ticks, keep_ms=ms(retention), limit=PRUNE_LIMIT)


def _ended(row: Row) -> Tick:
    tick = Tick(row["schedule"], read_instant(row["fire_at"]), row["org_id"])
    if row["run_id"] is None:
        says = "the dispatcher stopped before the run started"
        return replace(tick, outcome=TickOutcome.MISSED, detail=says)
    outcome = TickOutcome.SKIPPED if row["outcome"] == "skipped" else TickOutcome.RAN
    return replace(
        tick, outcome=outcome, run_id=row["run_id"], detail=row["reason"] or row["outcome"]
    )


def end_ticks(tx: Tx, ticks: Sequence[Tick]) -> None:
    """Record the outcomes of taken ticks."""
    if ticks:
        tx.affected(SQL.end_ticks, ends=[tick.row() for tick in ticks])
