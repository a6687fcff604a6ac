"""What happened, told after commit to whoever subscribed: logs, metrics, traces, alerts.

The audit is not here: it is written inside the transaction (engine/audit.py). An event may be lost
with its process; an audit row may not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

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
class DeadLetterEscalated:
    """A replay failed as the job before it did: repeating does not help, an engineer has to look.

    *about* is the replay, *letter_id* the job whose dead letter it is.
    """

    about: About
    letter_id: str
    queue: str
    stage: str
    error_class: str
    replays: int


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
class AuditTampered:
    """Somebody who checked a tenant's audit found that it is not what was sealed.

    It is told once for a tenant and a check, with the first place that was found.
    """

    org_id: str
    finding: str
    seal: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class NotificationDropped:
    """A notification could not be enqueued, and the write it belongs to went on without it."""

    job_type: str
    org_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueCrowded:
    """More waits in a queue than should in one that is to stay small."""

    queue: str
    small_depth: int


@dataclass(frozen=True, slots=True)
class WorkerRunFinished:
    """A bounded run ended, was skipped, or was given up for lost: then its counts are not known."""

    run_id: str
    name: str
    profile: str
    trigger_kind: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    reason: str | None
    max_jobs_per_run: int
    claimed_count: int | None
    succeeded_count: int | None
    failed_count: int | None
    requeued_count: int | None
    released_count: int | None
    canceled_count: int | None
    left_count: int | None
    rate_limit_errors: int | None
    capacity_errors: int | None
    error_counts: Mapping[str, int]
    model_counts: Mapping[str, int]
    submitted_count: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleFired:
    """A tick became a job or a run."""

    schedule: str
    fire_at: datetime
    target: str
    job_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleSkipped:
    """A tick, or several in a row, became nothing: ``skipped``, ``missed`` or, yet, ``held``."""

    schedule: str
    fire_at: datetime
    outcome: str
    reason: str
    ticks: int = 1
    run_name: str | None = None

    @property
    def line(self) -> str:
        """The same words whenever the same happens."""
        return f"{self.run_name or self.schedule} {self.outcome}: {self.reason}"


class BatchChange(StrEnum):
    """What became of a provider batch."""

    SUBMITTED = "submitted"
    ADOPTED = "adopted"
    FENCED = "fenced"
    RELEASED = "released"
    ENDED = "ended"
    COLLECTED = "collected"
    QUARANTINED = "quarantined"


class BatchTrouble(StrEnum):
    """Problems of batch processing."""

    # Answers that belong to no item of ours, that nobody can read, or that contradict another.
    UNKNOWN_ITEM = "unknown_item"
    MALFORMED_LINE = "malformed_line"
    MISSING_RESULT = "missing_result"
    CONFLICTING_RESULT = "conflicting_result"
    CROSS_WIRED = "cross_wired"
    # A word for a batch's state that we do not know.
    UNKNOWN_STATUS = "unknown_status"
    # A second batch with our name, which was canceled.
    ZOMBIE_BATCH = "zombie_batch"
    # A call or a create of which nobody knows whether it was paid for.
    UNKNOWN_CALL = "unknown_call"
    # Several creates in a row had no usable answer; none of them made a batch.
    CREATE_UNANSWERED = "create_unanswered"
    # Paid answers on which the application's code fails; they are kept until it is mended.
    ANSWERS_HELD = "answers_held"
    QUARANTINED = "quarantined"
    DEADLINE_PASSED = "deadline_passed"
    # Its answers cannot be brought back just now: its account is gone, or something breaks on it.
    UNCOLLECTED = "uncollected"
    # Jobs wait for an account that is not configured here, or whose credential is not here.
    ACCOUNT_UNUSABLE = "account_unusable"
    CIRCUIT_OPENED = "circuit_opened"
    UNPRICED = "unpriced"
    BUDGET_HELD = "budget_held"
    BUDGET_UNPRICED = "budget_unpriced"


@dataclass(frozen=True, slots=True)
class BatchChanged:
    """A provider batch went a step further. *batch_id* is ours, *change* a BatchChange."""

    batch_id: str
    provider: str
    model: str
    change: BatchChange
    items: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BatchAlert:
    """A problem of batch processing that needs an operator.

    *account* is the key of the account, *what* a BatchTrouble, *detail* a code or a state in safe
    words: never what a provider or a job said. *batch_id* is None where it is about an account.
    """

    batch_id: str | None
    account: str
    what: BatchTrouble
    detail: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """Model requests were answered, or are known to have cost something.

    *mode* and *kind* are words of the ledger of calls. Cached tokens are inside *input_tokens*.
    """

    provider: str
    mode: str
    kind: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_pico: int


class DeliveryChange(StrEnum):
    """What became of a delivery."""

    INTENDED = "intended"
    # The channel has it, and it is marked.
    SENT = "sent"
    # It was found at the channel that an earlier send had been taken, and marked.
    BACKFILLED = "backfilled"
    # It waits for another try, or for the channel to be asked.
    DEFERRED = "deferred"
    HELD = "held"
    DROPPED = "dropped"
    FAILED = "failed"
    # It was marked and the channel knows nothing of it: the marks are cleared.
    REQUEUED = "requeued"
    # A person said that it arrived, or that it goes out again.
    CONFIRMED = "confirmed"
    RESENT = "resent"


class DeliveryTrouble(StrEnum):
    """What is wrong with a delivery."""

    # Nobody can say whether it went out, and the channel cannot be asked: a person decides.
    HELD = "held"
    # More than one message of the channel fits.
    SEVERAL_MATCHES = "several_matches"
    # Marked, and the channel knows nothing of it: the order send, then mark was broken.
    MARKED_UNSENT = "marked_unsent"
    # The policy of the channel sent it again, though it may have gone out.
    MAYBE_TWICE = "maybe_twice"
    # The policy of the channel gave it up, though it may not have gone out.
    MAYBE_LOST = "maybe_lost"
    FAILED = "failed"
    # The same delivery was intended again with another content or address; the first stands.
    DIFFERS = "differs"
    LOOKUP_DOWN = "lookup_down"
    # The channel is not configured here, or its credential or its extra is not here.
    CHANNEL_UNUSABLE = "channel_unusable"
    # The channel refuses us: a credential, a permission or an address. Its messages wait.
    CHANNEL_REFUSED = "channel_refused"


@dataclass(frozen=True, slots=True)
class DeliveryChanged:
    """A delivery went a step further. It never holds an address or a word of a message.

    *reason* is why it was sent, held, dropped or failed, in a word of ours.
    """

    delivery_id: str
    org_id: str
    channel: str
    change: DeliveryChange
    reason: str | None = None
    attempt: int | None = None
    # The job that sends it, or else the one that intended it; and who asked for it.
    job_id: str | None = None
    project_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryAlert:
    """A delivery, or a channel, that somebody has to look at.

    *detail* is a code or a reason in words of ours: never an address, nor what a provider said.
    *delivery_id* is None where it is about the channel.
    """

    channel: str
    what: DeliveryTrouble
    delivery_id: str | None = None
    org_id: str | None = None
    detail: str = ""
    count: int = 1
    job_id: str | None = None
    project_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerChanged:
    """A worker started, drains, stopped or lost its database."""

    worker_id: str
    change: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExtensionEvent:
    """An event of an extension: subclass it as a frozen dataclass.

    It is logged under :attr:`log_name` with all its fields, so it holds nothing that must not be
    in a log.
    """

    @property
    def log_name(self) -> str:
        """The name of its log line, such as ``review.finished``."""
        raise NotImplementedError

    @property
    def log_level(self) -> int:
        return logging.INFO


Event = (
    JobEnqueued
    | JobStarted
    | JobSettled
    | DeadLetterEscalated
    | LeaseWasLost
    | AuditSealed
    | AuditTampered
    | NotificationDropped
    | QueueCrowded
    | BatchChanged
    | BatchAlert
    | ModelUsed
    | DeliveryChanged
    | DeliveryAlert
    | ScheduleFired
    | ScheduleSkipped
    | WorkerChanged
    | WorkerRunFinished
    | ExtensionEvent
)
Subscriber = Callable[[Event], None]


@dataclass(slots=True)
class Events:
    """The subscribers of one Holdfast instance. A failing one never harms the work."""

    subscribers: list[Subscriber] = field(default_factory=list)
    _going_on: dict[str, frozenset[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except Exception:
                _log.exception("an event subscriber failed")

    def emit_begun(self, kind: str, events: Mapping[str, Event]) -> None:
        """Tell of what goes on, once: when it begins, and again only after it was over."""
        with self._lock:
            begun = events.keys() - self._going_on.get(kind, frozenset())
            self._going_on[kind] = frozenset(events)
        for name in sorted(begun):
            self.emit(events[name])
