"""The dispatcher: enqueues jobs and performs runs when their schedules are due, once per tick.

There is no leader. A pass locks the due schedules that no other dispatcher holds, applies their
misfire policy (misfire.py) and records each tick (tick.py). The primary key of the tick table
prevents a second dispatcher from firing the same tick. The job of a tick is written in the same
transaction, so a crash leaves both or neither. A run starts after its tick is committed; a run that
dies is not repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from holdfast.clock import read_instant
from holdfast.cron import BadTiming
from holdfast.engine.bounded_run import BoundedRun, pending_of
from holdfast.engine.maintenance import maintain
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.request import InsertRows
from holdfast.engine.run_log import RunOutcome, RunReport
from holdfast.engine.runs import check_run
from holdfast.engine.schedule.fan_out import NO_LISTS, TenantLists
from holdfast.engine.schedule.idle_runs import PerformedElsewhere, record_skipped, trigger_of
from holdfast.engine.schedule.misfire import TICK_LIMIT, Due
from holdfast.engine.schedule.rows import SQL, Scheduling, jobs_of
from holdfast.engine.schedule.tick import (
    Tick,
    TickOutcome,
    decide_row,
    end_ticks,
    held_tick,
    hold_unknown,
    move_schedules,
    take_ticks,
)
from holdfast.engine.schedule.tick_jobs import Written, write_jobs
from holdfast.errors import HoldfastError, InvalidJob, InvalidSchedule, QueueFull, StoreError
from holdfast.event import Event, ScheduleFired, WorkerChanged
from holdfast.store import Row, Tx

EVERY_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
SCHEDULE_LIMIT = 100


class Dispatcher:
    """Fires the due schedules of an application and starts their runs."""

    def __init__(
        self, app: Scheduling, *, concurrency: int = 10, async_concurrency: int = 200
    ) -> None:
        self.app = app
        self.concurrency = concurrency
        self.async_concurrency = async_concurrency
        self._stopping = threading.Event()
        self._performing: BoundedRun | None = None

    def run(self) -> None:
        """Make a pass every two seconds until the dispatcher is drained.

        Runs have their own thread, so a long run does not delay other schedules.
        """
        if self.app.clock.is_fake:
            self._repeat(self.run_once)
            return
        defects: list[BaseException] = []

        def perform() -> None:
            try:
                self._repeat(lambda: self._run_all(self._find_targets()))
            except BaseException as exc:
                defects.append(exc)
                self._stopping.set()

        thread = threading.Thread(target=perform, name="holdfast-runs", daemon=True)
        thread.start()
        try:
            self._repeat(lambda: self._enqueue_due(self._find_targets()))
        finally:
            self._stopping.set()
            thread.join()
        if defects:
            raise defects[0]

    def _repeat(self, run_pass: Callable[[], PassCounts]) -> None:
        """Make passes until stopped, less often while the store is down."""
        pause = EVERY_SECONDS
        while not self._stopping.is_set():
            try:
                while run_pass().more and not self._stopping.is_set():
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
        """Start nothing more; a running run finishes its started jobs. Signal-safe."""
        self._stopping.set()
        performing = self._performing
        if performing is not None:
            performing.drain()

    def stop(self) -> None:
        """Stop without waiting for started jobs: their leases expire. Signal-safe."""
        self._stopping.set()
        performing = self._performing
        if performing is not None:
            performing.stop()

    def run_once(self) -> PassCounts:
        """Make one bounded pass. Safe to call concurrently."""
        targets = self._find_targets()
        return self._enqueue_due(targets) + self._run_all(targets)

    def _find_targets(self) -> _Targets:
        """Find what is due, in one statement. Most passes find nothing and end here."""
        rows = self.app.store.many(SQL.list_due_targets)
        if not rows:
            return _Targets()
        performable, _ = self._split_runs()
        runs = {row["run_name"] for row in rows} & set(performable)
        others = [row for row in rows if row["run_name"] not in runs]
        listed = sorted({row["listed_by"] for row in rows} - {None})
        return _Targets(bool(others), tuple(sorted(runs)), tuple(listed))

    def _run_all(self, targets: _Targets) -> PassCounts:
        """Perform the due runs one after the other.

        Maintenance runs once before them. Runs without pending work are skipped together.
        """
        if not targets.runs or self._stopping.is_set():
            return PassCounts()
        app = self.app
        queues = [queue for name in targets.runs for queue in app.settings.runs[name].queues]
        maintain(
            app.store,
            app.settings,
            app.events,
            queues,
            may_continue=lambda: not self._stopping.is_set(),
            others=[step for chore in app.registry.chores if (step := chore.before_runs)],
        )
        idle = [name for name in targets.runs if pending_of(app, name) == 0]
        total = self._skip_idle(idle)
        busy = [name for name in targets.runs if name not in idle or total is None]
        total = total or PassCounts()
        for _ in range(SCHEDULE_LIMIT if busy else 0):
            if self._stopping.is_set():
                return total
            ran = self._run_due(busy)
            if ran is None:
                return total
            total += ran
        return replace(total, more=bool(busy) or total.more)

    def _skip_idle(self, names: Sequence[str]) -> PassCounts | None:
        """Record the due ticks of runs without pending work, in one transaction.

        Returns None and writes nothing if another process performed one of these ticks.
        """
        total = PassCounts(more=bool(names))
        for _ in range(SCHEDULE_LIMIT):
            if not total.more:
                break
            try:
                skipped = self.app.store.write(
                    lambda tx: record_skipped(tx, self.app, self._find_due(tx, runs=names))
                )
            except PerformedElsewhere:
                return None
            written = Written(events=skipped.events)
            written.skip(skipped.ticks)
            total.more = False
            total += self._emit(written) + PassCounts.counting(skipped=skipped.runs)
            total.more = skipped.more
        return total

    def _emit(self, written: Written) -> PassCounts:
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
        """The declared runs that can be performed here, and the reason for each other one."""
        performable, refused = [], {}
        for name, run in self.app.settings.runs.items():
            try:
                check_run(self.app, run)
                performable.append(name)
            except HoldfastError as exc:
                refused[name] = str(exc)
        return performable, refused

    # -- jobs: ticks and jobs in one transaction, in a fixed number of statements

    def _enqueue_due(self, targets: _Targets) -> PassCounts:
        if not targets.jobs:
            return PassCounts()
        store = self.app.store
        # Read here, because the application's code does not run inside a transaction.
        lists = TenantLists(self.app.schedules.by_name, targets.listed)
        try:
            return self._emit(store.write(partial(self._write_jobs, lists=lists)))
        except QueueFull:
            pass
        # A full queue of one tenant must not block the schedules of others.
        types = [{"job_type": job_type} for job_type in self.app.registry.handlers]
        rows = store.many(SQL.list_due, types=types, limit=SCHEDULE_LIMIT)
        total = PassCounts()
        for row in rows:
            try:
                written = store.write(partial(self._write_jobs, lists=lists, name=row["name"]))
            except QueueFull as exc:
                written = store.write(partial(self._hold, name=row["name"], reason=str(exc)))
            total += self._emit(written)
        return replace(
            total, more=total.more or (bool(total["enqueued"]) and len(rows) == SCHEDULE_LIMIT)
        )

    def _write_jobs(
        self, tx: Tx, name: str | None = None, lists: TenantLists = NO_LISTS
    ) -> Written:
        """Fire due ticks of every schedule, or one tick of the schedule *name*."""
        types, written = self.app.registry.handlers, Written()
        written.skip(hold_unknown(tx, list(types), *self._split_runs()))
        rows = self._find_due(tx, types=types, name=name)
        if not rows:
            return written
        share = max(1, TICK_LIMIT // len(rows)) if name is None else 1
        found: list[Due] = []
        held: list[Tick] = []
        batches: dict[tuple[str, datetime], InsertRows] = {}
        for row in rows:
            try:
                due = decide_row(row, limit=share)
                if not lists.has(due.schedule):
                    # It became due since the lists were read; the next pass fires it.
                    continue
                tenants = lists.tenants_of(tx, due.schedule)
                jobs = {
                    (row["name"], at): jobs_of(self.app, due.schedule, at, tenants)
                    for at in due.fires
                }
            except (BadTiming, InvalidSchedule, InvalidJob) as exc:
                held.append(held_tick(row, str(exc)))
                continue
            found.append(due)
            batches.update(jobs)
        ours = take_ticks(tx, found, held)
        written.skip(ours)
        fired = {tick: batches[tick.key] for tick in ours if tick.outcome is TickOutcome.TAKEN}
        write_jobs(self.app, tx, fired, written, one_by_one=name is not None)
        move_schedules(tx, found)
        now = read_instant(rows[0]["now"])
        behind = any(due.next_fire_at <= now for due in found)
        written.more = behind or (bool(found) and len(rows) == SCHEDULE_LIMIT)
        return written

    def _hold(self, tx: Tx, name: str, reason: str) -> Written:
        """Hold the first due tick of a schedule that cannot be fired yet."""
        written = Written()
        rows = self._find_due(tx, types=self.app.registry.handlers, name=name)
        written.skip(take_ticks(tx, [], [held_tick(row, reason) for row in rows]))
        return written

    # -- runs: one tick at a time, committed before the run starts

    def _run_due(self, names: Sequence[str]) -> PassCounts | None:
        """Perform one due tick of one of these runs; None if none is due."""
        taken = self.app.store.write(partial(self._take_run, names=names))
        counts = self._emit(taken.written)
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

    def _perform(self, tick: Tick, run_name: str) -> PassCounts:
        """Perform the run of a tick and record its outcome."""
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
            # Stopped after the tick was taken: drain() saw no run then.
            performing.drain()
        try:
            report = performing.perform(is_maintained=True)
            detail = report.reason or report.outcome or "is running in another process"
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
        return PassCounts.counting("skipped" if is_skip else "ran")


@dataclass(frozen=True, slots=True)
class _Targets:
    """Due work: whether there are jobs or unknown targets, and the runs to perform."""

    jobs: bool = False
    runs: tuple[str, ...] = ()
    # Due schedules whose application lists their tenants.
    listed: tuple[str, ...] = ()


@dataclass(slots=True)
class _TakenRun:
    """The run schedule that a transaction advanced, and its ticks to perform."""

    written: Written = field(default_factory=Written)
    due: Due | None = None
    ticks: Sequence[Tick] = ()


def dispatch_once(app: Scheduling) -> PassCounts:
    """Fire what is due, in one bounded pass. Safe to call concurrently."""
    return Dispatcher(app).run_once()
