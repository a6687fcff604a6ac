"""Schedules as rows: declared by code, changed by operators.

A row that code declares is updated with the code. A row that an operator changed stays until it is
reset. Only operators pause schedules. A change of the timetable applies from the moment of the
change; any other change keeps the schedule's position, so missed ticks are still caught up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from holdfast.arguments import checked_function
from holdfast.clock import ms, read_instant, write_instant
from holdfast.cron import write_every
from holdfast.engine import audit
from holdfast.engine.declared import sync_declared
from holdfast.engine.job import Actor, ActorType
from holdfast.engine.key_template import with_keys
from holdfast.engine.request import InsertRows, prepare
from holdfast.engine.runs import Application
from holdfast.engine.schedule.schedule import (
    Declared,
    Schedule,
    ScheduleOptions,
    handler_of,
    make_schedule,
)
from holdfast.engine.tracing import Tracing
from holdfast.errors import Conflict, InvalidJob, InvalidSchedule, ScheduleNotFound
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine.schedule", "schedule.sql")

DISPATCHER = Actor(ActorType.SYSTEM, "dispatcher")


class Scheduling(Application, Protocol):
    """The parts of the application that schedules use."""

    schedules: Declared
    tracing: Tracing | None

    @property
    def known_queues(self) -> list[str]: ...


def check_schedule(app: Scheduling, schedule: Schedule) -> None:
    """Raise InvalidSchedule unless this application can fire the schedule."""
    if schedule.run_name is not None:
        if schedule.run_name not in app.settings.runs:
            known = ", ".join(sorted(app.settings.runs)) or "none"
            says = f"{schedule.run_name!r} is not declared; declared: {known}"
            raise InvalidSchedule(schedule.name, {"run": says})
        return
    try:
        jobs_of(app, schedule, app.clock.now(), [schedule.org_id])
    except InvalidJob as exc:
        raise InvalidSchedule(schedule.name, exc.fields) from exc


def jobs_of(
    app: Scheduling, schedule: Schedule, fire_at: datetime, tenants: Sequence[str]
) -> InsertRows:
    """The jobs of one tick, one for each tenant. Raises InvalidSchedule or InvalidJob.

    Their age is that of the tick, so a late tick is not rejected.
    """
    handler = handler_of(schedule, app.registry)
    items = [(schedule.payload, schedule.request(fire_at, handler, org_id)) for org_id in tenants]
    return prepare(
        handler,
        with_keys(handler, items),
        ids=app.ids.take(len(items)),
        now=fire_at,
        payload_limit=app.settings.payload_limit_bytes,
        known={},
        queues=app.known_queues,
        ageing_ms=ms(app.settings.ageing_seconds),
    )


def sync_schedules(app: Scheduling) -> list[str]:
    """Store the declared schedules and return the names of those that changed.

    Schedules that an operator changed are not updated. Safe to call repeatedly. A schedule that is
    no longer declared stays until it is removed, because another application may declare it.
    """
    sync_declared(app.store, app.settings, app.registry)
    declared = app.schedules.with_settings(app.settings, now=app.clock.now())
    for schedule in declared.values():
        check_schedule(app, schedule)
    if not declared:
        return []

    def work(tx: Tx) -> list[str]:
        names = [{"name": name} for name in sorted(declared)]
        stored = {row["name"]: row for row in tx.many(SQL.lock_schedules, names=names)}
        now = read_instant(tx.one(SQL.read_clock)["now"])
        fresh = [declared[name] for name in sorted(declared) if name not in stored]
        changed = [
            declared[name]
            for name, row in sorted(stored.items())
            if row["set_by"] == "code" and Schedule.from_row(row) != declared[name]
        ]
        added = _add(tx, [_plan(schedule, "code", now) for schedule in fresh])
        _set(tx, [_plan(new, "code", now, stored[new.name]) for new in changed])
        touched = [*added, *(schedule.name for schedule in changed)]
        for name in touched:
            _audit(tx, DISPATCHER, "schedule.declared", declared[name])
        return touched

    return app.store.write(work)


def _plan(
    schedule: Schedule, set_by: str, now: datetime, stored: Row | None = None
) -> dict[str, Any]:
    """The row to write. If the timetable changed, its ticks count from now on."""
    ticked_to = now
    if stored is not None:
        ticked_to = read_instant(stored["ticked_to"])
        if Schedule.from_row(stored).timetable != schedule.timetable:
            ticked_to = max(ticked_to, now)
    return {
        **schedule.row(),
        "set_by": set_by,
        "ticked_to": write_instant(ticked_to),
        "next_fire_at": write_instant(schedule.timetable.next(ticked_to)),
    }


def _add(tx: Tx, plans: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["name"] for row in tx.many(SQL.add_schedules, plans=plans)] if plans else []


def _set(tx: Tx, plans: Sequence[Mapping[str, Any]]) -> None:
    """Update locked schedules. A held tick is dropped if the timetable changed."""
    if plans:
        tx.affected(SQL.set_schedules, plans=plans)
        tx.affected(SQL.drop_held)


def _audit(tx: Tx, actor: Actor, name: str, schedule: Schedule, **detail: Any) -> None:
    """Write the new target and timetable of a schedule to the audit, without the payload."""
    detail_row = {key: value for key, value in schedule.row().items() if key != "payload"}
    audit.record_action(
        tx, actor, subject=f"schedule:{schedule.name}", name=name, detail={**detail_row, **detail}
    )


# -- operator actions


def add_schedule(app: Scheduling, schedule: Schedule, *, actor: Actor, reason: str = "") -> None:
    """Add a schedule as an operator. Raises Conflict if the name is taken."""
    _check_listed(app, schedule)
    check_schedule(app, schedule)

    def work(tx: Tx) -> None:
        now = read_instant(tx.one(SQL.read_clock)["now"])
        if not _add(tx, [_plan(schedule, "operator", now)]):
            raise Conflict(f"Schedule {schedule.name!r} already exists. Change it with set.")
        _audit(tx, actor, "schedule.added", schedule, **_why(reason))

    app.store.write(work)


def set_schedule(
    app: Scheduling, name: str, changes: ScheduleOptions, *, actor: Actor, reason: str = ""
) -> Schedule:
    """Change some options of a schedule; the code no longer updates it until it is reset."""

    def work(tx: Tx) -> Schedule:
        row = _lock(tx, name)
        now = read_instant(row["now"])
        changed = make_schedule(name, _merged(Schedule.from_row(row), changes), now=now)
        if set(changes) & _TARGET:
            _check_listed(app, changed)
            check_schedule(app, changed)
        _set(tx, [_plan(changed, "operator", now, row)])
        _audit(tx, actor, "schedule.changed", changed, **_why(reason))
        return changed

    return app.store.write(work)


def _check_listed(app: Scheduling, schedule: Schedule) -> None:
    """Raise InvalidSchedule for a list of tenants that no code declares: lists are not stored."""
    if schedule.tenants == "declared" and schedule.name not in app.schedules.by_name:
        says = 'a list of tenants is declared in code: hf.schedule(…, tenants=…); here say "all"'
        raise InvalidSchedule(schedule.name, {"tenants": says})


# The options whose validation needs the application's handlers and runs.
_TARGET = {"job_type", "payload", "org_id", "tenants", "project_id", "run"}


def _merged(schedule: Schedule, changes: ScheduleOptions) -> ScheduleOptions:
    """The options of a schedule with some of them replaced. A cron replaces an interval."""
    timetable = schedule.timetable
    merged: ScheduleOptions = {
        "cron": timetable.cron,
        "every": None if timetable.every_ms is None else write_every(timetable.every_ms),
        "zone": timetable.zone,
        "starts_at": timetable.starts_at,
        "catch_up": schedule.catch_up,
        "job_type": schedule.job_type,
        "payload": schedule.payload,
        "org_id": None if schedule.job_type is None or schedule.tenants else schedule.org_id,
        # The list itself is declared in code and not stored.
        "tenants": (lambda: ()) if schedule.tenants == "declared" else schedule.tenants,
        "project_id": schedule.project_id,
        "run": schedule.run_name,
    }
    if changes.get("org_id") is not None:
        merged["tenants"] = None
    if changes.get("tenants") is not None:
        merged["org_id"] = None
    if changes.get("cron") is not None:
        merged["every"] = None
    if changes.get("every") is not None:
        merged["cron"], merged["zone"] = None, "UTC"
    return {**merged, **changes}


@checked_function()
def pause_schedule(store: Store, name: str, *, actor: Actor, reason: str) -> bool:
    """Pause a schedule until it is resumed; False if it was already paused."""
    if not reason.strip():
        raise InvalidSchedule(name, {"reason": "is required; it is recorded in the audit"})

    def work(tx: Tx) -> bool:
        schedule = Schedule.from_row(_lock(tx, name))
        by = f"{actor.type}:{actor.id}"
        paused = tx.affected(SQL.pause_schedule, name=name, paused_by=by, reason=reason.strip())
        if paused:
            _audit(tx, actor, "schedule.paused", schedule, reason=reason.strip())
        return bool(paused)

    return store.write(work)


@checked_function()
def resume_schedule(store: Store, name: str, *, actor: Actor, reason: str = "") -> bool:
    """Resume a schedule; its misfire policy decides about the ticks of the pause."""

    def work(tx: Tx) -> bool:
        schedule = Schedule.from_row(_lock(tx, name))
        resumed = tx.affected(SQL.resume_schedule, name=name)
        if resumed:
            _audit(tx, actor, "schedule.resumed", schedule, **_why(reason))
        return bool(resumed)

    return store.write(work)


@checked_function()
def remove_schedule(app: Scheduling, name: str, *, actor: Actor, reason: str = "") -> None:
    """Remove a schedule. Raises Conflict if the code declares it and would add it again."""
    if name in app.schedules.with_settings(app.settings, now=app.clock.now()):
        raise Conflict(
            f"Schedule {name!r} is declared in code or settings, so the next dispatcher would"
            " recreate it. Remove the declaration, or pause the schedule."
        )

    def work(tx: Tx) -> None:
        schedule = Schedule.from_row(_lock(tx, name))
        tx.affected(SQL.remove_schedule, name=name)
        tx.affected(SQL.drop_held)
        _audit(tx, actor, "schedule.removed", schedule, **_why(reason))

    app.store.write(work)


@checked_function()
def reset_schedule(app: Scheduling, name: str, *, actor: Actor, reason: str = "") -> Schedule:
    """Restore the declared version of a schedule, from now on."""
    declared = app.schedules.with_settings(app.settings, now=app.clock.now())
    if name not in declared:
        raise InvalidSchedule(name, {"name": "is not declared, so it cannot be reset"})
    schedule = declared[name]
    check_schedule(app, schedule)

    def work(tx: Tx) -> None:
        row = _lock(tx, name)
        _set(tx, [_plan(schedule, "code", read_instant(row["now"]), row)])
        _audit(tx, actor, "schedule.reset", schedule, **_why(reason))

    app.store.write(work)
    return schedule


def _why(reason: str) -> dict[str, str]:
    """The reason for the audit, if one was given."""
    return {"reason": reason} if reason else {}


def _lock(tx: Tx, name: str) -> Row:
    rows = tx.many(SQL.lock_schedules, names=[{"name": name}])
    if not rows:
        raise ScheduleNotFound(name)
    return rows[0]


# -- queries


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A stored schedule with its state. *last_outcome* is the outcome of its newest tick."""

    schedule: Schedule
    set_by: str
    next_fire_at: datetime
    last_fire_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    last_outcome: str | None
    last_detail: str | None

    @classmethod
    def from_row(cls, row: Row) -> ScheduleRow:
        def at(name: str) -> datetime | None:
            return None if row[name] is None else read_instant(row[name])

        return cls(
            Schedule.from_row(row),
            row["set_by"],
            read_instant(row["next_fire_at"]),
            at("last_fire_at"),
            at("paused_at"),
            row["paused_by"],
            row["pause_reason"],
            row["last_outcome"],
            row["last_detail"],
        )


@checked_function()
def list_schedules(store: Store, *, name: str | None = None) -> list[ScheduleRow]:
    """Every schedule, by name; or only the schedule *name*."""
    rows = store.many(SQL.list_schedules, name=name)
    return [ScheduleRow.from_row(row) for row in rows]


@checked_function()
def find_schedule(store: Store, name: str) -> ScheduleRow:
    """One schedule. Raises ScheduleNotFound."""
    for entry in list_schedules(store, name=name):
        return entry
    raise ScheduleNotFound(name)


@checked_function()
def list_ticks(store: Store, name: str, *, limit: int = 20) -> list[Row]:
    """The ticks of a schedule with their outcomes, newest first."""
    return store.many(SQL.list_ticks, name=name, limit=limit)
