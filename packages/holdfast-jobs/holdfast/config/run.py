"""The settings of profiles, bounded runs and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from holdfast.config.section import BUILT_IN_QUEUES
from holdfast.config.setting_type import (
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
    Section,
    SettingType,
    is_valid,
    one_of,
    refuse,
    seconds_list,
    setting,
    texts,
    whole,
)

ORDERS = ("created_at_asc", "fair")
CATCH_UPS = ("skip", "one", "all")

_JOBS = whole(1, 100_000)
_RUNTIME = whole(1, 86_400)
_CLAIM = whole(1, 86_400)
_ORDER = one_of(ORDERS)
_STATUSES = SettingType(
    '["queued"]: that is what a run of jobs takes; batch_submitted is left to batch collectors',
    lambda v: v == ("queued",),
    lambda v: tuple(v) if isinstance(v, list) else v,
)
_BACKOFF = seconds_list()

# Delay of a claimed job that the run did not reach, so that the next run first claims jobs that
# were never claimed.
OVERFLOW_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RunProfile(Section):
    """Limits of one bounded run: `[profiles.NAME]`."""

    max_jobs_per_run: int = setting(25, _JOBS)
    """Maximum number of jobs that one run claims."""
    max_runtime_seconds: int = setting(240, _RUNTIME)
    """After this time a run claims no further jobs."""
    claim_timeout_seconds: int = setting(600, _CLAIM)
    """Lease duration of the jobs that the run claims."""
    order: str = setting("created_at_asc", _ORDER)
    """`created_at_asc` claims the oldest jobs first. `fair` distributes the claim over tenants as a
    worker does."""
    eligible_statuses: tuple[str, ...] = setting(("queued",), _STATUSES)
    """States of the jobs that the run claims. Only `queued` is accepted; batch collectors handle
    `batch_submitted`."""
    respect_not_before_at: bool = setting(True, FLAG)
    """Skip deferred jobs until they are due."""
    retry_backoff_seconds: tuple[int, ...] = setting((900, 7200), _BACKOFF)
    """Retry delays of job types declared with `RetryPolicy.by_run()`."""
    schedule: Cadence | None = setting(None, CADENCE)
    """When the run is due: an interval such as `every 15m` (s, m, h, d) or a cron expression."""

    @property
    def overflow_seconds(self) -> float:
        """Delay of a job that is released unused; shorter than the delay of its first retry."""
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
    """A bounded run: which jobs it claims, its profile and its overrides: `[runs.NAME]`."""

    queues: tuple[str, ...] = setting(
        (),
        texts(
            'a list of at least one queue such as "q:default", and not the dead letters',
            lambda v: is_valid(QUEUE_NAME, v),
            some=True,
        ),
    )
    """Queues that the run claims from, in this order. The built-in runs use every built-in
    queue."""
    job_types: tuple[str, ...] = setting(
        (), texts("a list of job types", lambda v: JOB_TYPE.fullmatch(v) is not None)
    )
    """Only jobs of these types are claimed. If empty, all types are."""
    profile: str | None = setting(None, PLAIN_NAME)
    """Profile with the limits of the run. The default is the setting `profile`."""
    max_jobs_per_run: int | None = setting(None, _JOBS)
    """Overrides the profile: maximum number of jobs that one run claims."""
    max_runtime_seconds: int | None = setting(None, _RUNTIME)
    """Overrides the profile: after this time a run claims no further jobs."""
    claim_timeout_seconds: int | None = setting(None, _CLAIM)
    """Overrides the profile: lease duration of the jobs that the run claims."""
    order: str | None = setting(None, _ORDER)
    """Overrides the profile: `created_at_asc` or `fair`."""
    eligible_statuses: tuple[str, ...] | None = setting(None, _STATUSES)
    """Overrides the profile: states of the jobs that the run claims."""
    respect_not_before_at: bool | None = setting(None, FLAG)
    """Overrides the profile: skip deferred jobs until they are due."""
    retry_backoff_seconds: tuple[int, ...] | None = setting(None, _BACKOFF)
    """Overrides the profile: retry delays of job types declared with `RetryPolicy.by_run()`."""
    schedule: Cadence | None = setting(None, CADENCE)
    """Overrides the profile: when the run is due."""
    zone: str = setting("UTC", ZONE)
    """Time zone of a cron expression in `schedule`."""

    def over(self, profile: RunProfile) -> RunProfile:
        """Return the profile with the overrides of this run."""
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
    """A job or a bounded run that becomes due repeatedly: `[schedules.NAME]`."""

    cron: str | None = setting(None, CRON)
    """Cron expression with five fields, or a name such as `@daily`. Either `cron` or `every` is
    required."""
    every: timedelta | None = setting(None, LENGTH)
    """Interval such as `2h`, from 10 seconds to 366 days."""
    zone: str = setting("UTC", ZONE)
    """Time zone of the cron expression."""
    catch_up: str = setting("one", one_of(CATCH_UPS))
    """Misfire policy for missed ticks: `skip` them, run `one` for all of them, or run `all`."""
    job_type: str | None = setting(None, JOB_TYPE_NAME)
    """Job type to enqueue, together with `org_id`. Either `job_type` or `run` is required."""
    payload: Mapping[str, Any] = field(default_factory=dict, metadata={"kind": DOCUMENT})
    """Payload of the job."""
    org_id: str | None = setting(None, UUID)
    """Tenant of the job."""
    tenants: str | None = setting(None, one_of(("all",)))
    """`all` instead of `org_id`: one job for every tenant that has jobs or rules."""
    run: str | None = setting(None, PLAIN_NAME)
    """Bounded run to start."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        problems = []
        if (self.cron is None) == (self.every is None):
            problems.append("it needs either cron or every")
        if self.cron is None and self.zone != "UTC":
            problems.append("zone is for a cron: an interval is the same length everywhere")
        if (self.job_type is None) == (self.run is None):
            problems.append("it needs either job_type or run")
        if (self.job_type is None) != (self.org_id is None and self.tenants is None):
            problems.append("job_type and org_id go together: a job belongs to a tenant")
        if self.org_id is not None and self.tenants is not None:
            problems.append("it needs either org_id or tenants")
        if self.run is not None and self.payload:
            problems.append("a run has no payload")
        refuse("Invalid ScheduleSettings", problems)

    @property
    def cadence(self) -> Cadence:
        """When the schedule fires."""
        return Cadence(self.every, self.cron)
