"""Post: store messages and enqueue the jobs that deliver them, in one transaction.

Everything is validated before the first statement. A long list is split over several jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.document import stable_hash
from holdfast.engine import enqueue as enqueueing
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.execute import current
from holdfast.engine.request import InsertRows
from holdfast.outbox import intend as intending
from holdfast.outbox.delivery import State
from holdfast.outbox.intend import Intended
from holdfast.store.caller_connection import Steps, arun_borrowed, run, run_borrowed
from holdfast.store.dialect import Dialect

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

JOB_TYPE = "outbox.deliver"

# Deliveries per job. The payload stays small, and several workers share a long list.
PER_JOB = 500


@dataclass(frozen=True, slots=True)
class Posted:
    """The stored deliveries and jobs."""

    intended: list[Intended]
    batches: list[InsertRows]
    enqueued: list[Enqueued]


@dataclass(frozen=True, slots=True)
class _Share:
    """The messages of one job, and the job to insert if all of them are new."""

    outbox: Outbox
    number: int
    # Created once, so that a repeated transaction writes the same job.
    job_id: str
    rows: Sequence[dict[str, Any]]
    org_id: str | None
    options: Mapping[str, Any]

    def job(self, ids: Sequence[str]) -> InsertRows:
        """Return the job that delivers these. Raises InvalidJob."""
        own: dict[str, Any] = {**self.options}
        given = own.get("idempotency_key")
        if given is None:
            own["idempotency_key"] = f"deliveries:{stable_hash(list(ids))}"
        elif self.number > 0:
            # The caller's key names the first job; the keys of the others are derived from it.
            own["idempotency_key"] = f"deliveries:{stable_hash(given, self.number)}"
        payload, own["job_id"] = {"deliveries": list(ids)}, self.job_id
        return self.outbox.app.prepare(JOB_TYPE, payload, org_id=self.org_id, **own)


@dataclass(frozen=True, slots=True)
class Posting:
    """Validated messages and their jobs, not yet stored."""

    shares: Sequence[_Share]
    jobs: Sequence[InsertRows]

    @property
    def queues(self) -> list[str]:
        return sorted({queue for batch in self.jobs for queue in batch.queues})

    def steps(self, borrowed: Dialect | None = None) -> Steps[Posted]:
        """Store both. Messages that are pending since an earlier call are delivered as well.

        *borrowed* is the dialect of the caller's connection.
        """
        posted = Posted([], [], [])
        posted.intended.extend(
            (yield from intending.insert_steps([row for one in self.shares for row in one.rows]))
        )
        at = 0
        for share, job in zip(self.shares, self.jobs, strict=True):
            stands = posted.intended[at : at + len(share.rows)]
            at += len(share.rows)
            if all(one.created for one in stands):
                posted.batches.append(job)
                continue
            waiting = dict.fromkeys(one.id for one in stands if one.state is State.PENDING)
            if waiting:
                posted.batches.append(share.job(list(waiting)))
        for batch in posted.batches:
            if borrowed is None:
                posted.enqueued.extend((yield from enqueueing.insert_steps(batch)))
            else:
                posted.enqueued.extend((yield from enqueueing.borrowed_steps(batch, borrowed)))
        return posted


def prepare(
    outbox: Outbox,
    rows: Sequence[dict[str, Any]],
    *,
    org_id: str | None,
    options: Mapping[str, Any],
) -> Posting:
    """Return the jobs of the prepared *rows*. Raises InvalidJob for an invalid option."""
    parts = [rows[at : at + PER_JOB] for at in range(0, len(rows), PER_JOB)]
    job_ids = outbox.app.ids.take(len(parts))
    shares = [
        _Share(outbox, number, job_id, part, org_id, options)
        for number, (part, job_id) in enumerate(zip(parts, job_ids, strict=True))
    ]
    jobs = [share.job([row["id"] for row in share.rows]) for share in shares]
    for share, job in zip(shares, jobs, strict=True):
        frame = job.shared[0]
        due = frame["not_before_at"]
        about = _context(frame, share, options)
        for row in share.rows:
            row.update(about, deliver_job_id=share.job_id)
            # A delivery is not due before its job.
            row["not_before_at"] = max(row["not_before_at"] or "", due or "") or None
    return Posting(shares, jobs)


def _context(frame: Mapping[str, Any], share: _Share, options: Mapping[str, Any]) -> dict[str, Any]:
    """Request, project and actor of the deliveries of one job.

    Inside a job they default to the job's own; *options* overrides them.
    """
    about = {
        # Without a request id, the job id is used.
        "request_id": frame["request_id"] or share.job_id,
        "correlation_id": frame["correlation_id"] or share.job_id,
        "project_id": frame["project_id"],
        "actor_type": str(frame["actor_type"]),
        "actor_id": frame["actor_id"],
    }
    if current.get() is None:
        return about
    stated = {name for name in options if options[name] is not None}
    if "actor" in stated:
        stated |= {"actor_type", "actor_id"}
    return {name: value for name, value in about.items() if name in stated}


def _borrowed_steps(outbox: Outbox, conn: Any, posting: Posting) -> Steps[Posted]:
    yield from outbox.app.declared_steps(conn)
    return (yield from posting.steps(outbox.app.callers.dialect))


def post(
    outbox: Outbox,
    rows: Sequence[dict[str, Any]],
    *,
    org_id: str | None,
    conn: Any,
    options: Mapping[str, Any],
) -> list[Intended]:
    """Store messages with their jobs, in the caller's transaction if there is one."""
    with _traced(outbox, options) as (own, told):
        posting = prepare(outbox, rows, org_id=org_id, options=own)
        outbox.app.sync(borrowed=conn is not None)
        if conn is None:
            posted = outbox.store.write(lambda tx: run(tx, posting.steps()))
        else:
            steps = _borrowed_steps(outbox, conn, posting)
            posted = run_borrowed(conn, outbox.app.clock, steps, posting.queues)
        told.extend(posted.enqueued)
    return announce_posted(outbox, posted, is_committed=conn is None)


async def apost(
    outbox: Outbox,
    rows: Sequence[dict[str, Any]],
    *,
    org_id: str | None,
    conn: Any,
    options: Mapping[str, Any],
) -> list[Intended]:
    """:func:`post` with an async connection."""
    with _traced(outbox, options) as (own, told):
        posting = prepare(outbox, rows, org_id=org_id, options=own)
        await asyncio.to_thread(outbox.app.sync, borrowed=True)
        steps = _borrowed_steps(outbox, conn, posting)
        posted = await arun_borrowed(conn, outbox.app.clock, steps, posting.queues)
        told.extend(posted.enqueued)
    return announce_posted(outbox, posted, is_committed=False)


@contextmanager
def _traced(
    outbox: Outbox, options: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], list[Enqueued]]]:
    """Open the span of an enqueue if tracing is on; yield the options and a result list."""
    tracing, told = outbox.app.tracing, list[Enqueued]()
    if tracing is None:
        yield options, told
        return
    with tracing.enqueueing(JOB_TYPE, (), options) as producing:
        yield producing.options, told
        producing.end(told)


def announce_posted(outbox: Outbox, posted: Posted, *, is_committed: bool) -> list[Intended]:
    """Emit the events of stored messages, and wake the workers that deliver them."""
    intended = outbox.emit_events(posted.intended)
    if posted.enqueued:
        outbox.app.announce(posted.batches, posted.enqueued, is_committed=is_committed)
    return intended
