"""A schedule: a job of a tenant, of several tenants, or a bounded run, by cron or by interval.

Maintenance and notification jobs, and jobs of general categories, may be scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict

from holdfast.clock import read_instant, write_instant
from holdfast.config import Settings
from holdfast.config.setting_type import NAME
from holdfast.cron import BadTiming, Timetable, parse_cron, read_every, read_zone
from holdfast.document import BadDocument, canonical, decode
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.category import CategoryRules
from holdfast.engine.handler import JOB_TYPE, Handler, Registry
from holdfast.engine.job import Actor, ActorType
from holdfast.engine.request import JobRequest
from holdfast.engine.schedule.tenants import Listing, read_option
from holdfast.engine.validation import FARTHEST
from holdfast.errors import ConfigError, InvalidSchedule
from holdfast.ids import read_named_id
from holdfast.store import Row


class MisfirePolicy(StrEnum):
    """What happens to ticks that were not fired in time."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule: one of *cron* and *every*, and one of *job_type* and *run*."""

    cron: str | None
    every: str | timedelta | None
    zone: str
    starts_at: datetime | None
    catch_up: MisfirePolicy | str
    job_type: str | None
    payload: Mapping[str, Any] | None
    org_id: str | None
    tenants: str | Iterable[str] | Callable[[], Iterable[str]] | None
    project_id: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A timetable and its target.

    A run belongs to the platform tenant, and so does a schedule of several *tenants*: ``all``, or
    ``declared`` if *list_tenants* of the application returns them.
    """

    name: str
    timetable: Timetable
    catch_up: MisfirePolicy = MisfirePolicy.ONE
    org_id: str = PLATFORM_ORG
    project_id: str | None = None
    job_type: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    run_name: str | None = None
    tenants: str | None = None
    list_tenants: Listing | None = field(default=None, compare=False, repr=False)

    @property
    def target(self) -> str:
        """The job type or run that it starts, as text."""
        if self.job_type is None:
            return f"run {self.run_name}"
        several = {None: "", "all": " for all tenants"}.get(self.tenants, " for listed tenants")
        return f"job {self.job_type}{several}"

    @classmethod
    def from_row(cls, row: Row) -> Schedule:
        """A stored schedule. Its time zone may be unknown on this machine."""
        starts_at = row["starts_at"]
        return cls(
            row["name"],
            Timetable(
                row["cron"],
                row["every_ms"],
                row["zone"],
                None if starts_at is None else read_instant(starts_at),
            ),
            MisfirePolicy(row["catch_up"]),
            str(row["org_id"]),
            None if row["project_id"] is None else str(row["project_id"]),
            row["job_type"],
            {} if row["payload"] is None else decode(row["payload"]),
            row["run_name"],
            row["tenants"],
        )

    def row(self) -> dict[str, Any]:
        """The columns that come from the declaration."""
        timetable = self.timetable
        starts_at = timetable.starts_at
        return {
            "name": self.name,
            "org_id": self.org_id,
            "project_id": self.project_id,
            "job_type": self.job_type,
            "payload": None if self.job_type is None else canonical(dict(self.payload)),
            "run_name": self.run_name,
            "cron": timetable.cron,
            "every_ms": timetable.every_ms,
            "zone": timetable.zone,
            "starts_at": None if starts_at is None else write_instant(starts_at),
            "catch_up": self.catch_up,
            "tenants": self.tenants,
        }

    def request(self, fire_at: datetime, handler: Handler, org_id: str) -> JobRequest:
        """The request for the job of one tick and tenant. Its key makes the job unique.

        A recurring job of the application's own is enqueued like any other at the tick.
        """
        tick = f"schedule:{self.name}:{write_instant(fire_at)}"
        return JobRequest(
            payload=self.payload,
            org_id=org_id,
            project_id=self.project_id,
            actor=Actor(ActorType.SYSTEM, f"schedule:{self.name}"),
            idempotency_key=tick,
            request_id=tick,
            correlation_id=tick,
            scheduled_for=fire_at if handler.category.rules.may_be_scheduled else None,
        )


def make_schedule(name: str, options: ScheduleOptions, *, now: datetime) -> Schedule:
    """Create a schedule from its options. Raises InvalidSchedule with every bad field."""
    errors: dict[str, str] = {}
    unknown = set(options) - set(ScheduleOptions.__annotations__)
    errors |= dict.fromkeys(sorted(unknown), "is not an option of a schedule")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        errors["name"] = "must be lower-case letters, digits, _ and -, beginning with a letter"
    made = Schedule(
        str(name),
        _timetable(options, now, errors),
        _misfire_policy(options.get("catch_up", MisfirePolicy.ONE), errors),
        **_target(options, errors),
    )
    if errors:
        raise InvalidSchedule(str(name), errors)
    return made


def _timetable(options: ScheduleOptions, now: datetime, errors: dict[str, str]) -> Timetable:
    cron, every = options.get("cron"), options.get("every")
    zone, starts_at = options.get("zone") or "UTC", options.get("starts_at")
    every_ms = None
    if (cron is None) == (every is None):
        errors["cron"] = "needs one of cron and every, and only one"
    elif cron is not None:
        cron = _read("cron", cron, str, parse_cron, errors) and " ".join(str(cron).split())
        _read("zone", zone, str, read_zone, errors)
    else:
        every_ms = _read("every", every, (str, timedelta), read_every, errors)
        if zone != "UTC":
            errors["zone"] = "is for a cron: an interval is the same length everywhere"
    if starts_at is not None:
        if not isinstance(starts_at, datetime) or starts_at.tzinfo is None:
            errors["starts_at"] = "must be a datetime with a time zone"
        elif abs(starts_at - now) > FARTHEST:
            errors["starts_at"] = "is more than five years away"
        else:
            # Rounded to the precision of the store, so that the ticks do not change when stored.
            starts_at = read_instant(write_instant(starts_at))
    return Timetable(cron, every_ms, str(zone), starts_at)


def _read(
    name: str,
    value: Any,
    kind: type | tuple[type, ...],
    read: Callable[[Any], Any],
    errors: dict[str, str],
) -> Any:
    if not isinstance(value, kind):
        errors[name] = f"must be text, not {type(value).__name__}"
        return None
    try:
        return read(value)
    except BadTiming as exc:
        errors[name] = str(exc)
        return None


def _misfire_policy(value: object, errors: dict[str, str]) -> MisfirePolicy:
    if isinstance(value, str) and value in tuple(MisfirePolicy):
        return MisfirePolicy(value)
    errors["catch_up"] = "must be skip, one or all"
    return MisfirePolicy.ONE


def _target(options: ScheduleOptions, errors: dict[str, str]) -> dict[str, Any]:
    job_type, run = options.get("job_type"), options.get("run")
    if (job_type is None) == (run is None):
        errors["job_type"] = "needs one of job_type and run, and only one"
        return {}
    if run is not None:
        if not isinstance(run, str) or not NAME.fullmatch(run):
            errors["run"] = "must be the name of a run"
        for name in ("payload", "org_id", "project_id", "tenants"):
            if options.get(name):
                errors[name] = "is for a job: a run serves every tenant"
        return {"run_name": run}
    if not isinstance(job_type, str) or not JOB_TYPE.fullmatch(job_type):
        errors["job_type"] = "must be lower-case words joined by dots"
    target: dict[str, Any] = {"job_type": job_type}
    target["tenants"], target["list_tenants"] = read_option(options.get("tenants"), errors)
    is_for_several = options.get("tenants") is not None
    for name in ("org_id", "project_id"):
        value = options.get(name)
        if value is None and (name == "project_id" or is_for_several):
            continue
        if is_for_several:
            errors[name] = "is for a schedule of one tenant; leave it out with tenants"
            continue
        try:
            target[name] = read_named_id(value)
        except ValueError as exc:
            errors[name] = str(exc)
    payload = options.get("payload") or {}
    if not isinstance(payload, Mapping):
        errors["payload"] = f"must be an object, not {type(payload).__name__}"
        return target
    try:
        # A normalized copy, so that the declaration cannot change afterwards.
        target["payload"] = decode(canonical(dict(payload)))
    except BadDocument as exc:
        errors["payload"] = str(exc)
    return target


def handler_of(schedule: Schedule, registry: Registry) -> Handler:
    """The handler of a scheduled job, if it may be scheduled. Raises InvalidSchedule.

    Of the specification's categories only maintenance jobs and notifications are scheduled. Jobs of
    general categories, which an application defines for itself, are enqueued at the tick.
    """
    job_type = schedule.job_type or ""
    if job_type not in registry:
        says = f"{job_type!r} is not registered here; for a command, name the application by --app"
        raise InvalidSchedule(schedule.name, {"job_type": says})
    handler = registry.get(job_type)
    rules = handler.category.rules
    if not rules.may_be_scheduled and rules is not CategoryRules.GENERAL:
        says = (
            f"{job_type!r} is neither maintenance nor a notification, and jobs of category"
            f" {handler.category.name!r} are not scheduled; schedule a job of a general category"
            " that enqueues it"
        )
        raise InvalidSchedule(schedule.name, {"job_type": says})
    if handler.producer is not None:
        says = f"{job_type!r} is enqueued by {handler.producer.call} only, not by a schedule"
        raise InvalidSchedule(schedule.name, {"job_type": says})
    return handler


# -- declarations of an application


@dataclass(slots=True)
class Declared:
    """The schedules that an application's code declares."""

    by_name: dict[str, Schedule] = field(default_factory=dict)

    def add(self, schedule: Schedule, registry: Registry) -> None:
        if schedule.name in self.by_name:
            raise ConfigError(f"Schedule {schedule.name!r} is declared twice.")
        if schedule.job_type is not None and schedule.job_type in registry:
            handler_of(schedule, registry)
        self.by_name[schedule.name] = schedule

    def with_settings(self, settings: Settings, *, now: datetime) -> dict[str, Schedule]:
        """All declared schedules: of code, of the settings (which win), of runs with a cadence."""
        found = {**self.by_name, **_in_settings(settings, now)}
        served = {schedule.run_name for schedule in found.values()}
        for name, run in settings.runs.items():
            cadence = settings.run_of(name).schedule
            # A schedule that names the run replaces its cadence.
            if cadence is not None and name not in found and name not in served:
                options: ScheduleOptions = {
                    "cron": cadence.cron,
                    "every": cadence.every,
                    "zone": run.zone if cadence.cron is not None else "UTC",
                    "run": name,
                }
                found[name] = make_schedule(name, options, now=now)
        return found


def _in_settings(settings: Settings, now: datetime) -> dict[str, Schedule]:
    names = ("cron", "every", "zone", "catch_up", "job_type", "payload", "org_id", "tenants", "run")
    found = {}
    for name, section in settings.schedules.items():
        options = {option: getattr(section, option) for option in names}
        found[name] = make_schedule(name, options, now=now)  # type: ignore[arg-type]
    return found
