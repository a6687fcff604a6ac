"""Which ticks of a schedule fire, and which are given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from holdfast.engine.request import DRIFT
from holdfast.engine.schedule import CatchUp, Schedule

# A tick that is younger than this is on time: that much two clocks may differ.
GRACE = DRIFT
TICK_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Due:
    """What is done about one schedule: what fires, what is given up, and where it then stands."""

    schedule: Schedule
    fires: tuple[datetime, ...]
    missed: tuple[datetime, ...]
    ticked_to: datetime
    next_fire_at: datetime


def decide(
    schedule: Schedule,
    *,
    ticked_to: datetime,
    now: datetime,
    held_at: datetime | None = None,
    limit: int = TICK_LIMIT,
) -> Due:
    """What becomes of the ticks after *ticked_to* that are due. Raises BadTiming.

    At most a thousand ticks are looked at and *limit* fire; the rest are still due afterwards. A
    tick that was held for want of somebody who can fire it is on time however long that took.
    """
    ticks: list[datetime] = []
    following = now
    for following in schedule.timetable.after(ticked_to):
        if following > now or len(ticks) == TICK_LIMIT:
            break
        ticks.append(following)
    match schedule.catch_up:
        case CatchUp.ALL:
            fires = ticks
        case CatchUp.ONE:
            # While others follow, none of these is the newest.
            fires = [] if following <= now else ticks[-1:]
        case CatchUp.SKIP:
            fires = [tick for tick in ticks if now - tick <= GRACE or tick == held_at]
        case _:
            assert_never(schedule.catch_up)
    if len(fires) > limit:
        following = fires[limit]
        fires = fires[:limit]
        ticks = [tick for tick in ticks if tick < following]
    fired = set(fires)
    return Due(
        schedule,
        tuple(fires),
        tuple(tick for tick in ticks if tick not in fired),
        ticks[-1] if ticks else ticked_to,
        following,
    )
