"""The dispatcher: what is due by the clock becomes a job or a run, once a tick, whoever looks.

There is no leader. A pass takes the due schedules that nobody else holds, decides by their catch-up
policy what becomes of each tick (catch_up.py), and writes it down (tick.py); the key of the tick
table decides if two come to the same tick after all. The job of a tick is written in the same
transaction, so a crash leaves both or neither. A run begins after its tick is taken and committed:
one that dies is not repeated behind anybody's back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from holdfast.clock import read_instant
from holdfast.cron import BadTiming
from holdfast.engine import enqueue
from holdfast.engine.agenda import SQL, Scheduling, job_of
from holdfast.engine.bounded_run import BoundedRun, pending_of
from holdfast.engine.catch_up import TICK_LIMIT, Due
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.idle_runs import PerformedElsewhere, record_skipped, trigger_of
from holdfast.engine.request import Batch
from holdfast.engine.run_log import RunOutcome, RunReport
from holdfast.engine.runs import check_run
from holdfast.engine.tick import (
    Tick,
    TickOutcome,
    decide_row,
    end_ticks,
    held_tick,
    hold_unknown,
    move_schedules,
    take_ticks,
)
from holdfast.engine.upkeep import maintain
from holdfast.errors import HoldfastError, InvalidJob, InvalidSchedule, QueueFull, StoreError
from holdfast.event import About, Event, JobEnqueued, ScheduleFired, WorkerChanged
from holdfast.store import Row, Tx
from holdfast.store.borrow import run as run_steps

EVERY_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
SCHEDULE_LIMIT = 100
# No two ticks share a frame, and SQLite joins jobs with frames row by row: a pass of 1,000 ticks
# takes 6.3 s with one statement for their jobs, 1.6 s with ten.
CHUNK = 100


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one pass did. *more* says that another pass would find something at once."""

    enqueued: int = 0
    ran: int = 0
    skipped: int = 0
    missed: int = 0
    held: int = 0
    more: bool = False

    def __add__(self, other: Dispatched) -> Dispatched:
        return Dispatched(
            self.enqueued + other.enqueued,
            self.ran + other.ran,
            self.skipped + other.skipped,
            self.missed + other.missed,
            self.held + other.held,
            self.more or other.more,
        )


@dataclass(slots=True)
class _Written:
    """What one transaction wrote, to be told after its commit."""

    ticks: list[Tick] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    queues: Sequence[str] = ()
    more: bool = False

    def skip(self, ticks: Iterable[Tick]) -> None:
        """Note those of the ticks that became nothing."""
        for tick in ticks:
            if tick.outcome in (TickOutcome.MISSED, TickOutcome.HELD):
                self.ticks.append(tick)
                self.events.append(tick.skipped)

    @property
    def counts(self) -> Dispatched:
        number = dict.fromkeys(TickOutcome, 0)
        for tick in self.ticks:
            number[tick.outcome] += tick.ticks
        return Dispatched(
            enqueued=number[TickOutcome.ENQUEUED],
            missed=number[TickOutcome.MISSED],
            held=number[TickOutcome.HELD],
            more=self.more,
        )


