"""The settings of queues, tenants, limit keys, retention and alerts."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from holdfast.config.setting_type import (
    FLAG,
    JOB_TYPE_NAME,
    PLAIN_NAME,
    RATE,
    Rate,
    Section,
    cap,
    number,
    one_of,
    refuse,
    rows,
    setting,
    text,
    whole,
)

_PAUSE = "; to let nothing run, pause the queue: holdfast queues pause QUEUE --reason TEXT"
_QUEUE_CAP = cap(more=_PAUSE)


def _read_rate(given: QueueSettings | KeySettings) -> None:
    """Convert a rate given as text, as in the file."""
    if isinstance(given.rate, str):
        with suppress(ValueError):
            object.__setattr__(given, "rate", Rate.read(given.rate))


@dataclass(frozen=True, slots=True)
class QueueSettings(Section):
    """Weight, concurrency, depth and rate limits of a queue: `[queues."q:NAME"]`."""

    weight: int = setting(1, whole(1, 100, more=_PAUSE))
    """Share of the workers that the queue gets relative to other queues."""
    max_running: int | None = setting(None, _QUEUE_CAP)
    """Maximum number of jobs of the queue that run at the same time."""
    max_running_per_tenant: int | None = setting(None, _QUEUE_CAP)
    """Maximum number of jobs of one tenant in the queue that run at the same time."""
    max_depth: int | None = setting(None, _QUEUE_CAP)
    """Maximum number of waiting jobs. Further jobs are rejected with `QueueFull`."""
    max_depth_per_tenant: int | None = setting(None, _QUEUE_CAP)
    """Maximum number of waiting jobs of one tenant."""
    rate: Rate | None = setting(None, RATE)
    """Maximum number of jobs that start per second, minute, hour or day."""
    small_depth: int | None = setting(None, _QUEUE_CAP)
    """Depth up to which the queue counts as small. A deeper queue raises the `queue_crowded`
    alert."""

    def __post_init__(self) -> None:
        _read_rate(self)
        Section.__post_init__(self)


# Defaults of the built-in queues; the migration that creates them writes the same values.
BUILT_IN_QUEUES: Mapping[str, QueueSettings] = {
    "q:critical": QueueSettings(weight=8, small_depth=100),
    "q:default": QueueSettings(weight=4),
    "q:notifications": QueueSettings(weight=4),
    "q:planning": QueueSettings(weight=2),
    "q:exports": QueueSettings(weight=2),
    # Maintenance jobs are bounded and rate-limited by default.
    "q:maintenance": QueueSettings(weight=1, max_running=4, rate=Rate(240, 60)),
}


@dataclass(frozen=True, slots=True)
class TenantSettings(Section):
    """Weight and concurrency limit of a tenant over all queues: `[tenants."UUID"]`."""

    weight: int = setting(1, whole(1, 10))
    """Share of the workers that the tenant gets relative to other tenants."""
    max_running: int | None = setting(
        None, cap(more="; to stop one tenant's jobs, cancel them: holdfast jobs cancel JOB")
    )
    """Maximum number of jobs of the tenant that run at the same time, over all queues."""


@dataclass(frozen=True, slots=True)
class KeySettings(Section):
    """Limits of a shared resource, such as the API of a provider: `[keys."NAME"]`.

    A name that ends with `*`, such as `customer:*`, applies to each key with that prefix
    separately. It takes `max_running` only.
    """

    max_running: int | None = setting(None, cap(more=_PAUSE))
    """Maximum number of jobs with this key that run at the same time. Either this or `rate` is
    required."""
    rate: Rate | None = setting(None, RATE)
    """Maximum number of jobs with this key that start per second, minute, hour or day."""

    def __post_init__(self) -> None:
        _read_rate(self)
        Section.__post_init__(self)
        if self.max_running is None and self.rate is None:
            refuse("Invalid KeySettings", ["a key needs max_running or rate"])


_SHORTEST_KEY_DAYS = 7
_LONGEST_KEY_DAYS = 30
# A century: earlier dates than year one cannot be represented.
_FOR_EVER_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class RetentionRule(Section):
    """How long the ended jobs of a category, job type or state are kept.

    At least one of `category`, `job_type` and `state` is required.
    """

    keep_days: float = setting(
        90.0,
        number(_SHORTEST_KEY_DAYS, _FOR_EVER_DAYS, more=": no idempotency key ends before 7 days"),
    )
    """How long matching jobs are kept. It may not be shorter than the idempotency keys of the
    category live."""
    category: str | None = setting(None, PLAIN_NAME)
    """Matches jobs of this category."""
    job_type: str | None = setting(None, JOB_TYPE_NAME)
    """Matches jobs of this type. A rule for a job type takes precedence over a rule for a category,
    and that over a rule for a state."""
    state: str | None = setting(None, one_of(("completed", "failed", "canceled")))
    """Matches jobs that ended in this state."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if (self.category, self.job_type, self.state) == (None, None, None):
            refuse("Invalid RetentionRule", ["it names no category, job_type or state"])


