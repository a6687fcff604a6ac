"""Alerts: problems for an operator, derived from events and rate-limited.

An alert is sent after the commit and may be lost with its process; the audit is authoritative. It
contains kinds, ids and numbers, and no text from a job, a request or an exception.

Alerts with one fingerprint are sent once per quiet period: the first at once, the others as one
alert with their count when the period ends. Every process counts separately.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.app import Holdfast
from holdfast.clock import Clock, write_instant
from holdfast.config import AlertSettings
from holdfast.document import stable_hash
from holdfast.event import (
    AuditTampered,
    BatchAlert,
    DeadLetterEscalated,
    DeliveryAlert,
    Event,
    JobEnqueued,
    JobSettled,
    JobStarted,
    LeaseWasLost,
    NotificationDropped,
    QueueCrowded,
    ScheduleSkipped,
    WorkerChanged,
    WorkerRunFinished,
)
from holdfast.telemetry import log
from holdfast.telemetry.alert_sink import AlertSink
from holdfast.telemetry.severity import BATCH_TROUBLES, DELIVERY_TROUBLES, Severity

__all__ = [
    "Alert",
    "Alerts",
    "Kind",
    "Severity",
    "Target",
    "alert",
    "alert_as_set",
    "alert_of",
    "log_alert",
]

# More than an installation has kinds of problems. It bounds memory if fingerprints are unbounded.
FINGERPRINTS = 1_000


class Kind(StrEnum):
    """The kind of problem."""

    DEAD_LETTER = "dead_letter"
    DEAD_LETTER_ESCALATED = "dead_letter_escalated"
    QUEUE_CROWDED = "queue_crowded"
    LEASES_LOST = "leases_lost"
    CLOCK_DRIFT = "clock_drift"
    STORE_DOWN = "store_down"
    UPKEEP_FAILED = "upkeep_failed"
    AUDIT_TAMPERED = "audit_tampered"
    NOTIFICATION_DROPPED = "notification_dropped"
    SCHEDULE_MISSED = "schedule_missed"
    RUN_FAILED = "run_failed"
    WORKER_RECYCLING = "worker_recycling"
    WORKER_DIED = "worker_died"
    BATCH = "batch"
    DELIVERY = "delivery"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. Alerts with the same *fingerprint* concern the same problem."""

    kind: Kind
    severity: Severity
    summary: str
    subject: Mapping[str, str | int | None]
    at: datetime
    fingerprint: str
    count: int = 1

    def document(self) -> dict[str, object]:
        """Return the alert as a JSON document."""
        return {
            "kind": self.kind.value,
            "severity": self.severity.value,
            "summary": self.summary,
            "count": self.count,
            "at": write_instant(self.at),
            "fingerprint": self.fingerprint,
            "subject": dict(self.subject),
        }


Target = Callable[[Alert], None]


def alert_of(event: Event, at: datetime) -> Alert | None:
    """The alert of an event; None if the event alone raises none. Pure."""
    match event:
        case JobSettled(outcome="dead"):
            return _dead_letter(event, at)
        case DeadLetterEscalated():
            return _escalated(event, at)
        case QueueCrowded(queue, small_depth):
            summary = f"More than {small_depth} jobs wait in {queue}"
            made = _Making(Kind.QUEUE_CROWDED, Severity.WARNING, at, (queue,))
            return made.alert(summary, queue=queue, small_depth=small_depth)
        case AuditTampered(org_id, finding, seal, seq):
            made = _Making(Kind.AUDIT_TAMPERED, Severity.CRITICAL, at, (org_id,))
            summary = f"A tenant's audit failed verification: {finding}"
            return made.alert(summary, org_id=org_id, seal=seal, seq=seq)
        case NotificationDropped(job_type, org_id, reason):
            made = _Making(Kind.NOTIFICATION_DROPPED, Severity.WARNING, at, (job_type, reason))
            summary = f"A {job_type} notification could not be enqueued: {reason}"
            return made.alert(summary, job_type=job_type, org_id=org_id, reason=reason)
        case ScheduleSkipped(schedule, fire_at, outcome) if outcome in ("missed", "held"):
            made = _Making(Kind.SCHEDULE_MISSED, Severity.WARNING, at, (schedule, outcome))
            summary = f"Schedule {schedule}: {event.ticks} ticks were {outcome}"
            due = write_instant(fire_at)
            return made.alert(summary, schedule=schedule, fire_at=due, ticks=event.ticks)
        case BatchAlert(batch_id, account, what, detail):
            severity, says = BATCH_TROUBLES[what]
            made = _Making(Kind.BATCH, severity, at, (what, account))
            subject = {"what": what.value, "batch_id": batch_id, "account": account}
            return made.alert(says, **subject, detail=detail or None, items=event.count)
        case DeliveryAlert(channel, what, delivery_id, org_id, detail):
            severity, says = DELIVERY_TROUBLES[what]
            made = _Making(Kind.DELIVERY, severity, at, (what, channel))
            subject = {"what": what.value, "channel": channel, "delivery_id": delivery_id}
            told = {"org_id": org_id, "detail": detail or None, "deliveries": event.count}
            return made.alert(says, **subject, **told)
        case WorkerRunFinished(run_id, name, outcome=("failed" | "lost") as outcome):
            made = _Making(Kind.RUN_FAILED, Severity.ERROR, at, (name, outcome))
            return made.alert(f"Run {name} failed: {outcome}", run=name, run_id=run_id)
        case WorkerChanged(worker_id, change) if change in _CHANGES:
            kind, severity, summary = _CHANGES[change]
            made = _Making(kind, severity, at, (change,))
            return made.alert(summary, worker_id=worker_id, change=change)
        case _:
            return None


