"""Events, emitted after commit to subscribers: logs, metrics, traces and alerts.

Audit rows are written inside the transaction instead (engine/audit.py). An event may be lost when
its process dies; an audit row cannot.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from holdfast.about import About as About

if TYPE_CHECKING:
    from holdfast.engine.job import Claimed

T = TypeVar("T")

_log = logging.getLogger("holdfast.event")


# The events of a job are not frozen: every job has three, and frozen ones took 3 us of it.
@dataclass(slots=True)
class JobEnqueued:
    about: About
    queue: str


@dataclass(slots=True)
class JobStarted:
    about: About
    queue: str
    attempt: int
    worker_id: str


@dataclass(slots=True)
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
    # The line of code that changes how the exception is classified.
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterEscalated:
    """A replay failed in the same way as its original job, so an engineer has to investigate.

    *about* is the replay. *letter_id* is the id of the job that the dead letter belongs to.
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
    """A check found that a tenant's audit differs from its seal.

    It is emitted once per tenant and check, with the first difference found.
    """

    org_id: str
    finding: str
    seal: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class NotificationDropped:
    """A notification could not be enqueued. The write that it belongs to continued without it."""

    job_type: str
    org_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueCrowded:
    """A queue that should stay short has too many waiting jobs."""

    queue: str
    small_depth: int


@dataclass(frozen=True, slots=True)
class WorkerRunFinished:
    """A bounded run finished, was skipped, or was lost. The counts of a lost run are unknown."""

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
    """A tick of a schedule enqueued a job or started a run."""

    schedule: str
    fire_at: datetime
    target: str
    job_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleSkipped:
    """One or more consecutive ticks did nothing: ``skipped``, ``missed`` or, for now, ``held``."""

    schedule: str
    fire_at: datetime
    outcome: str
    reason: str
    ticks: int = 1
    run_name: str | None = None

    @property
    def line(self) -> str:
        """The text of the event, identical when the same thing happens again."""
        return f"{self.run_name or self.schedule} {self.outcome}: {self.reason}"


class BatchChange(StrEnum):
    """Changes of a provider batch."""

    SUBMITTED = "submitted"
    ADOPTED = "adopted"
    FENCED = "fenced"
    RELEASED = "released"
    ENDED = "ended"
    COLLECTED = "collected"
    QUARANTINED = "quarantined"


class BatchTrouble(StrEnum):
    """Problems of batch processing."""

    # Replies that match no item, cannot be parsed, or contradict another reply.
    UNKNOWN_ITEM = "unknown_item"
    MALFORMED_LINE = "malformed_line"
    MISSING_RESULT = "missing_result"
    CONFLICTING_RESULT = "conflicting_result"
    CROSS_WIRED = "cross_wired"
    # The provider reported an unknown batch status.
    UNKNOWN_STATUS = "unknown_status"
    # A second batch with the same tag, which was canceled.
    ZOMBIE_BATCH = "zombie_batch"
    # A call or a batch creation that may or may not have been charged.
    UNKNOWN_CALL = "unknown_call"
    # Several consecutive creations got no usable reply; none of them created a batch.
    CREATE_UNANSWERED = "create_unanswered"
    # Paid replies that the application's code fails to process; they are kept until it is fixed.
    ANSWERS_HELD = "answers_held"
    QUARANTINED = "quarantined"
    DEADLINE_PASSED = "deadline_passed"
    # Replies cannot be collected now: the account is missing, or collecting them fails.
    UNCOLLECTED = "uncollected"
    # Jobs wait for an account that is not configured here, or whose credential is missing here.
    ACCOUNT_UNUSABLE = "account_unusable"
    CIRCUIT_OPENED = "circuit_opened"
    UNPRICED = "unpriced"
    BUDGET_HELD = "budget_held"
    BUDGET_UNPRICED = "budget_unpriced"


@dataclass(frozen=True, slots=True)
class BatchChanged:
    """A provider batch changed. *batch_id* is the local id, *change* a BatchChange."""

    batch_id: str
    provider: str
    model: str
    change: BatchChange
    items: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BatchAlert:
    """A problem of batch processing that needs an operator.

    *account* is the key of the account, *what* a BatchTrouble, *detail* a code or a state: never
    text from a provider or a job. *batch_id* is None if the alert is about an account.
    """

    batch_id: str | None
    account: str
    what: BatchTrouble
    detail: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """Model requests were answered, or are known to have incurred a cost.

    *mode* and *kind* are values of the ledger of calls. *input_tokens* includes cached tokens.
    """

    provider: str
    mode: str
    kind: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_pico: int


class DeliveryChange(StrEnum):
    """Changes of a delivery."""

    INTENDED = "intended"
    # The channel accepted it, and it is marked as sent.
    SENT = "sent"
    # A lookup found that the channel had accepted an earlier send, and it was marked.
    BACKFILLED = "backfilled"
    # It waits for another attempt or for a lookup at the channel.
    DEFERRED = "deferred"
    HELD = "held"
    DROPPED = "dropped"
    FAILED = "failed"
    # It was marked, but the channel does not know it: the marks were cleared.
    REQUEUED = "requeued"
    # An operator confirmed that it arrived, or that it is to be sent again.
    CONFIRMED = "confirmed"
    RESENT = "resent"


