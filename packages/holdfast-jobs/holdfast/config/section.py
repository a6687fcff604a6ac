"""The sections of holdfast.toml that bound the flow of jobs and say how long things are kept."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from holdfast.config.kind import (
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
    """Let code write a rate as the file does."""
    if isinstance(given.rate, str):
        with suppress(ValueError):
            object.__setattr__(given, "rate", Rate.read(given.rate))


@dataclass(frozen=True, slots=True)
class QueueSettings(Section):
    """How much of the workers a queue gets, and how much may wait in it."""

    weight: int = setting(1, whole(1, 100, more=_PAUSE))
    max_running: int | None = setting(None, _QUEUE_CAP)
    max_running_per_tenant: int | None = setting(None, _QUEUE_CAP)
    max_depth: int | None = setting(None, _QUEUE_CAP)
    max_depth_per_tenant: int | None = setting(None, _QUEUE_CAP)
    rate: Rate | None = setting(None, RATE)
    small_depth: int | None = setting(None, _QUEUE_CAP)

    def __post_init__(self) -> None:
        _read_rate(self)
        Section.__post_init__(self)


# What a queue has before anybody sets it; the migration that makes the queues writes the same.
BUILT_IN_QUEUES: Mapping[str, QueueSettings] = {
    "q:critical": QueueSettings(weight=8, small_depth=100),
    "q:default": QueueSettings(weight=4),
    "q:notifications": QueueSettings(weight=4),
    "q:planning": QueueSettings(weight=2),
    "q:exports": QueueSettings(weight=2),
    # Housekeeping is bounded and rate-limited from the start.
    "q:maintenance": QueueSettings(weight=1, max_running=4, rate=Rate(240, 60)),
}


@dataclass(frozen=True, slots=True)
class TenantSettings(Section):
    """A tenant's share and its limit over all queues."""

    weight: int = setting(1, whole(1, 10))
    max_running: int | None = setting(
        None, cap(more="; to stop one tenant's jobs, cancel them: holdfast jobs cancel JOB")
    )


@dataclass(frozen=True, slots=True)
class KeySettings(Section):
    """The limit of something outside that jobs share, such as a provider."""

    max_running: int | None = setting(None, cap(more=_PAUSE))
    rate: Rate | None = setting(None, RATE)

    def __post_init__(self) -> None:
        _read_rate(self)
        Section.__post_init__(self)
        if self.max_running is None and self.rate is None:
            refuse("KeySettings cannot be used", ["a key needs max_running or rate"])


_SHORTEST_KEY_DAYS = 7
_LONGEST_KEY_DAYS = 30
# A century: what lies before year one cannot be compared with.
_FOR_EVER_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class RetentionRule(Section):
    """How long the ended jobs of one category, type or state are kept."""

    keep_days: float = setting(
        90.0,
        number(_SHORTEST_KEY_DAYS, _FOR_EVER_DAYS, more=": no idempotency key ends before 7 days"),
    )
    category: str | None = setting(None, PLAIN_NAME)
    job_type: str | None = setting(None, JOB_TYPE_NAME)
    state: str | None = setting(None, one_of(("completed", "failed", "canceled")))

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if (self.category, self.job_type, self.state) == (None, None, None):
            refuse("RetentionRule cannot be used", ["it names no category, job_type or state"])


@dataclass(frozen=True, slots=True)
class RetentionSettings(Section):
    """How long ended jobs stay among the live ones, and how long in the archive."""

    archive_after_hours: float = setting(
        1.0, number(0.25, more=": an older transaction could not see that a key is taken")
    )
    keep_days: float = setting(
        90.0,
        number(
            _LONGEST_KEY_DAYS, _FOR_EVER_DAYS, more=": no job row leaves before its key expires"
        ),
    )
    keep_runs_days: float = setting(90.0, number(1))
    rules: tuple[RetentionRule, ...] = rows("[[retention.rules]]", RetentionRule)


_ADDRESS = re.compile(r"[^\x00-\x1f\x7f]{1,2000}")
_WEBHOOK = re.compile(r"https?://[^\s/@?#]+(/[^\s#]*)?")
SEVERITIES = ("warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class AlertSettings(Section):
    """Who is told of trouble, of how much, and how often."""

    # Many receivers know their senders by the address alone, so it is as good as a password.
    webhook: str | None = setting(
        None,
        text('an address such as "https://alerts.example.com/holdfast"', _WEBHOOK, is_secret=True),
    )
    webhook_secret: str = setting(
        "",
        text("empty or text of 16 or more characters", re.compile(r"|.{16,1000}"), is_secret=True),
    )
    # https of a server in a network of our own. Plain http is only for such a server.
    allow_private: bool = setting(False, FLAG)
    # A channel of [channels.NAME], and where it sends alerts to.
    channel: str | None = setting(None, PLAIN_NAME)
    address: str | None = setting(
        None, text("one line of at most 2000 characters", _ADDRESS, is_address=True)
    )
    min_severity: str = setting("warning", one_of(SEVERITIES))
    quiet_seconds: float = setting(300.0, number(1, 86_400))
    lease_losses: Rate = setting(Rate(10, 60), RATE)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        try:
            signing_key(self.webhook_secret)
        except ValueError:
            says = "webhook_secret begins with whsec_, and what follows is not base64"
            refuse("AlertSettings cannot be used", [says])
        if self.address is not None and self.channel is None:
            refuse("AlertSettings cannot be used", ["address needs channel"])


def signing_key(secret: str) -> bytes:
    """The bytes of a secret: what follows ``whsec_`` is base64, anything else is as it stands."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