_CHANGES: Mapping[str, tuple[Kind, Severity, str]] = {
    "store_down": (Kind.STORE_DOWN, Severity.CRITICAL, "A worker cannot reach its database"),
    "rescue_failed": (
        Kind.STORE_DOWN,
        Severity.CRITICAL,
        "The jobs of a dead worker could not be rescued",
    ),
    "dispatch_failed": (
        Kind.STORE_DOWN,
        Severity.CRITICAL,
        "A dispatcher cannot reach its database",
    ),
    "upkeep_failed": (
        Kind.UPKEEP_FAILED,
        Severity.ERROR,
        "A worker cannot rescue, seal or prune",
    ),
    "clock_drift": (
        Kind.CLOCK_DRIFT,
        Severity.ERROR,
        "A worker's clock differs too much from the database's, and it claims no jobs",
    ),
    "recycling": (
        Kind.WORKER_RECYCLING,
        Severity.WARNING,
        "A worker restarts: too many handlers ignore their timeout",
    ),
    "died": (Kind.WORKER_DIED, Severity.ERROR, "A worker process died"),
    "thread_died": (
        Kind.WORKER_DIED,
        Severity.ERROR,
        "A thread of a worker died or is stuck, and the worker exits",
    ),
    "dispatcher_died": (
        Kind.WORKER_DIED,
        Severity.ERROR,
        ("A dispatcher failed with an unexpected error"),
    ),
}


def _dead_letter(event: JobSettled, at: datetime) -> Alert:
    about, error_class = event.about, event.error_class or "UNKNOWN"
    severity = Severity.CRITICAL if event.pages_operator else Severity.ERROR
    same = (about.job_type, event.stage, error_class)
    return _Making(Kind.DEAD_LETTER, severity, at, same).alert(
        f"A {about.job_type} job was dead-lettered with {error_class} at stage {event.stage},"
        f" attempt {event.attempt}",
        **asdict(about),
        queue=event.queue,
        stage=event.stage,
        error_class=error_class,
    )


def _escalated(event: DeadLetterEscalated, at: datetime) -> Alert:
    about = event.about
    same = (about.job_type, event.stage, event.error_class)
    return _Making(Kind.DEAD_LETTER_ESCALATED, Severity.CRITICAL, at, same).alert(
        f"Replay {event.replays} of a {about.job_type} job failed as before,"
        f" with {event.error_class} at stage {event.stage}",
        **asdict(about),
        letter_id=event.letter_id,
        queue=event.queue,
        stage=event.stage,
        error_class=event.error_class,
    )


@dataclass(frozen=True, slots=True)
class _Making:
    """An alert to build; *same* identifies the problem."""

    kind: Kind
    severity: Severity
    at: datetime
    same: tuple[str, ...] = ()

    def alert(self, summary: str, **subject: str | int | None) -> Alert:
        fingerprint = stable_hash(self.kind.value, *self.same)[:16]
        return Alert(self.kind, self.severity, summary, subject, self.at, fingerprint)


@dataclass(slots=True)
class _Told:
    """The last alert of one fingerprint, and the number suppressed since."""

    at: float
    newest: Alert
    held: int = 0