@dataclass(frozen=True, slots=True)
class RetentionSettings(Section):
    """How long ended jobs and run records are kept: `[retention]`."""

    keep_days: float = setting(
        90.0,
        number(
            _LONGEST_KEY_DAYS, _FOR_EVER_DAYS, more=": no job row leaves before its key expires"
        ),
    )
    """How long ended jobs are kept. No job is deleted before its idempotency key
    expires."""
    keep_runs_days: float = setting(90.0, number(1))
    """How long the records of bounded runs are kept."""
    rules: tuple[RetentionRule, ...] = rows("[[retention.rules]]", RetentionRule)
    """Exceptions for a category, a job type or a state."""


_ADDRESS = re.compile(r"[^\x00-\x1f\x7f]{1,2000}")
_WEBHOOK = re.compile(r"https?://[^\s/@?#]+(/[^\s#]*)?")
SEVERITIES = ("warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class AlertSettings(Section):
    """Where alerts are sent, which ones, and how often: `[alerts]`."""

    webhook: str | None = setting(
        None,
        text('an address such as "https://alerts.example.com/holdfast"', _WEBHOOK, is_secret=True),
    )
    """URL that receives alerts. It is never displayed, because many receivers authenticate senders
    by the URL alone."""
    webhook_secret: str = setting(
        "",
        text("empty or text of 16 or more characters", re.compile(r"|.{16,1000}"), is_secret=True),
    )
    """Secret that signs the alerts. A value after `whsec_` is decoded as base64. If empty, alerts
    are not signed."""
    allow_private: bool = setting(False, FLAG)
    """Allow an `https:` webhook in a private network. Plain `http:` URLs are accepted for private
    addresses only."""
    channel: str | None = setting(None, PLAIN_NAME)
    """Channel of `[channels.NAME]` that sends alerts, with or without a webhook."""
    address: str | None = setting(
        None, text("one line of at most 2000 characters", _ADDRESS, is_address=True)
    )
    """Where the channel sends alerts: a mail address, a Slack channel or a URL."""
    min_severity: str = setting("warning", one_of(SEVERITIES))
    """Minimum severity of the alerts that are sent."""
    quiet_seconds: float = setting(300.0, number(1, 86_400))
    """Minimum interval between two alerts about the same problem."""
    lease_losses: Rate = setting(Rate(10, 60), RATE)
    """Number of lost leases per time that raises an alert."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        try:
            signing_key(self.webhook_secret)
        except ValueError:
            says = "webhook_secret starts with whsec_, but the rest is not base64"
            refuse("Invalid AlertSettings", [says])
        if self.address is not None and self.channel is None:
            refuse("Invalid AlertSettings", ["address needs channel"])


def signing_key(secret: str) -> bytes:
    """Decode a secret: base64 after ``whsec_``, otherwise its own bytes."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
