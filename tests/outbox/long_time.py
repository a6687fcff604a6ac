"""Hours and days of an application in a few steps: its clock jumps to the next due time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast import FakeClock, Holdfast
from holdfast.clock import read_instant
from tests.story import look

# A dispatcher runs at least this often.
LONGEST_STEP = timedelta(hours=2)


def live_through(
    hf: Holdfast, clock: FakeClock, hours: float, *, during: Callable[[], object] | None = None
) -> None:
    """Let a worker and the reconciler run for this many hours, whenever work is due."""
    end = clock.now() + timedelta(hours=hours)
    worker = hf.worker()
    while clock.now() < end:
        worker.run_once()
        hf.outbox.reconcile()
        if during is not None:
            during()
        clock.advance(min(_next_due(hf, clock), end - clock.now(), LONGEST_STEP))


def _next_due(hf: Holdfast, clock: FakeClock) -> timedelta:
    rows = look(
        hf.store,
        "SELECT min(due_at) AS due_at FROM ("
        " SELECT min(not_before_at) AS due_at FROM holdfast.job WHERE state = 'queued'"
        " UNION ALL SELECT min(not_before_at) FROM holdfast.delivery WHERE state = 'pending'"
        ") AS found",
    )
    due: datetime | None = None if rows[0]["due_at"] is None else read_instant(rows[0]["due_at"])
    left = LONGEST_STEP if due is None else due - clock.now()
    # Due work that was not taken waits for its lease or its grace period.
    return (
        max(left + timedelta(milliseconds=1), timedelta(seconds=61))
        if left > timedelta(0)
        else timedelta(seconds=61)
    )
