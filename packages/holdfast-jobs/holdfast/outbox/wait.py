"""Wait: snooze a job until its deliveries have ended, without using attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.engine.audit import Entry, record
from holdfast.engine.job import SYSTEM
from holdfast.errors import Snooze
from holdfast.outbox.delivery import Delivery, State
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.engine.context import Context
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

# Another worker holds the lease of the delivery.
BUSY = timedelta(seconds=5)
# A job is woken when a delivery ends. This is the fallback if that wake-up is missed.
LONGEST_WAIT = timedelta(hours=1)


def wait_for(
    outbox: Outbox, job: Context, ids: Sequence[str], *, with_held: bool = True
) -> list[Delivery]:
    """Return these deliveries once none is pending, nor held if *with_held*.

    Until then it raises Snooze, which uses no attempt. The job is woken when one of them is marked,
    confirmed, dropped or failed, and when the circuit of its channel closes.
    """
    named = [{"home": job.org_id, "delivery_id": one} for one in ids]
    if not named:
        return []

    def look(tx: Tx) -> list[Row]:
        # Register the wait first: a delivery that ends later wakes the job, an earlier end is seen
        # here.
        tx.affected(SQL.await_deliveries, named=named, job_id=job.id)
        return tx.many(SQL.list_named, named=named)

    found = [Delivery.from_row(row) for row in outbox.store.write(look)]
    waiting = [one for one in found if one.state is State.PENDING]
    if with_held:
        waiting += [one for one in found if one.state is State.HELD]
    if waiting:
        raise Snooze(pause_for(waiting, outbox.app.clock.now()))
    return found


def pause_for(waiting: Sequence[Delivery], now: datetime) -> timedelta:
    """The time until the first of these can proceed without an operator."""
    pauses = [LONGEST_WAIT]
    for one in waiting:
        if one.state is State.PENDING:
            due = one.not_before_at
            pauses.append(BUSY if due is None or due <= now else due - now)
    return max(min(pauses), timedelta(milliseconds=1))


def wake_jobs(tx: Tx, waiting: Iterable[tuple[str, str]]) -> list[str]:
    """Make snoozed jobs (tenant, id) due; return their queues.

    After the commit, the caller announces the queues.
    """
    rows = [{"home": org_id, "awaiting_id": job_id} for org_id, job_id in sorted(set(waiting))]
    if not rows:
        return []
    woken = tx.many(SQL.wake_jobs, waiting=rows)
    if woken:
        record(tx, SYSTEM, [_woken(row) for row in tx.many(JOB_SQL.count_attempts, jobs=woken)])
    return sorted({str(row["queue"]) for row in woken})


def _woken(row: Row) -> Entry:
    attempt = int(row["attempt_count"]) + 1
    return Entry(str(row["org_id"]), str(row["id"]), "job.woken", attempt, None)


def awaiting(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """The jobs that wait for deliveries, from the rows of the deliveries."""
    return [
        (str(row["org_id"]), str(row["awaited_by"]))
        for row in rows
        if row["awaited_by"] is not None
    ]
