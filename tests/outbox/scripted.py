"""A channel in memory that follows a script, and a ledger of the messages that it really accepted.

``script(…)`` adds faults: each send uses up one of them, and without faults the channel works
normally. Its time is the test's clock.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast import Holdfast
from holdfast.channel.channel import (
    Accepted,
    Ambiguous,
    Capabilities,
    ChannelRefused,
    Found,
    Lookup,
    LookupFailed,
    LookupKey,
    LookupResult,
    NotFound,
    OnUnknown,
    Rejected,
    Sent,
    Throttled,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.clock import Clock
from holdfast.outbox.delivery import Content, Delivery
from holdfast.outbox.intend import Intended, OutgoingMessage
from holdfast.store import Row
from tests.story import ORG, look

# The outcomes: whether the message is accepted, and the answer.
OUTCOMES: dict[str, tuple[bool, Sent]] = {
    "lost_answer": (True, Unsure("timeout")),
    "lost_message": (False, Unsure("timeout")),
    "rejected": (False, Rejected("try_later", is_permanent=False)),
    "refused": (False, Rejected("no_such_address", is_permanent=True)),
    "throttled": (False, Throttled("rate_limited", retry_after=120)),
    "unauthorized": (False, ChannelRefused("status_401")),
    "unauthorized_here": (False, ChannelRefused("status_401", is_endpoint=True)),
    "unreachable": (False, Rejected("unreachable", is_permanent=False)),
}

ASKABLE = Capabilities(lookup=Lookup.BY_OUR_TOKEN, settle_seconds=30, retention_seconds=86_400)
WINDOW = Capabilities(idempotency_seconds=3_600, lookup=Lookup.NONE)
DUMB = Capabilities()


@dataclass
class ScriptedChannel:
    """A channel in memory."""

    clock: Clock
    capabilities: Capabilities = ASKABLE
    name: str = "post"
    # Stands for the credential: another one is another channel.
    fingerprint: str = "key-1"
    # The answer to every send without a script.
    otherwise: str = "accepted"
    taken: list[tuple[datetime, Message]] = field(default_factory=list)
    sends: list[Message] = field(default_factory=list)
    lookups: list[LookupKey] = field(default_factory=list)
    is_lookup_down: bool = False
    # Called inside a send, before it is answered.
    during_send: Callable[[Message], object] | None = None
    _script: deque[str] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def script(self, *words: str) -> None:
        self._script.extend(words)

    @property
    def accepted(self) -> Counter[str]:
        """How often each token was accepted."""
        return Counter(message.token for _, message in self.taken)

    def send(self, message: Message) -> Sent:
        with self._lock:
            self.sends.append(message)
            word = self._script.popleft() if self._script else self.otherwise
        if self.during_send is not None:
            self.during_send(message)
        is_taken, sent = OUTCOMES.get(word, (True, None))
        if is_taken and not self._is_repeat(message):
            self.taken.append((self.clock.now(), message))
        if word == "crash":
            raise RuntimeError("words of a message")
        return sent or Accepted(self._name_of(message.token))

    def lookup(self, key: LookupKey) -> LookupResult:
        self.lookups.append(key)
        if self.is_lookup_down:
            return LookupFailed("timeout")
        found = [message for _, message in self.taken if message.token == key.token]
        if self.capabilities.lookup is Lookup.FUZZY:
            found = [message for _, message in self.taken if message.address == key.address]
        if len(found) > 1:
            return Ambiguous(len(found))
        return Found(self._name_of(found[0].token)) if found else NotFound()

    def _is_repeat(self, message: Message) -> bool:
        seconds = self.capabilities.idempotency_seconds
        if seconds is None:
            return self.capabilities.receiver_dedupes and message.token in self.accepted
        since = self.clock.now() - timedelta(seconds=seconds)
        return any(at > since and one.token == message.token for at, one in self.taken)

    @staticmethod
    def _name_of(token: str) -> str:
        return f"id-{token[-6:]}"


def letter(
    recipient: str = "ann",
    *,
    version: int = 1,
    subject: str = "review:cl-1",
    text: str = "Hello.",
    not_before_at: datetime | None = None,
) -> OutgoingMessage:
    content = Content(subject="A review", text=text, data={"findings": 2, "share": 1e22})
    about = (subject, recipient, version, "post", f"{recipient}@example.com", content)
    return OutgoingMessage(*about, not_before_at=not_before_at)


def outbox_with(
    hf: Holdfast,
    capabilities: Capabilities = ASKABLE,
    *,
    on_unknown: OnUnknown = OnUnknown.HOLD,
) -> ScriptedChannel:
    """Let *hf* send through a scripted channel."""
    channel = ScriptedChannel(hf.clock, capabilities)
    hf.outbox.use(channel, on_unknown=on_unknown)
    return channel


def intend_one(hf: Holdfast, intent: OutgoingMessage | None = None) -> Intended:
    return hf.outbox.intend([intent or letter()], org_id=ORG)[0]


def deliver(hf: Holdfast, one: Intended) -> Delivery:
    """Deliver once and return the state."""
    hf.outbox.deliver([one.id], org_id=ORG, worker_id="w1")
    return state_of(hf, one)


def state_of(hf: Holdfast, one: Intended) -> Delivery:
    return hf.outbox.find([one.id], org_id=one.org_id)[0]


def attempts_of(hf: Holdfast, one: Intended) -> list[Row]:
    return look(
        hf.store,
        "SELECT number, reason, outcome, code, provider_id, body_hash"
        " FROM holdfast.delivery_attempt WHERE delivery_id = :id ORDER BY number",
        id=one.id,
    )


def evidence_of(hf: Holdfast, one: Intended) -> list[tuple[str, str]]:
    rows = look(
        hf.store,
        "SELECT source, verdict FROM holdfast.delivery_evidence WHERE delivery_id = :id"
        " ORDER BY id",
        id=one.id,
    )
    return [(row["source"], row["verdict"]) for row in rows]
