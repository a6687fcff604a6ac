"""A delivery: one subject in one version to one recipient, sent once in effect. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.actor import SYSTEM, Actor
from holdfast.clock import read_instant
from holdfast.document import canonical
from holdfast.engine.audit import Deed
from holdfast.event import DeliveryAlert, DeliveryChange, DeliveryChanged, DeliveryTrouble


class State(StrEnum):
    """The state of a delivery."""

    # Not sent yet; its attempts say whether anything was tried.
    PENDING = "pending"
    # Accepted by the channel. The state, the id and the time are written together.
    SENT = "sent"
    # The outcome is unknown and cannot be looked up: an operator decides.
    HELD = "held"
    # Dropped by the channel's policy or by an operator.
    DROPPED = "dropped"
    # The delivery has certainly failed.
    FAILED = "failed"


class Reason(StrEnum):
    """The reason for a send. Every send has a recorded reason."""

    FIRST = "first"
    PROVEN_NOT_TAKEN = "proven_not_taken"
    IDEMPOTENT_WINDOW = "idempotent_window"
    LOOKED_UP_NOT_FOUND = "looked_up_not_found"
    RECEIVER_DEDUPES = "receiver_dedupes"
    POLICY_RESEND = "policy_resend"
    OPERATOR_RESEND = "operator_resend"


@dataclass(frozen=True, slots=True)
class Identity:
    """The unique key of a delivery: this subject in this version to this recipient."""

    org_id: str
    subject: str
    recipient: str
    version: int

    def token(self, key: str) -> str:
        """The idempotency key of this delivery at every channel, derived from the identity only."""
        parts = "\n".join((self.org_id, self.subject, self.recipient, str(self.version)))
        return "hf_" + hmac.new(key.encode(), parts.encode(), hashlib.sha256).hexdigest()[:40]


def endpoint_of(channel: str, address: str, key: str) -> str:
    """A keyed hash of an address at a channel. It does not reveal the address."""
    return hmac.new(key.encode(), f"{channel}\n{address}".encode(), hashlib.sha256).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message. It is stored once and is the same on every attempt."""

    subject: str = field(repr=False)
    """The subject line."""
    text: str = field(repr=False)
    """The plain text."""
    html: str | None = field(default=None, repr=False)
    """The HTML text, if any."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Data for programs that receive the message."""

    @property
    def hash(self) -> str:
        """A hash that is equal for equal contents."""
        parts = {"subject": self.subject, "text": self.text, "html": self.html, "data": self.data}
        return hashlib.sha256(canonical(parts).encode()).hexdigest()


class Phase(StrEnum):
    """How far an attempt got at a channel that takes nothing before its commit point."""

    BEFORE_COMMIT = "before_commit"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: stored before the call, completed after it, never changed again."""

    number: int
    reason: Reason
    began_at: datetime
    # accepted, rejected, refused (permanently), channel_refused (our credential, not the message),
    # throttled or unsure; None if no outcome was recorded.
    outcome: str | None = None
    code: str | None = None
    provider_id: str | None = None
    body_hash: str = ""
    # For channels with a commit point: whether it was passed. None for other channels.
    phase: Phase | None = None

    @property
    def is_unclear(self) -> bool:
        """Whether the channel may have accepted it, with no answer to prove it."""
        if self.outcome is None:
            return self.phase is not Phase.BEFORE_COMMIT
        return self.outcome == "unsure"

    @property
    def was_made(self) -> bool:
        """Whether the channel was called. False if its circuit opened just before the call."""
        return not (self.outcome == "channel_refused" and self.code == "circuit_open")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A statement about a delivery, in the order in which it was recorded.

    *after_attempt* is the number of attempts made by then. Evidence about the second attempt does
    not apply to the third.
    """

    source: str
    verdict: str
    after_attempt: int
    at: datetime
    provider_id: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery without its content and its address."""

    id: str
    org_id: str
    subject: str
    recipient: str = field(repr=False)
    version: int
    channel: str
    token: str
    content_hash: str
    is_required: bool
    state: State
    reason: str | None
    job_id: str | None
    notification_id: str | None
    notified_at: datetime | None
    confirmed_by: str | None
    attempts: int
    fence: int
    first_sent_at: datetime | None
    reconciled_at: datetime | None
    not_before_at: datetime | None
    request_id: str
    correlation_id: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    # The job that was enqueued to send it. If None, the job that intended it sends it.
    deliver_job_id: str | None = None
    # A keyed hash of its address.
    endpoint: str = field(default="", repr=False)
    project_id: str | None = None
    actor_type: str = SYSTEM.type
    actor_id: str = SYSTEM.id

    @property
    def actor(self) -> str:
        """The actor who requested it, such as ``user:42``."""
        return f"{self.actor_type}:{self.actor_id}"

    @property
    def about(self) -> dict[str, Any]:
        """Fields of its events and alerts: job, project, request and actor."""
        return {
            "job_id": self.deliver_job_id or self.job_id,
            "project_id": self.project_id,
            "request_id": self.request_id,
            "correlation_id": self.correlation_id,
            "actor": self.actor,
        }

    def changed(
        self, change: DeliveryChange, reason: str | None = None, attempt: int | None = None
    ) -> DeliveryChanged:
        """The event for a change of this delivery."""
        number = self.attempts if attempt is None else attempt
        where = (self.id, self.org_id, self.channel)
        return DeliveryChanged(*where, change, reason, number, **self.about)

    def alert(self, what: DeliveryTrouble, detail: str = "") -> DeliveryAlert:
        """The alert for a problem of this delivery."""
        return DeliveryAlert(self.channel, what, self.id, self.org_id, detail, **self.about)

    def deed(self, actor: Actor, name: str, detail: Mapping[str, Any]) -> Deed:
        """The audit entry for a change of this delivery."""
        about = {"actor": self.actor, "job_id": self.deliver_job_id or self.job_id}
        if self.deliver_job_id is not None and self.job_id is not None:
            about["intended_by"] = self.job_id
        return Deed(
            actor,
            self.org_id,
            f"delivery:{self.id}",
            f"delivery.{name}",
            {**about, **detail},
            self.request_id,
            self.correlation_id,
            self.project_id,
        )

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Delivery:
        values = {name: row[name] for name in cls.__slots__}
        for name in _INSTANTS:
            values[name] = None if values[name] is None else read_instant(values[name])
        for name in ("id", "org_id", "job_id", "deliver_job_id", "project_id"):
            values[name] = None if values[name] is None else str(values[name])
        values["state"] = State(values["state"])
        values["is_required"] = bool(values["is_required"])
        return cls(**values)


_INSTANTS = (
    "notified_at",
    "first_sent_at",
    "reconciled_at",
    "not_before_at",
    "created_at",
    "updated_at",
    "ended_at",
)
