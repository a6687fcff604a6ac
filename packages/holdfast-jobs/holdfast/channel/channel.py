"""Channel: the interface of message adapters, and their capabilities.

A send without an answer may have succeeded. The declared capabilities decide whether the message
may be sent again (outbox/decide.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from holdfast.channel.message import Message


class Lookup(StrEnum):
    """How a channel finds a message that it may have accepted."""

    NONE = "none"
    BY_OUR_TOKEN = "by_our_token"  # noqa: S105
    BY_PROVIDER_ID = "by_provider_id"
    # By recipient and time: one match identifies the message, several are ambiguous.
    FUZZY = "fuzzy"


class OnUnknown(StrEnum):
    """The policy for a message with unknown outcome."""

    HOLD = "hold"
    RESEND = "resend"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """How a channel deduplicates repeated messages, and how messages are looked up."""

    idempotency_seconds: float | None = None
    """How long the channel accepts a token only once; None if it does not."""
    wants_same_body: bool = False
    """True if the same token with another body is an error."""
    lookup: Lookup = Lookup.NONE
    """How a message is looked up."""
    settle_seconds: float = 0.0
    """Before this age of an attempt, "not found" is not conclusive."""
    retention_seconds: float | None = None
    """After this age, "not found" is not conclusive; None for unlimited."""
    receiver_dedupes: bool = False
    """True if the receiver recognizes repeated tokens, as with webhooks."""
    is_per_endpoint: bool = False
    """True if each address is a server of its own with its own circuit."""
    longest_token: int = 256
    """Maximum length of a token."""
    longest_text: int | None = None
    """Maximum length of subject and text; None if unknown."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The channel accepted the message. *provider_id* is its id at the channel."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The channel has provably not accepted the message. A permanent rejection is not retried.

    The code ``unreachable`` means that no connection could be opened.
    """

    code: str
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class ChannelRefused:
    """The channel rejects every message: wrong credential, no permission or no endpoint.

    The message was not accepted. The circuit of the channel opens, and no message is sent until a
    probe succeeds. With *is_endpoint* only the address of this message is concerned, such as a
    receiver that rejects the signature.
    """

    code: str
    is_endpoint: bool = False


@dataclass(frozen=True, slots=True)
class Throttled:
    """The channel is at its limit, and has provably not accepted the message."""

    code: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Unsure:
    """No reliable answer: the message may have been accepted. *reason* is a code."""

    reason: str
    # The provider's id, if it arrived before the answer broke off.
    provider_id: str | None = None


Sent = Accepted | Rejected | ChannelRefused | Throttled | Unsure


@dataclass(frozen=True, slots=True)
class Found:
    """The channel has the message. *is_delivered* is False if it gave up on it later."""

    provider_id: str
    at: datetime | None = None
    is_delivered: bool = True


@dataclass(frozen=True, slots=True)
class NotFound:
    """The channel does not have the message."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """More than one message matches; an operator has to decide."""

    count: int


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """The lookup failed. *reason* is a code of Holdfast.

    *is_refused*: the credential is not allowed to look up messages, so an early retry is useless.
    """

    reason: str
    is_refused: bool = False


LookupResult = Found | NotFound | Ambiguous | LookupFailed


@dataclass(frozen=True, slots=True)
class LookupKey:
    """Identifies a message that the channel may have accepted."""

    token: str
    address: str
    body_hash: str
    since: datetime
    provider_id: str | None = None


class Channel(Protocol):
    """Sends messages. It never retries, and its errors never quote a message."""

    name: str
    capabilities: Capabilities

    def send(self, message: Message) -> Sent:
        """Send a message once."""

    def lookup(self, key: LookupKey) -> LookupResult:
        """Look up a message that may have been accepted, if the capabilities support lookups."""


@runtime_checkable
class CommitPointChannel(Protocol):
    """A channel that accepts nothing before a commit point, such as the final dot of SMTP.

    If the process crashes before that point, the message can safely be sent again.
    """

    def send_committing(self, message: Message, may_commit: Callable[[], bool]) -> Sent:
        """Send a message once.

        *may_commit* is called right before the commit point. It records durably that the point is
        passed. If it returns False, the channel aborts and returns Rejected.
        """
