"""The misfire policy: which due ticks of a schedule fire and which are missed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from holdfast.engine.request import DRIFT
from holdfast.engine.schedule.schedule import MisfirePolicy, Schedule

# A younger tick is on time; two clocks may differ by this much.
GRACE = DRIFT
TICK_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Due:
    """The decision about one schedule: ticks that fire, missed ticks, and its next position."""

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
    """Decide about the due ticks after *ticked_to*. Raises BadTiming.

    At most a thousand ticks are considered and *limit* fire; the rest are still due afterwards. A
    tick that was held because no dispatcher could fire it counts as on time.
    """
    ticks: list[datetime] = []
    following = now
    for following in schedule.timetable.after(ticked_to):
        if following > now or len(ticks) == TICK_LIMIT:
            break
        ticks.append(following)
    match schedule.catch_up:
        case MisfirePolicy.ALL:
            fires = ticks
        case MisfirePolicy.ONE:
            # If more ticks are due, the newest is not among these.
            fires = [] if following <= now else ticks[-1:]
        case MisfirePolicy.SKIP:
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
