"""Due runs without pending work: recorded as skipped, all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.clock import read_instant
from holdfast.cron import BadTiming
from holdfast.engine.bounded_run import skipped_row
from holdfast.engine.job import Actor, ActorType
from holdfast.engine.run_log import NOTHING_PENDING, Trigger, TriggerKind, skip_runs
from holdfast.engine.runs import Application
from holdfast.engine.schedule.misfire import Due
from holdfast.engine.schedule.tick import (
    Tick,
    TickOutcome,
    decide_row,
    held_tick,
    move_schedules,
    ticks_of,
    write_ticks,
)
from holdfast.event import Event
from holdfast.store import Row, Tx

# How many missed ticks of one schedule are recorded at once.
TICKS_LIMIT = 100


class PerformedElsewhere(Exception):
    """A tick to be skipped already has a run."""


@dataclass(slots=True)
class Skipped:
    """The rows that one transaction recorded. *more* means that further ticks are due."""

    ticks: list[Tick] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    runs: int = 0
    more: bool = False


def trigger_of(tick: Tick) -> Trigger:
    """The trigger of the run of a tick."""
    actor = Actor(ActorType.SYSTEM, f"schedule:{tick.schedule}")
    return Trigger(TriggerKind.SCHEDULE, actor, tick=tick.fire_at)


def record_skipped(tx: Tx, app: Application, rows: Sequence[Row]) -> Skipped:
    """Record the due ticks of these schedules of idle runs, and the runs themselves.

    Raises PerformedElsewhere if one of the ticks has a run already.
    """
    found, ticks = _decide(rows)
    run_names = {due.schedule.name: due.schedule.run_name or "" for due in found}
    runs: dict[str, dict[str, Any]] = {}
    for tick in ticks_of(found):
        if tick.outcome is not TickOutcome.TAKEN:
            ticks.append(tick)
            continue
        run = skipped_row(app, run_names[tick.schedule], trigger_of(tick))
        runs[run["run_id"]] = run
        skipped = TickOutcome.SKIPPED
        ticks.append(replace(tick, outcome=skipped, run_id=run["run_id"], detail=NOTHING_PENDING))
    ours = write_ticks(tx, ticks)
    skips = [tick for tick in ours if tick.run_id is not None]
    reports = skip_runs(tx, [runs[tick.run_id] for tick in skips if tick.run_id is not None])
    if len(reports) < len(skips):
        raise PerformedElsewhere
    move_schedules(tx, found)
    events: list[Event] = [report.event for report in reports]
    events += [replace(tick.skipped, run_name=run_names[tick.schedule]) for tick in skips]
    more = any(due.next_fire_at <= read_instant(rows[0]["now"]) for due in found)
    return Skipped([tick for tick in ours if tick.run_id is None], events, len(skips), more)


def _decide(rows: Sequence[Row]) -> tuple[list[Due], list[Tick]]:
    """Decide about due schedules; also return the ticks of schedules that cannot be read."""
    found: list[Due] = []
    held: list[Tick] = []
    for row in rows:
        try:
            found.append(decide_row(row, limit=TICKS_LIMIT))
        except BadTiming as exc:
            held.append(held_tick(row, str(exc)))
    return found, held
