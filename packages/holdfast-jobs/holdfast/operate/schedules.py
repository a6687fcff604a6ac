"""Schedules: list them, change them, pause and resume them, and fire one now.

Schedules are fired by dispatchers of every tenant, so a context of one tenant is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Unpack

from holdfast.arguments import anything, checked, flag, identifier, instance, text, whole
from holdfast.clock import Clock, read_instant
from holdfast.config import Settings
from holdfast.cron import read_zone, write_every
from holdfast.engine.audit import record_action
from holdfast.engine.enqueue import Enqueued, insert_in
from holdfast.engine.request import InsertRows
from holdfast.engine.schedule import rows
from holdfast.engine.schedule.fan_out import TenantLists
from holdfast.engine.schedule.rows import ScheduleRow
from holdfast.engine.schedule.schedule import (
    Declared,
    MisfirePolicy,
    Schedule,
    ScheduleOptions,
    make_schedule,
)
from holdfast.errors import Conflict, InvalidJob, InvalidSchedule, ScheduleNotFound
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import Page, check_limit, one_of, page_of, read_filter
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.runs import OperatorRuns
from holdfast.store import Tx

__all__ = ["MisfirePolicy", "ScheduleFilter", "ScheduleView", "Schedules", "check_declared"]


NOT_STORED = "declared; the first dispatcher stores it"


def check_declared(settings: Settings, clock: Clock) -> None:
    """Raise if a schedule of the settings cannot be used."""
    Declared().with_settings(settings, now=clock.now())


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules to list; a field that is None matches every schedule.

    *set_by* is ``operator`` or ``code``.
    """

    is_paused: bool | None = None
    set_by: str | None = None

    def check(self) -> ScheduleFilter:
        """Return the validated filter; raises InvalidAction with every bad field."""
        return read_filter(self, {"is_paused": flag, "set_by": one_of("operator", "code")})


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule and the outcome of its newest tick, without its payload, which may be private."""

    name: str
    target: str
    org_id: str
    project_id: str | None
    cron: str | None
    every: str | None
    zone: str
    starts_at: datetime | None
    catch_up: str
    next_fire_at: datetime
    last_fire_at: datetime | None
    last_outcome: str | None
    last_detail: str | None
    set_by: str
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None

    @classmethod
    def from_row(cls, entry: ScheduleRow) -> ScheduleView:
        schedule, timetable = entry.schedule, entry.schedule.timetable
        return cls(
            name=schedule.name,
            target=schedule.target,
            org_id=schedule.org_id,
            project_id=schedule.project_id,
            cron=timetable.cron,
            every=None if timetable.every_ms is None else write_every(timetable.every_ms),
            zone=timetable.zone,
            starts_at=timetable.starts_at,
            catch_up=schedule.catch_up.value,
            next_fire_at=entry.next_fire_at,
            last_fire_at=entry.last_fire_at,
            last_outcome=entry.last_outcome,
            last_detail=entry.last_detail,
            set_by=entry.set_by,
            paused_at=entry.paused_at,
            paused_by=entry.paused_by,
            pause_reason=entry.pause_reason,
        )


@dataclass(frozen=True, slots=True)
class TickView:
    """One tick of a schedule and its outcome."""

    schedule: str
    fire_at: datetime
    org_id: str
    outcome: str
    ticks: int
    job_id: str | None
    run_id: str | None
    detail: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class NextTick:
    """A tick to come, in UTC and in the schedule's time zone."""

    fire_at: datetime
    local: str


@dataclass(frozen=True, slots=True)
class Fired:
    """The result of a triggered schedule."""

    name: str
    job_id: str | None = None
    run_id: str | None = None


