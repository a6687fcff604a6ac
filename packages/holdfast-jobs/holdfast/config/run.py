"""The sections of holdfast.toml that say what a run may do and when it is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from holdfast.config.kind import (
    CADENCE,
    CRON,
    DOCUMENT,
    FLAG,
    JOB_TYPE,
    JOB_TYPE_NAME,
    LENGTH,
    PLAIN_NAME,
    QUEUE_NAME,
    UUID,
    ZONE,
    Cadence,
    Kind,
    Section,
    fits,
    one_of,
    refuse,
    seconds_list,
    setting,
    texts,
    whole,
)
from holdfast.config.section import BUILT_IN_QUEUES

ORDERS = ("created_at_asc", "fair")
CATCH_UPS = ("skip", "one", "all")

_JOBS = whole(1, 100_000)
_RUNTIME = whole(1, 86_400)
_CLAIM = whole(1, 86_400)
_ORDER = one_of(ORDERS)
_STATUSES = Kind(
    '["queued"]: that is what a run of jobs takes; batch_submitted is left to batch collectors',
    lambda v: v == ("queued",),
    lambda v: tuple(v) if isinstance(v, list) else v,
)
_BACKOFF = seconds_list()

# How long a job that was claimed and not reached waits, so that the run that comes next finds those
# first that were never claimed.
OVERFLOW_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RunProfile(Section):
    """What one run may do: how many jobs, for how long, in which order, with which patience."""

    max_jobs_per_run: int = setting(25, _JOBS)
    max_runtime_seconds: int = setting(240, _RUNTIME)
    claim_timeout_seconds: int = setting(600, _CLAIM)
    order: str = setting("created_at_asc", _ORDER)
    eligible_statuses: tuple[str, ...] = setting(("queued",), _STATUSES)
    respect_not_before_at: bool = setting(True, FLAG)
    retry_backoff_seconds: tuple[int, ...] = setting((900, 7200), _BACKOFF)
    schedule: Cadence | None = setting(None, CADENCE)

    @property
    def overflow_seconds(self) -> float:
        """The pause of a job that is given back unused: shorter than its first retry would be."""
        first = self.retry_backoff_seconds[0]
        return OVERFLOW_SECONDS if first > OVERFLOW_SECONDS else first / 2


BUILT_IN_PROFILES: Mapping[str, RunProfile] = {
    "example": RunProfile(),
    "dev": RunProfile(
        max_jobs_per_run=5,
        max_runtime_seconds=120,
        claim_timeout_seconds=300,
        retry_backoff_seconds=(120, 600),
        schedule=Cadence(every=timedelta(hours=2)),
    ),
    "stage": RunProfile(
        max_jobs_per_run=30,
        max_runtime_seconds=180,
        claim_timeout_seconds=900,
        retry_backoff_seconds=(300, 1800),
        schedule=Cadence(every=timedelta(minutes=30)),
    ),
    "prod": RunProfile(
        max_jobs_per_run=200,
        max_runtime_seconds=240,
        claim_timeout_seconds=3600,
        retry_backoff_seconds=(3600, 21600),
        schedule=Cadence(every=timedelta(hours=1)),
    ),
}


@dataclass(frozen=True, slots=True)
class RunSettings(Section):
    """A named run: which jobs it takes, and where it differs from its profile."""

    queues: tuple[str, ...] = setting(
        (),
        texts(
            'a list of at least one queue such as "q:default", and not the dead letters',
            lambda v: fits(QUEUE_NAME, v),
            some=True,
        ),
    )
    job_types: tuple[str, ...] = setting(
        (), texts("a list of job types", lambda v: JOB_TYPE.fullmatch(v) is not None)
    )
    profile: str | None = setting(None, PLAIN_NAME)
    max_jobs_per_run: int | None = setting(None, _JOBS)
    max_runtime_seconds: int | None = setting(None, _RUNTIME)
    claim_timeout_seconds: int | None = setting(None, _CLAIM)
    order: str | None = setting(None, _ORDER)
    eligible_statuses: tuple[str, ...] | None = setting(None, _STATUSES)
    respect_not_before_at: bool | None = setting(None, FLAG)
    retry_backoff_seconds: tuple[int, ...] | None = setting(None, _BACKOFF)
    schedule: Cadence | None = setting(None, CADENCE)
    zone: str = setting("UTC", ZONE)

    def over(self, profile: RunProfile) -> RunProfile:
        """*profile* with what this run sets for itself."""
        own: dict[str, Any] = {
            item.name: value
            for item in fields(RunProfile)
            if (value := getattr(self, item.name)) is not None
        }
        return replace(profile, **own)


OUTBOX_RUNS: Mapping[str, RunSettings] = {
    "outbox_reconciler": RunSettings(
        queues=tuple(BUILT_IN_QUEUES),
        max_jobs_per_run=10_000,
        schedule=Cadence(every=timedelta(minutes=5)),
    ),
}
BUILT_IN_RUNS: Mapping[str, RunSettings] = {
    **OUTBOX_RUNS,
}


@dataclass(frozen=True, slots=True)
class ScheduleSettings(Section):
    """Something that is due again and again: a job for a tenant, or a run."""

    cron: str | None = setting(None, CRON)
    every: timedelta | None = setting(None, LENGTH)
    zone: str = setting("UTC", ZONE)
    catch_up: str = setting("one", one_of(CATCH_UPS))
    job_type: str | None = setting(None, JOB_TYPE_NAME)
    payload: Mapping[str, Any] = field(default_factory=dict, metadata={"kind": DOCUMENT})
    org_id: str | None = setting(None, UUID)
    run: str | None = setting(None, PLAIN_NAME)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        problems = []
        if (self.cron is None) == (self.every is None):
            problems.append("it needs either cron or every")
        if self.cron is None and self.zone != "UTC":
            problems.append("zone is for a cron: an interval is the same length everywhere")
        if (self.job_type is None) == (self.run is None):
            problems.append("it needs either job_type or run")
        if (self.job_type is None) != (self.org_id is None):
            problems.append("job_type and org_id go together: a job belongs to a tenant")
        if self.run is not None and self.payload:
            problems.append("a run has no payload")
        refuse("ScheduleSettings cannot be used", problems)

    @property
    def cadence(self) -> Cadence:
        """When the schedule fires; None if the section does not say."""
        return Cadence(self.every, self.cron)
