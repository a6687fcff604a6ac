"""Wait: a job waits for its deliveries without spending attempts, and is woken when they end."""

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

# Another worker has the delivery under its lease.
BUSY = timedelta(seconds=5)
# A job is woken when a delivery ends. Should that be missed, it looks again after this.
LONGEST_WAIT = timedelta(hours=1)


def wait_for(
    outbox: Outbox, job: Context, ids: Sequence[str], *, with_held: bool = True
) -> list[Delivery]:
    """These deliveries, once none of them is pending, nor held if *with_held*.

    Until then it raises Snooze, which costs the job no attempt. The job is woken as soon as one of
    them is marked, confirmed, dropped or has failed, and when the circuit of its channel closes.
    """
    named = [{"home": job.org_id, "delivery_id": one} for one in ids]
    if not named:
        return []

    def look(tx: Tx) -> list[Row]:
        # First the note that we wait: what ends after it wakes us, what ended before is seen here.
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
    """How long to wait for the first of these that may go on by itself."""
    pauses = [LONGEST_WAIT]
    for one in waiting:
        if one.state is State.PENDING:
            due = one.not_before_at
            pauses.append(BUSY if due is None or due <= now else due - now)
    return max(min(pauses), timedelta(milliseconds=1))


def wake_jobs(tx: Tx, waiting: Iterable[tuple[str, str]]) -> list[str]:
    """Let jobs, given as tenant and id, look after their deliveries now; the queues they are on.

    Whoever commits this announces the queues afterwards.
    """
    rows = [{"home": org_id, "job_id": job_id} for org_id, job_id in sorted(set(waiting))]
    if not rows:
        return []
    woken = tx.many(SQL.wake_jobs, waiting=rows)
    record(tx, SYSTEM, [_woken(row) for row in woken])
    return sorted({str(row["queue"]) for row in woken})


def _woken(row: Row) -> Entry:
    attempt = int(row["attempt_count"]) + 1
    return Entry(str(row["org_id"]), str(row["id"]), "job.woken", attempt, None)


def awaiting(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """The jobs that wait for deliveries, by the rows of these."""
    return [
        (str(row["org_id"]), str(row["awaited_by"]))
        for row in rows
        if row["awaited_by"] is not None
    ]
