"""The facts about a job, and the explanation made from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.clock import read_instant
from holdfast.config import Settings
from holdfast.document import decode
from holdfast.engine.job import State
from holdfast.engine.worker.heartbeat import WorkerRow
from holdfast.operate.dead_letter import DeadLetter
from holdfast.store import Row


class Reason(StrEnum):
    """The reason for a job's state."""

    NOT_DUE = "not_due"
    AWAITS_EVENT = "awaits_event"
    QUEUE_PAUSED = "queue_paused"
    NO_WORKER = "no_worker"
    AWAITS_RUN = "awaits_run"
    UNKNOWN_TYPE = "unknown_job_type"
    TENANT_CAP = "tenant_cap"
    QUEUE_CAP = "queue_cap"
    KEY_CAP = "key_cap"
    RATE_LIMIT = "rate_limit"
    IN_LINE = "in_line"
    READY = "ready"
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    LEASE_RAN_OUT = "lease_ran_out"
    CIRCUIT_OPEN = "circuit_open"
    NO_ACCOUNT = "no_account"
    OVER_BUDGET = "over_budget"
    EXCEEDS_BUDGET = "exceeds_budget"
    UNPRICED = "unpriced"
    AWAITS_BATCH = "awaits_batch"
    HELD = "held"
    AWAITS_CHANNEL = "awaits_channel"
    CHANNEL_REFUSED = "channel_refused"
    DELIVERY_HELD = "delivery_held"
    QUARANTINED = "quarantined"
    COMPLETED = "completed"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"
    DEADLINE_PASSED = "deadline_passed"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason for a job's state in one *line*, and what has to happen *next*.

    *until* is when that happens without action, if known; *facts* are the values in the line.
    """

    job_id: str
    state: State
    reason: Reason
    line: str
    next: str
    until: datetime | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """All facts about a job at one moment."""

    job: Row
    settings: Settings
    turns: Sequence[Row] = ()
    limits: Row = field(default_factory=dict)
    running: Row = field(default_factory=dict)
    ahead: int = 0
    workers: Sequence[WorkerRow] = ()
    # The runs that serve the queue, and when each is due.
    runs: Mapping[str, datetime | None] = field(default_factory=dict)
    # Its unsent deliveries, counted by channel and state.
    deliveries: Sequence[Row] = ()
    letter: DeadLetter | None = None
    # The replay of the dead letter that is in progress.
    replay_job_id: str | None = None

    @property
    def now(self) -> datetime:
        return read_instant(self.job["now"])

    @property
    def state(self) -> State:
        return State.read(self.job["state"])

    @property
    def queue(self) -> str:
        """The queue where it waits or will wait: a parked job returns to its original queue."""
        deferred = self.state is State.QUEUED and self.job["not_before_at"] is not None
        return str(self.job["origin_queue" if deferred else "queue"])

    def at(self, name: str) -> datetime | None:
        value = self.job[name]
        return None if value is None else read_instant(value)

    def last(self, *names: str) -> tuple[Row | None, Mapping[str, Any]]:
        """Return the newest event with one of these names, and its detail."""
        for event in self.turns:
            if event["name"] in names:
                return event, decode(event["detail"]) if event["detail"] else {}
        return None, {}

    def explain(
        self, reason: Reason, line: str, then: str, until: datetime | None = None, **facts: Any
    ) -> Explanation:
        return Explanation(self.job["id"], self.state, reason, line, then, until, facts)


@dataclass(frozen=True, slots=True)
class ExtensionReasons:
    """The reasons of an extension, for two places in the order of reasons.

    *before* precedes the checks of the job's time, queue and workers. *instead* replaces the search
    for a worker, and applies to a claimed or submitted job.
    """

    before: Explanation | None = None
    instead: Explanation | None = None


NO_REASONS = ExtensionReasons()


def utc(instant: datetime | None) -> str:
    """Return *instant* as text in UTC."""
    return "an unknown time" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%S UTC")
