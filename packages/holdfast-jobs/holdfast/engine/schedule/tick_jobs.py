"""The jobs of ticks, written in the transaction that records the ticks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.engine import enqueue
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.request import InsertRows
from holdfast.engine.schedule.rows import Scheduling
from holdfast.engine.schedule.tick import Tick, TickOutcome, end_ticks
from holdfast.errors import QueueFull
from holdfast.event import About, Event, JobEnqueued, ScheduleFired
from holdfast.store import Tx

# No two ticks share columns, and SQLite joins jobs with their shared columns row by row: a pass of
# 1,000 ticks takes 6.3 s with one statement for their jobs, 1.6 s with ten.
CHUNK = 100


@dataclass(slots=True)
class Written:
    """What one transaction wrote, with the events to emit after its commit."""

    ticks: list[Tick] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    queues: Sequence[str] = ()
    more: bool = False

    def skip(self, ticks: Iterable[Tick]) -> None:
        """Record the ticks that fired nothing."""
        for tick in ticks:
            if tick.outcome in (TickOutcome.MISSED, TickOutcome.HELD):
                self.ticks.append(tick)
                self.events.append(tick.skipped)

    @property
    def counts(self) -> PassCounts:
        counted = (TickOutcome.ENQUEUED, TickOutcome.MISSED, TickOutcome.HELD)
        counts = PassCounts(more=self.more)
        for tick in self.ticks:
            if tick.outcome in counted:
                counts.done[tick.outcome.value] += tick.ticks
        return counts


@dataclass(slots=True)
class _Piece:
    """One job of a tick with its shared columns, and its answer."""

    tick: Tick
    frame: dict[str, Any]
    job: dict[str, Any]
    batch: InsertRows
    answer: Enqueued | None = None


def write_jobs(
    app: Scheduling,
    tx: Tx,
    fired: Mapping[Tick, InsertRows],
    written: Written,
    *,
    one_by_one: bool = False,
) -> None:
    """Insert the jobs of taken ticks and record the outcomes of the ticks.

    With *one_by_one*, a tenant whose queue is full gets no job, and the other tenants of the tick
    get theirs. Raises QueueFull if no job of the ticks could be inserted.
    """
    if not fired:
        return
    pieces = [
        _Piece(tick, batch.shared_of(job), job, batch)
        for tick, batch in fired.items()
        for job in batch.jobs
    ]
    if app.tracing is not None:
        for piece in pieces:
            piece.frame = {**piece.frame, "traceparent": app.tracing.begin(_merge([piece]))}
    size = 1 if one_by_one else CHUNK
    full: QueueFull | None = None
    for at in range(0, len(pieces), size):
        part = pieces[at : at + size]
        try:
            answers = enqueue.insert_in(tx, _merge(part))
        except QueueFull as exc:
            # Nothing was inserted, and the transaction goes on.
            if not one_by_one:
                raise
            full = exc
            continue
        for piece, answer in zip(part, answers, strict=True):
            piece.answer = answer
    if full is not None and all(piece.answer is None for piece in pieces):
        raise full
    by_tick: dict[Tick, list[_Piece]] = {tick: [] for tick in fired}
    for piece in pieces:
        by_tick[piece.tick].append(piece)
    ticks = [_ended(tick, own, written) for tick, own in by_tick.items()]
    end_ticks(tx, ticks)
    written.ticks += ticks
    written.queues = sorted({piece.frame["queue"] for piece in pieces if piece.answer is not None})


def _ended(tick: Tick, pieces: Sequence[_Piece], written: Written) -> Tick:
    """The outcome of a tick, with the events of its jobs."""
    done = [piece.answer for piece in pieces if piece.answer is not None]
    if not done:
        says = "a queue is full" if pieces else "there was no tenant to enqueue for"
        skipped = replace(tick, outcome=TickOutcome.SKIPPED, detail=says)
        written.events.append(skipped.skipped)
        return skipped
    first = done[0]
    written.events.append(ScheduleFired(*tick.key, f"job {first.job_type}", job_id=first.id))
    for piece in pieces:
        if piece.answer is not None and piece.answer.created:
            written.events.append(_enqueued(piece.frame, piece.answer))
    detail = None
    if len(pieces) > 1:
        detail = f"{len(done)} jobs, one for each tenant"
        if len(done) < len(pieces):
            detail += f"; {len(pieces) - len(done)} tenants got none, because a queue is full"
    return replace(tick, outcome=TickOutcome.ENQUEUED, job_id=first.id, detail=detail)


def _merge(pieces: Sequence[_Piece]) -> InsertRows:
    """Jobs of several ticks as one insert."""
    whole = InsertRows(made_at=pieces[0].batch.made_at)
    for number, piece in enumerate(pieces):
        whole.shared.append({**piece.frame, "frame": number, "jobs": 1})
        whole.jobs.append({**piece.job, "frame": number})
        if (key := piece.batch.unique_keys.get(piece.job["id"])) is not None:
            whole.unique_keys[piece.job["id"]] = key
    return whole


def _enqueued(frame: Mapping[str, Any], job: Enqueued) -> JobEnqueued:
    about = About(
        job.id,
        job.job_type,
        job.org_id,
        frame["project_id"],
        frame["request_id"],
        frame["correlation_id"],
    )
    return JobEnqueued(about, frame["queue"])
