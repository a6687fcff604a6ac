"""Calls about schedules. Written by tools/client_code.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.client.models import read
from holdfast.client.operations import (
    Call,
    Page,
    given,
    new_key,
    read_page,
)


@dataclass(frozen=True, slots=True)
class Schedule:
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


@dataclass(frozen=True, slots=True)
class Tick:
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


@dataclass(frozen=True, slots=True)
class ComingTick:
    """A tick to come, in UTC and in the time zone of the schedule."""

    fire_at: datetime
    local: str


@dataclass(frozen=True, slots=True)
class Fired:
    """What a triggered schedule started."""

    name: str
    job_id: str | None
    run_id: str | None


def list_schedules(
    *,
    is_paused: bool | None = None,
    set_by: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Schedule]]:
    """List schedules in order of names. For keys of operations."""
    return Call(
        "list_schedules",
        "GET",
        "/v1/schedules",
        lambda found: read_page(Schedule, found),
        query={"is_paused": is_paused, "set_by": set_by, "limit": limit, "cursor": cursor},
    )


def get_schedule(name: str) -> Call[Schedule]:
    """Return one schedule."""
    return Call(
        "get_schedule",
        "GET",
        "/v1/schedules/{name}",
        lambda found: read(Schedule, found),
        names={"name": name},
    )


def list_schedule_ticks(name: str, *, limit: int | None = None) -> Call[tuple[Tick, ...]]:
    """Return the newest ticks of a schedule."""
    return Call(
        "list_schedule_ticks",
        "GET",
        "/v1/schedules/{name}/ticks",
        lambda found: tuple(read(Tick, one) for one in found),
        names={"name": name},
        query={"limit": limit},
    )


def list_coming_ticks(name: str, *, count: int | None = None) -> Call[tuple[ComingTick, ...]]:
    """Return the next ticks of a schedule."""
    return Call(
        "list_coming_ticks",
        "GET",
        "/v1/schedules/{name}/next",
        lambda found: tuple(read(ComingTick, one) for one in found),
        names={"name": name},
        query={"count": count},
    )


def pause_schedule(name: str, *, reason: str) -> Call[bool]:
    """Fire a schedule no more."""
    return Call(
        "pause_schedule",
        "POST",
        "/v1/schedules/{name}/pause",
        lambda found: bool(found["changed"]),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def resume_schedule(name: str, *, reason: str) -> Call[bool]:
    """Fire a schedule again."""
    return Call(
        "resume_schedule",
        "POST",
        "/v1/schedules/{name}/resume",
        lambda found: bool(found["changed"]),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def trigger_schedule(name: str, *, reason: str) -> Call[Fired]:
    """Fire a schedule now. For an admin of operations."""
    return Call(
        "trigger_schedule",
        "POST",
        "/v1/schedules/{name}/trigger",
        lambda found: read(Fired, found),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
