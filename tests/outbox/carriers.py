"""Every channel of the outbox tests: what its provider supports, and its address.

Most providers are the simulator, over HTTP and SMTP. A mailbox and the feed have no provider but a
folder and our own database; their faults are injected between the outbox and them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.channel.channel import (
    Channel,
    LookupFailed,
    LookupKey,
    LookupResult,
    OnUnknown,
    Rejected,
    Sent,
)
from holdfast.channel.message import Message
from holdfast.config import ChannelSettings
from holdfast.outbox.delivery import Content
from holdfast.outbox.intend import OutgoingMessage
from holdfast.outbox.outbox import Channels

KEY = "HOLDFAST_TEST_CHANNEL_KEY"
CANARY = "canary-7f3a"
SETTLE = 120.0
# On a busy machine an answer takes its time. Only tests of an answer that never arrives use a short
# wait.
PATIENCE = 30.0
IMPATIENCE = 1.0

# Channels with a lookup by our token.
ASKED = ("postmark", "slack", "gateway")
LOCAL = ("mailbox", "in_app")
# Channels that deduplicate by token; the first has a lookup only by its own id.
KNOWING = ("resend", "webhook")
# A mail server can do neither. The setting of its owner decides about a mail with unknown outcome.
BLIND = ("smtp", "smtp_resend", "smtp_drop")
CHANNELS = (*ASKED, *LOCAL, *KNOWING, *BLIND)
# These never have a lookup.
MUTE = ("webhook", *BLIND)


@dataclass(frozen=True, slots=True)
class Place:
    """Addresses and timeouts of the channels; the same for every process."""

    origin: str
    mail_host: str
    mail_port: int
    folder: str
    read_seconds: float

    @property
    def mails(self) -> Path:
        return Path(self.folder) / "mails"


def channels_at(place: Place) -> dict[str, ChannelSettings]:
    """Every channel."""
    called: dict[str, Any] = {
        "allow_private": True,
        "connect_seconds": 30.0,
        "read_seconds": place.read_seconds,
    }
    keyed = {**called, "credential_env": KEY, "settle_seconds": SETTLE}
    sender = "Holdfast <noreply@example.com>"
    hooks = f"{place.origin}/webhook"
    found = {
        "postmark": ChannelSettings(
            kind="postmark", base_url=f"{place.origin}/postmark", sender=sender, **keyed
        ),
        "resend": ChannelSettings(
            kind="resend", base_url=f"{place.origin}/resend", sender=sender, **keyed
        ),
        "slack": ChannelSettings(kind="slack", base_url=f"{place.origin}/slack/api", **keyed),
        "webhook": ChannelSettings(kind="webhook", **called),
        "gateway": ChannelSettings(
            kind="webhook",
            base_url=f"{hooks}/hooks/gateway",
            status_url=f"{hooks}/status/{{token}}",
            receiver_dedupes=False,
            settle_seconds=SETTLE,
            **called,
        ),
        "mailbox": ChannelSettings(kind="mailbox", folder=str(place.mails), sender=sender),
    }
    policies = {"smtp": "hold", "smtp_resend": "resend", "smtp_drop": "drop"}
    for name, policy in policies.items():
        found[name] = ChannelSettings(
            kind="smtp",
            host=place.mail_host,
            port=place.mail_port,
            security="none",
            sender=sender,
            on_unknown=policy,
            **called,
        )
    return found


def address_of(channel: str, place: Place, number: int) -> str:
    match channel:
        case "slack":
            return f"C{number:09d}"
        case "webhook":
            return f"{place.origin}/webhook/hooks/r{number}"
        case "gateway":
            return f"+4915{number:08d}"
        case _:
            return f"somebody{number}@example.com"


def intents(channel: str, place: Place, count: int) -> list[OutgoingMessage]:
    return [
        OutgoingMessage(
            subject="change-1",
            recipient=f"somebody{number}",
            version=1,
            channel=channel,
            address=address_of(channel, place, number),
            content=Content(f"Review {number}", f"Dear {CANARY}, it is done."),
        )
        for number in range(count)
    ]


# -- faults of channels without a network


@dataclass(frozen=True, slots=True)
class LocalFault:
    """A fault that happens once, in the first process that reaches it; a file records it."""

    folder: Path
    name: str

    @property
    def fired(self) -> int:
        return int(self._file.exists())

    def fires(self) -> bool:
        try:
            self._file.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @property
    def _file(self) -> Path:
        return self.folder / f"fault-{self.name}"


class Breakable:
    """A channel with faults between the outbox and its provider."""

    def __init__(self, inner: Channel, faults: Sequence[LocalFault]) -> None:
        self.name = inner.name
        self.capabilities = inner.capabilities
        self._inner = inner
        self._faults = {fault.name: fault for fault in faults}

    def send(self, message: Message) -> Sent:
        if self._plays("no_room"):
            return Rejected("folder", is_permanent=False)
        if self._plays("drop_before_accept"):
            raise OSError(message.text)
        sent = self._inner.send(message)
        if self._plays("accept_then_drop"):
            raise OSError(message.text)
        return sent

    def lookup(self, key: LookupKey) -> LookupResult:
        return LookupFailed("folder") if self._plays("lookup_down") else self._inner.lookup(key)

    def _plays(self, name: str) -> bool:
        return name in self._faults and self._faults[name].fires()


@dataclass(frozen=True, slots=True)
class Broken:
    """The channels of a deployment, one of them with faults."""

    inner: Channels
    one: Breakable

    def get(self, name: str) -> Channel | None:
        return self.one if name == self.one.name else self.inner.get(name)

    def knows(self, name: str) -> bool:
        return self.inner.knows(name)

    def on_unknown(self, name: str) -> OnUnknown:
        return self.inner.on_unknown(name)

    def max_parallel(self, name: str) -> int:
        return self.inner.max_parallel(name)

    def problem(self, name: str, address: str, subject: str, text: str = "") -> str | None:
        return self.inner.problem(name, address, subject, text)


def break_channel(hf: Holdfast, channel: str, place: Place, names: Sequence[str]) -> None:
    """Inject these faults between the outbox of *hf* and a local channel, each once in all."""
    inner = hf.outbox.channels.get(channel)
    assert inner is not None
    faults = [LocalFault(Path(place.folder), name) for name in names]
    hf.outbox.channels = Broken(hf.outbox.channels, Breakable(inner, faults))


def set_key() -> None:
    os.environ[KEY] = "simulated-0123456789"