class Dispatcher:
    """Dispatches one application's schedules; its runs have so many hands."""

    def __init__(
        self, app: Scheduling, *, concurrency: int = 10, async_concurrency: int = 200
    ) -> None:
        self.app = app
        self.concurrency = concurrency
        self.async_concurrency = async_concurrency
        self._stopping = threading.Event()
        self._performing: BoundedRun | None = None

    def run(self) -> None:
        """Make a pass every two seconds until told to stop.

        Runs have a thread of their own: one that takes an hour keeps no other schedule waiting.
        """
        if self.app.clock.is_fake:
            self._keep(self.run_once)
            return
        defects: list[BaseException] = []

        def perform() -> None:
            try:
                self._keep(lambda: self._run_all(self._find_targets()))
            except BaseException as exc:
                defects.append(exc)
                self._stopping.set()

        thread = threading.Thread(target=perform, name="holdfast-runs", daemon=True)
        thread.start()
        try:
            self._keep(lambda: self._enqueue_due(self._find_targets()))
        finally:
            self._stopping.set()
            thread.join()
        if defects:
            raise defects[0]

    def _keep(self, look: Callable[[], Dispatched]) -> None:
        """Look again and again, less often while the store is away."""
        pause = EVERY_SECONDS
        while not self._stopping.is_set():
            try:
                while look().more and not self._stopping.is_set():
                    pass
                pause = EVERY_SECONDS
            except StoreError as exc:
                self.app.events.emit(WorkerChanged("dispatcher", "dispatch_failed", str(exc)))
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            self.app.clock.wait(self._stopping, pause)

    @property
    def is_draining(self) -> bool:
        """True once the dispatcher was asked to stop."""
        return self._stopping.is_set()

    def drain(self) -> None:
        """Take nothing more; a run that is under way finishes what has begun. Safe in a signal."""
        self._stopping.set()
        performing = self._performing
        if performing is not None:
            performing.drain()

    def stop(self) -> None:
        """Do not even wait for what a run has begun: its leases will run out. Safe in a signal."""
        self._stopping.set()
        performing = self._performing
        if performing is not None:
            performing.stop()

    def run_once(self) -> Dispatched:
        """One bounded pass. Safe to run twice, anywhere, any number at once."""
        targets = self._find_targets()
        return self._enqueue_due(targets) + self._run_all(targets)

    def _find_targets(self) -> _Targets:
        """What is due, in one statement. Most passes find nothing and end with this."""
        rows = self.app.store.many(SQL.list_due_targets)
        if not rows:
            return _Targets()
        performable, _ = self._split_runs()
        runs = {row["run_name"] for row in rows} & set(performable)
        others = [row for row in rows if row["run_name"] not in runs]
        return _Targets(bool(others), tuple(sorted(runs)))

    def _run_all(self, targets: _Targets) -> Dispatched:
        """Perform the runs that are due, one after the other.

        Maintenance runs once before them. Runs without pending work are skipped together.
        """
        if not targets.runs or self._stopping.is_set():
            return Dispatched()
        app = self.app
        queues = [queue for name in targets.runs for queue in app.settings.runs[name].queues]
        maintain(
            app.store,
            app.settings,
            app.events,
            queues,
            may_continue=lambda: not self._stopping.is_set(),
            others=[chore.work for chore in app.registry.chores if chore.is_before_runs],
        )
        idle = [name for name in targets.runs if pending_of(app, name) == 0]
        total = self._skip_idle(idle)
        busy = [name for name in targets.runs if name not in idle or total is None]
        total = total or Dispatched()
        for _ in range(SCHEDULE_LIMIT if busy else 0):
            if self._stopping.is_set():
                return total
            ran = self._run_due(busy)
            if ran is None:
                return total
            total += ran
        return replace(total, more=bool(busy) or total.more)

    def _skip_idle(self, names: Sequence[str]) -> Dispatched | None:
        """Record the due ticks of runs that have nothing to do, all runs in one transaction.

        None, and nothing is written, where one of these ticks was performed by another process.
        """
        total = Dispatched(more=bool(names))
        for _ in range(SCHEDULE_LIMIT):
            if not total.more:
                break
            try:
                skipped = self.app.store.write(
                    lambda tx: record_skipped(tx, self.app, self._find_due(tx, runs=names))
                )
            except PerformedElsewhere:
                return None
            written = _Written(events=skipped.events)
            written.skip(skipped.ticks)
            total = replace(total, more=False) + self._tell(written)
            total = replace(total, skipped=total.skipped + skipped.runs, more=skipped.more)
        return total

    def _tell(self, written: _Written) -> Dispatched:
        if written.queues:
            self.app.store.announce(written.queues)
        for event in written.events:
            self.app.events.emit(event)
        return written.counts

    def _find_due(
        self,
        tx: Tx,
        *,
        types: Iterable[str] = (),
        runs: Iterable[str] = (),
        name: str | None = None,
    ) -> list[Row]:
        return tx.many(
            SQL.find_due,
            types=[{"job_type": job_type} for job_type in types],
            runs=[{"run_name": run_name} for run_name in runs],
            name=name,
            limit=SCHEDULE_LIMIT,
        )

    def _split_runs(self) -> tuple[list[str], dict[str, str]]:
        """The declared runs that can be performed here, and of the others why not."""
        performable, refused = [], {}
        for name, run in self.app.settings.runs.items():
            try:
                check_run(self.app, run)
                performable.append(name)
            except HoldfastError as exc:
                refused[name] = str(exc)
        return performable, refused

    # -- jobs: ticks and jobs in one transaction, in a fixed number of statements

    def _enqueue_due(self, targets: _Targets) -> Dispatched:
        if not targets.jobs:
            return Dispatched()
        store = self.app.store
        try:
            return self._tell(store.write(self._write_jobs))
        except QueueFull:
            pass
        # One tenant that has no room must not stand in the way of the others.
        types = [{"job_type": job_type} for job_type in self.app.registry.handlers]
        rows = store.many(SQL.list_due, types=types, limit=SCHEDULE_LIMIT)
        total = Dispatched()
        for row in rows:
            try:
                written = store.write(partial(self._write_jobs, name=row["name"]))
            except QueueFull as exc:
                written = store.write(partial(self._hold, name=row["name"], reason=str(exc)))
            total += self._tell(written)
        return replace(
            total, more=total.more or (bool(total.enqueued) and len(rows) == SCHEDULE_LIMIT)
        )

    def _write_jobs(self, tx: Tx, name: str | None = None) -> _Written:
        """Fire what is due: of every schedule, or one tick of the one that is named."""
        types, written = self.app.registry.handlers, _Written()
        written.skip(hold_unknown(tx, list(types), *self._split_runs()))
        rows = self._find_due(tx, types=types, name=name)
        if not rows:
            return written
        share = max(1, TICK_LIMIT // len(rows)) if name is None else 1
        found: list[Due] = []
        held: list[Tick] = []
        batches: dict[tuple[str, datetime], Batch] = {}
        for row in rows:
            try:
                due = decide_row(row, limit=share)
                jobs = {(row["name"], at): job_of(self.app, due.schedule, at) for at in due.fires}
            except (BadTiming, InvalidSchedule, InvalidJob) as exc:
                held.append(held_tick(row, str(exc)))
                continue
            found.append(due)
            batches.update(jobs)
        ours = take_ticks(tx, found, held)
        written.skip(ours)
        fired = {tick: batches[tick.key] for tick in ours if tick.outcome is TickOutcome.TAKEN}
        self._write_batches(tx, fired, written)
        move_schedules(tx, found)
        now = read_instant(rows[0]["now"])
        behind = any(due.next_fire_at <= now for due in found)
        written.more = behind or (bool(found) and len(rows) == SCHEDULE_LIMIT)
        return written

    def _write_batches(self, tx: Tx, fired: Mapping[Tick, Batch], written: _Written) -> None:
        if not fired:
            return
        batches = list(fired.values())
        if self.app.tracing is not None:
            for batch in batches:
                batch.frames[0]["traceparent"] = self.app.tracing.begin(batch)
        chunks = [_merge(batches[at : at + CHUNK]) for at in range(0, len(batches), CHUNK)]
        jobs = [job for chunk in chunks for job in run_steps(tx, enqueue.insert_steps(chunk))]
        ticks = []
        for (tick, batch), job in zip(fired.items(), jobs, strict=True):
            ticks.append(replace(tick, outcome=TickOutcome.ENQUEUED, job_id=job.id))
            told = ScheduleFired(*tick.key, f"job {job.job_type}", job_id=job.id)
            written.events.append(told)
            if job.created:
                written.events.append(_enqueued(batch, job))
        end_ticks(tx, ticks)
        written.ticks += ticks
        written.queues = sorted({queue for chunk in chunks for queue in chunk.queues})

    def _hold(self, tx: Tx, name: str, reason: str) -> _Written:
        """Let the first due tick of a schedule wait: it cannot be fired yet."""
        written = _Written()
        rows = self._find_due(tx, types=self.app.registry.handlers, name=name)
        written.skip(take_ticks(tx, [], [held_tick(row, reason) for row in rows]))
        return written

    # -- runs: one tick at a time, taken and committed before the run begins

    def _run_due(self, names: Sequence[str]) -> Dispatched | None:
        """Take one tick of one of these runs and perform it; None when none is due."""
        taken = self.app.store.write(partial(self._take_run, names=names))
        counts = self._tell(taken.written)
        if taken.due is None:
            return None
        for tick in taken.ticks:
            counts += self._perform(tick, taken.due.schedule.run_name or "")
        return counts

    def _take_run(self, tx: Tx, names: Sequence[str]) -> _TakenRun:
        taken = _TakenRun()
        for row in self._find_due(tx, runs=names):
            try:
                taken.due = decide_row(row, limit=1)
            except BadTiming as exc:
                taken.written.skip(take_ticks(tx, [], [held_tick(row, str(exc))]))
                continue
            ours = take_ticks(tx, [taken.due])
            taken.written.skip(ours)
            taken.ticks = [tick for tick in ours if tick.outcome is TickOutcome.TAKEN]
            move_schedules(tx, [taken.due])
            break
        return taken

    def _perform(self, tick: Tick, run_name: str) -> Dispatched:
        """Perform the run of a tick that is ours, and write down what became of it."""
        report: RunReport | None = None
        performing = BoundedRun(
            self.app,
            run_name,
            trigger=trigger_of(tick),
            concurrency=self.concurrency,
            async_concurrency=self.async_concurrency,
        )
        self._performing = performing
        if self._stopping.is_set():
            # Told to stop between the tick and now: whoever told us saw no run to drain.
            performing.drain()
        try:
            report = performing.perform(is_maintained=True)
            detail = report.reason or report.outcome or "is under way elsewhere"
        except StoreError:
            raise
        except HoldfastError as exc:
            # The run log has the run with the outcome "failed".
            detail = f"failed: {type(exc).__name__}"
        finally:
            self._performing = None
        is_skip = report is not None and report.outcome is RunOutcome.SKIPPED
        ended = replace(
            tick,
            outcome=TickOutcome.SKIPPED if is_skip else TickOutcome.RAN,
            run_id=performing.run_id if report is None else report.run_id,
            detail=detail,
        )
        self.app.store.write(lambda tx: end_ticks(tx, [ended]))
        event: Event = ScheduleFired(*tick.key, f"run {run_name}", run_id=ended.run_id)
        if is_skip:
            event = replace(ended.skipped, run_name=run_name)
        self.app.events.emit(event)
        return Dispatched(skipped=1) if is_skip else Dispatched(ran=1)


@dataclass(frozen=True, slots=True)
class _Targets:
    """What is due: whether there are jobs, or what is unknown here; and the runs to perform."""

    jobs: bool = False
    runs: tuple[str, ...] = ()


@dataclass(slots=True)
class _TakenRun:
    """The run schedule that a transaction moved on, and the tick of it that is ours to perform."""

    written: _Written = field(default_factory=_Written)
    due: Due | None = None
    ticks: Sequence[Tick] = ()


def dispatch_once(app: Scheduling) -> Dispatched:
    """One bounded pass over what is due. Safe to run twice, anywhere, any number at once."""
    return Dispatcher(app).run_once()


def _merge(batches: Iterable[Batch]) -> Batch:
    """Batches of one job each as one, so that they are one statement."""
    whole = Batch()
    for number, batch in enumerate(batches):
        whole.frames.append({**batch.frames[0], "frame": number})
        whole.jobs.append({**batch.jobs[0], "frame": number})
    return whole


def _enqueued(batch: Batch, job: Enqueued) -> JobEnqueued:
    frame = batch.frames[0]
    about = About(
        job.id,
        job.job_type,
        job.org_id,
        frame["project_id"],
        frame["request_id"],
        frame["correlation_id"],
    )
    return JobEnqueued(about, frame["queue"])