class DeliveryTrouble(StrEnum):
    """Problems of a delivery."""

    # It is unknown whether it was sent, and the channel has no lookup: an operator decides.
    HELD = "held"
    # More than one message at the channel matches.
    SEVERAL_MATCHES = "several_matches"
    # Marked, but unknown to the channel: it was marked before it was sent.
    MARKED_UNSENT = "marked_unsent"
    # The channel's policy resent it, although it may have been sent already.
    MAYBE_TWICE = "maybe_twice"
    # The channel's policy dropped it, although it may not have been sent.
    MAYBE_LOST = "maybe_lost"
    FAILED = "failed"
    # The same delivery was intended again with other content or another address; the first is kept.
    DIFFERS = "differs"
    LOOKUP_DOWN = "lookup_down"
    # The channel is not configured here, or its credential or its extra is missing here.
    CHANNEL_UNUSABLE = "channel_unusable"
    # The channel rejects a credential, a permission or an address. Its messages wait.
    CHANNEL_REFUSED = "channel_refused"


@dataclass(frozen=True, slots=True)
class DeliveryChanged:
    """A delivery changed. The event never contains an address or text of the message.

    *reason* is the code of why it was sent, held, dropped or failed.
    """

    delivery_id: str
    org_id: str
    channel: str
    change: DeliveryChange
    reason: str | None = None
    attempt: int | None = None
    # The job that sends it, or else the job that intended it; and the actor who requested it.
    job_id: str | None = None
    project_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryAlert:
    """A delivery or a channel that needs an operator.

    *detail* is a code or a reason: never an address or text from a provider. *delivery_id* is None
    if the alert is about the channel.
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
    """A worker started, is draining, stopped, or lost its database."""

    worker_id: str
    change: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExtensionEvent:
    """An event of an extension: subclass it as a frozen dataclass.

    It is logged under :attr:`log_name` with all its fields, so it must not contain anything that
    must not be logged.
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


@dataclass(frozen=True, slots=True)
class JobEvents:
    """The events of a group of jobs.

    Those of started and of completed jobs are made when a subscriber asks for them one by one: they
    took 2 us of a job.
    """

    others: Sequence[Event] = ()
    started: Sequence[Claimed] = ()
    worker_id: str = ""
    completed: Sequence[Claimed] = ()
    # How long the stages of the completed jobs ran.
    seconds: Sequence[float | None] = ()

    @property
    def kinds(self) -> set[type]:
        found: set[type] = {type(event) for event in self.others}
        if self.started:
            found.add(JobStarted)
        if self.completed:
            found.add(JobSettled)
        return found

    def __iter__(self) -> Iterator[Event]:
        for job in self.started:
            yield JobStarted(job.about, job.queue, job.attempt, self.worker_id)
        for job, seconds in zip(self.completed, self.seconds, strict=True):
            yield JobSettled(
                job.about, job.queue, job.attempt, "completed", job.stage, seconds=seconds
            )
        yield from self.others


@dataclass(frozen=True, slots=True)
class Grouped:
    """A subscriber that takes the events of a group of jobs in one call."""

    take: Callable[[JobEvents], None]

    def __call__(self, event: Event) -> None:
        self.take(JobEvents(others=(event,)))


@dataclass(frozen=True, slots=True)
class Only:
    """A subscriber that takes only events of some kinds: others do not cost a call."""

    kinds: tuple[type, ...]
    take: Subscriber

    def __call__(self, event: Event) -> None:
        if isinstance(event, self.kinds):
            self.take(event)


@dataclass(slots=True)
class Events:
    """The subscribers of one Holdfast instance. A failing subscriber does not affect the job."""

    subscribers: list[Subscriber] = field(default_factory=list)
    _going_on: dict[str, frozenset[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self.subscribers:
            _call(subscriber, event)

    def emit_all(self, events: JobEvents) -> None:
        """Emit the events of a group of jobs, all of them to one subscriber after the other."""
        kinds, made = events.kinds, list[Event]()
        for subscriber in self.subscribers:
            if isinstance(subscriber, Grouped):
                _call(subscriber.take, events)
            elif not isinstance(subscriber, Only) or any(
                issubclass(kind, subscriber.kinds) for kind in kinds
            ):
                made = made or list(events)
                for event in made:
                    _call(subscriber, event)

    def emit_begun(self, kind: str, events: Mapping[str, Event]) -> None:
        """Emit ongoing conditions once each: when one begins, and again only after it has ended."""
        with self._lock:
            begun = events.keys() - self._going_on.get(kind, frozenset())
            self._going_on[kind] = frozenset(events)
        for name in sorted(begun):
            self.emit(events[name])


def _call(subscriber: Callable[[T], None], events: T) -> None:
    try:
        subscriber(events)
    except Exception:
        _log.exception("an event subscriber failed")
