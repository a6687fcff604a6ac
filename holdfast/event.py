"""What happened, told after commit to whoever subscribed: logs, metrics, traces, alerts.

The audit is not here: it is written inside the transaction (engine/audit.py). An event may be lost
with its process; an audit row may not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

_log = logging.getLogger("holdfast.event")


@dataclass(frozen=True, slots=True)
class About:
    """The job an event is about: the fields that every log line and audit row carries."""

    job_id: str
    job_type: str
    org_id: str
    project_id: str | None
    request_id: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class JobEnqueued:
    about: About
    queue: str


@dataclass(frozen=True, slots=True)
class JobStarted:
    about: About
    queue: str
    attempt: int
    worker_id: str


@dataclass(frozen=True, slots=True)
class JobSettled:
    """An attempt ended. ``outcome`` is the verb that settle wrote."""

    about: About
    queue: str
    attempt: int
    outcome: str
    stage: str
    error_class: str | None = None
    seconds: float | None = None
    pages_operator: bool = False


@dataclass(frozen=True, slots=True)
class LeaseWasLost:
    about: About
    queue: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class AuditSealed:
    """The head of a tenant's audit chain. A copy kept elsewhere anchors the chain."""

    org_id: str
    number: int
    last_seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class WorkerChanged:
    """A worker started, drains, stopped or lost its database."""

    worker_id: str
    change: str
    detail: str = ""


Event = JobEnqueued | JobStarted | JobSettled | LeaseWasLost | AuditSealed | WorkerChanged
Subscriber = Callable[[Event], None]


@dataclass(slots=True)
class Events:
    """The subscribers of one Holdfast instance. A failing one never harms the work."""

    subscribers: list[Subscriber] = field(default_factory=list)

    def subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except Exception:
                _log.exception("an event subscriber failed")