@dataclass(slots=True)
class Alerts:
    """A subscriber that sends alerts to targets. A failing target never affects jobs."""

    clock: Clock
    settings: AlertSettings
    targets: Sequence[Target]
    _losses: deque[float] = field(init=False)
    _told: dict[str, _Told] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._losses = deque(maxlen=self.settings.lease_losses.count)
        # Registered after logging, so it runs before logging shuts down.
        atexit.register(self.close)

    def __call__(self, event: Event) -> None:
        """Handle an event. It runs in the emitting thread and takes microseconds."""
        match event:
            # Nearly all events: every job emits three.
            case JobEnqueued() | JobStarted():
                return
            case JobSettled(outcome=outcome) if outcome != "dead":
                return
        if isinstance(event, LeaseWasLost):
            found = self._leases_lost()
        else:
            found = alert_of(event, self.clock.now())
        if found is None or found.severity.rank < Severity(self.settings.min_severity).rank:
            return
        for alert in self._let_through(found):
            self._tell(alert)

    def flush(self) -> float:
        """Send suppressed alerts that are due; return the seconds until the next one."""
        due: list[Alert] = []
        with self._lock:
            now = self.clock.monotonic()
            for fingerprint, told in list(self._told.items()):
                if now - told.at < self.settings.quiet_seconds:
                    continue
                if told.held:
                    due.append(replace(told.newest, count=told.held))
                    told.at, told.held = now, 0
                else:
                    del self._told[fingerprint]
            waiting = [told.at for told in self._told.values() if told.held]
        for alert in due:
            self._tell(alert)
        return min(waiting, default=now) + self.settings.quiet_seconds - now

    def close(self) -> None:
        """Send suppressed alerts now, and wait a bounded time for the targets."""
        atexit.unregister(self.close)
        self._ending.set()
        with self._lock:
            held = [replace(told.newest, count=told.held) for told in self._told.values()]
            self._told.clear()
        for alert in held:
            if alert.count:
                self._tell(alert)
        for target in self.targets:
            if isinstance(target, AlertSink):
                target.close()

    def _leases_lost(self) -> Alert | None:
        rate = self.settings.lease_losses
        with self._lock:
            self._losses.append(self.clock.monotonic())
            if len(self._losses) < rate.count or self._losses[-1] - self._losses[0] > rate.seconds:
                return None
        made = _Making(Kind.LEASES_LOST, Severity.ERROR, self.clock.now())
        summary = f"{rate.count} leases were lost within {rate.seconds} seconds"
        return made.alert(summary, leases=rate.count, seconds=rate.seconds)

    def _let_through(self, alert: Alert) -> list[Alert]:
        """Return the alert with its count, or nothing within the quiet period."""
        found: list[Alert] = []
        with self._lock:
            now = self.clock.monotonic()
            told = self._told.get(alert.fingerprint)
            if told is not None and now - told.at < self.settings.quiet_seconds:
                told.newest, told.held = alert, told.held + 1
                self._start()
                return []
            count = 1 if told is None else told.held + 1
            # The oldest is evicted first; a dict keeps insertion order.
            self._told.pop(alert.fingerprint, None)
            self._told[alert.fingerprint] = _Told(now, alert)
            if len(self._told) > FINGERPRINTS:
                oldest = self._told.pop(next(iter(self._told)))
                if oldest.held:
                    found.append(replace(oldest.newest, count=oldest.held))
            found.append(replace(alert, count=count))
        return found

    def _tell(self, alert: Alert) -> None:
        for target in self.targets:
            try:
                target(alert)
            except Exception:
                log.logger.warning("alert.failed", exc_info=True, extra={"fields": {}})

    def _start(self) -> None:
        # Threads do not survive a fork.
        if self._thread is None or not self._thread.is_alive():
            self._ending.clear()
            self._thread = threading.Thread(target=self._run, name="holdfast-alerts", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = self.settings.quiet_seconds
        # An alert may be suppressed during the pause and be due before its end.
        while not self._ending.wait(max(min(pause, self.settings.quiet_seconds / 10), 0.05)):
            pause = self.flush()


_LEVELS = {
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
    Severity.CRITICAL: logging.CRITICAL,
}


def log_alert(alert: Alert) -> None:
    """An alert target that writes one log line."""
    told: dict[str, Any] = {**alert.document(), **alert.subject}
    del told["subject"], told["at"]
    log.write(_LEVELS[alert.severity], "alert", **told)


def alert(hf: Holdfast, *targets: Target) -> Alerts:
    """Send alerts about problems of *hf* and its workers to *targets*, each in its own thread."""
    alerts = Alerts(hf.clock, hf.settings.alerts, [AlertSink(target) for target in targets])
    hf.events.subscribe(alerts)
    return alerts


def alert_as_set(hf: Holdfast) -> Alerts:
    """Use the targets of ``[alerts]``: the log, and a channel if one is configured."""
    settings = hf.settings.alerts
    targets: list[Target] = [log_alert]
    if settings.channel is not None or settings.webhook is not None:
        # Channels are loaded only if they send alerts.
        from holdfast.telemetry.alert_delivery import configured_deliveries

        targets.extend(map(AlertSink, configured_deliveries(hf)))
    alerts = Alerts(hf.clock, settings, targets)
    hf.events.subscribe(alerts)
    return alerts
