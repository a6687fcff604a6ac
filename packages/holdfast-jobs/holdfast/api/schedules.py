"""Schedules: list them, see their ticks, pause, resume and fire them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Done, Model
from holdfast.api.paging import MOST, Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.schedules import ScheduleFilter

router = Resource("schedules")


class Schedule(Model):
    """A schedule and the outcome of its newest tick."""

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


class Tick(Model):
    """One tick of a schedule and its outcome; skipped ticks included."""

    schedule: str
    fire_at: datetime
    org_id: str
    outcome: str
    ticks: int
    job_id: str | None
    run_id: str | None
    detail: str | None
    recorded_at: datetime


class ComingTick(Model):
    """A tick to come, in UTC and in the time zone of the schedule."""

    fire_at: datetime
    local: str


class Fired(Model):
    """What a triggered schedule started."""

    name: str
    job_id: str | None
    run_id: str | None


@router.read("", operation_id="list_schedules")
def list_schedules(
    caller: CallerOf,
    is_paused: bool | None = None,
    set_by: Annotated[str | None, Query(max_length=20)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[Schedule]:
    """List schedules in order of names. For keys of operations."""
    pages = caller.pages("schedules", is_paused=is_paused, set_by=set_by)
    wanted = ScheduleFilter(is_paused, set_by)
    found = caller.operator.schedules.list(wanted, limit=limit, after=pages.start(cursor, ""))
    return Listing[Schedule].model_validate(pages.page(found, Schedule.model_validate))


@router.read(
    "/{name}",
    operation_id="get_schedule",
    volatile=("next_fire_at", "last_fire_at", "last_outcome", "last_detail"),
)
def get_schedule(name: str, caller: CallerOf) -> Schedule:
    """Return one schedule."""
    return Schedule.model_validate(caller.operator.schedules.get(name))


@router.read("/{name}/ticks", operation_id="list_schedule_ticks")
def list_schedule_ticks(name: str, caller: CallerOf, limit: Limit = 20) -> list[Tick]:
    """Return the newest ticks of a schedule."""
    found = caller.operator.schedules.ticks(name, limit=limit)
    return [Tick.model_validate(tick) for tick in found]


@router.read("/{name}/next", operation_id="list_coming_ticks")
def list_coming_ticks(
    name: str, caller: CallerOf, count: Annotated[int, Query(ge=1, le=MOST)] = 5
) -> list[ComingTick]:
    """Return the next ticks of a schedule."""
    found = caller.operator.schedules.next(name, count=count)
    return [ComingTick.model_validate(tick) for tick in found]


@router.write("/{name}/pause", operation_id="pause_schedule")
def pause_schedule(name: str, action: Action, caller: CallerOf) -> Done:
    """Fire a schedule no more."""
    return Done(changed=caller.operator.schedules.pause(name, reason=action.reason))


@router.write("/{name}/resume", operation_id="resume_schedule")
def resume_schedule(name: str, action: Action, caller: CallerOf) -> Done:
    """Fire a schedule again."""
    return Done(changed=caller.operator.schedules.resume(name, reason=action.reason))


@router.write("/{name}/trigger", operation_id="trigger_schedule")
def trigger_schedule(name: str, action: Action, caller: CallerOf) -> Fired:
    """Fire a schedule now. For an admin of operations."""
    return Fired.model_validate(caller.operator.schedules.trigger(name, reason=action.reason))