@checked(
    InvalidAction,
    checks={
        "after": text,
        "count": whole(1, 1_000),
        # An unknown name raises ScheduleNotFound, an invalid new name InvalidSchedule.
        "name": identifier,
        "wanted": instance(ScheduleFilter),
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
    },
)
class Schedules:
    """The schedules of an application."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: ScheduleFilter | None = None, *, limit: int = 50, after: str = ""
    ) -> Page[ScheduleView]:
        """Schedules with the outcome of their newest tick, in order of names.

        Declared schedules that no dispatcher has stored yet are listed with their next tick.
        """
        self.context.check(Action.LOOK, org_id=None, subject="schedules")
        wanted = (wanted or ScheduleFilter()).check()
        stored = rows.list_schedules(self.context.store)
        known = {entry.schedule.name for entry in stored}
        declared = [entry for entry in self._declared() if entry.schedule.name not in known]
        found = [
            ScheduleView.from_row(entry)
            for entry in (*stored, *declared)
            if entry.schedule.name > after
            and wanted.is_paused in (None, entry.paused_at is not None)
            and wanted.set_by in (None, entry.set_by)
        ]
        found.sort(key=lambda schedule: schedule.name)
        return page_of(found[: check_limit(limit) + 1], limit, lambda schedule: schedule.name)

    def get(self, name: str) -> ScheduleView:
        """One schedule. Raises ScheduleNotFound."""
        return ScheduleView.from_row(self._find(name))

    def ticks(self, name: str, *, limit: int = 20) -> tuple[TickView, ...]:
        """The newest ticks of a schedule and their outcomes, newest first."""
        self._find(name)
        ticks = rows.list_ticks(self.context.store, name, limit=check_limit(limit))
        return tuple(
            TickView(
                **{
                    **row,
                    "fire_at": read_instant(row["fire_at"]),
                    "recorded_at": read_instant(row["recorded_at"]),
                }
            )
            for row in ticks
        )

    def next(self, name: str, *, count: int = 5) -> tuple[NextTick, ...]:
        """The next ticks of a schedule, whether or not it is paused."""
        timetable = self._find(name).schedule.timetable
        zone = read_zone(timetable.zone)
        ticks = islice(timetable.after(self.context.app.clock.now()), count)
        return tuple(NextTick(tick, tick.astimezone(zone).isoformat()) for tick in ticks)

    def add(self, name: str, *, reason: str, **options: Unpack[ScheduleOptions]) -> ScheduleView:
        """Add a schedule. Raises Conflict if the name is taken."""
        reason = self._admit(Action.CHANGE_SCHEDULE, name, reason)
        made = make_schedule(name, options, now=self.context.app.clock.now())
        rows.add_schedule(self.context.app, made, actor=self.context.actor, reason=reason)
        return self.get(name)

    def set(self, name: str, *, reason: str, **changes: Unpack[ScheduleOptions]) -> ScheduleView:
        """Change some options of a schedule; it ignores the code until it is reset."""
        reason = self._admit(Action.CHANGE_SCHEDULE, name, reason)
        if not changes:
            raise InvalidAction({"changes": "must name at least one option of the schedule"})
        rows.set_schedule(self.context.app, name, changes, actor=self.context.actor, reason=reason)
        return self.get(name)

    def reset(self, name: str, *, reason: str) -> ScheduleView:
        """Let a schedule follow the code and the settings again."""
        reason = self._admit(Action.CHANGE_SCHEDULE, name, reason)
        rows.reset_schedule(self.context.app, name, actor=self.context.actor, reason=reason)
        return self.get(name)

    def remove(self, name: str, *, reason: str) -> ScheduleView:
        """Remove a schedule, and return it as it was. Raises Conflict if code declares it."""
        reason = self._admit(Action.CHANGE_SCHEDULE, name, reason)
        found = self.get(name)
        rows.remove_schedule(self.context.app, name, actor=self.context.actor, reason=reason)
        return found

    def pause(self, name: str, *, reason: str) -> bool:
        """Pause a schedule until it is resumed. False if it is paused already."""
        reason = self._admit(Action.PAUSE_SCHEDULE, name, reason)
        store, actor = self.context.store, self.context.actor
        return rows.pause_schedule(store, name, actor=actor, reason=reason)

    def resume(self, name: str, *, reason: str) -> bool:
        """Resume a schedule; the catch-up policy handles missed ticks. False if not paused."""
        reason = self._admit(Action.PAUSE_SCHEDULE, name, reason)
        store, actor = self.context.store, self.context.actor
        return rows.resume_schedule(store, name, actor=actor, reason=reason)

    def trigger(self, name: str, *, reason: str) -> Fired:
        """Fire a schedule once, now, even if it is paused. Its next tick does not change.

        A job is enqueued. A run is performed here, and its report is in the run log.
        """
        reason = self._admit(Action.TRIGGER_SCHEDULE, name, reason)
        schedule = self._find(name).schedule
        if schedule.run_name is not None:
            run = OperatorRuns(self.context).start(schedule.run_name, reason=reason)
            return Fired(name, run_id=run.run_id)
        return Fired(name, job_id=self._enqueue(schedule, reason))

    def _enqueue(self, schedule: Schedule, reason: str) -> str:
        """Enqueue the jobs of a schedule in one transaction with its audit event.

        Returns the id of the first job; of several tenants each gets one.
        """
        app, actor = self.context.app, self.context.actor
        listed = [schedule.name] if schedule.tenants == "declared" else []
        lists = TenantLists(app.schedules.by_name, listed)

        def work(tx: Tx) -> tuple[InsertRows, list[Enqueued]]:
            tenants = lists.tenants_of(tx, schedule)
            if not tenants:
                raise Conflict(f"Schedule {schedule.name!r} has no tenant to enqueue for.")
            try:
                batch = rows.jobs_of(app, schedule, app.clock.now(), tenants)
            except InvalidJob as exc:
                raise InvalidSchedule(schedule.name, exc.fields) from exc
            jobs = insert_in(tx, batch)
            if not any(job.created for job in jobs):
                raise Conflict(
                    f"Schedule {schedule.name!r} was fired concurrently. Nothing was done."
                )
            detail: Mapping[str, Any] = {"reason": reason, "job_id": jobs[0].id}
            subject = f"schedule:{schedule.name}"
            record_action(tx, actor, subject=subject, name="schedule.triggered", detail=detail)
            return batch, jobs

        batch, jobs = app.store.write(work)
        app.announce([batch], jobs, is_committed=True)
        return jobs[0].id

    def _find(self, name: str) -> ScheduleRow:
        self.context.check(Action.LOOK, org_id=None, subject=f"schedule:{name}")
        try:
            return rows.find_schedule(self.context.store, name)
        except ScheduleNotFound:
            for entry in self._declared():
                if entry.schedule.name == name:
                    return entry
            raise

    def _declared(self) -> tuple[ScheduleRow, ...]:
        """The schedules of the code and the settings, as a dispatcher would store them now."""
        app = self.context.app
        now = app.clock.now()
        return tuple(
            ScheduleRow(
                schedule=schedule,
                set_by="code",
                next_fire_at=schedule.timetable.next(now),
                last_fire_at=None,
                paused_at=None,
                paused_by=None,
                pause_reason=None,
                last_outcome=None,
                last_detail=NOT_STORED,
            )
            for schedule in app.schedules.with_settings(app.settings, now=now).values()
        )

    def _admit(self, action: Action, name: str, reason: str) -> str:
        return admit(self.context, action, reason, org_id=None, subject=f"schedule:{name}")
