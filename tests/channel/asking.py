"""Channels against a scripted server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from holdfast import FakeClock, Settings
from holdfast.channel.channel import Channel, LookupKey
from holdfast.channel.channels import ConfiguredChannels
from holdfast.channel.message import Message
from holdfast.config import ChannelSettings
from tests.provider.plain_server import Handler, PlainServer, plain_server

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ADA = "ada@example.com"
MAIL = Message("hf_1", ADA, "Review of 4711", "Two findings.\n", "<p>Two</p>", at=AT)
ASKED = LookupKey("hf_1", ADA, "hash", AT, "their-1")
ENV = {"KEY": "hunter2-hunter2"}


def open_channel(kind: str, url: str | None, **options: Any) -> Channel:
    """A channel of that kind, whose provider is at *url*."""
    if kind in ("postmark", "resend"):
        options.setdefault("sender", "post@example.org")
    if kind != "webhook":
        options.setdefault("credential_env", "KEY")
    given = {"allow_private": True, **options}
    settings = Settings(channels={"one": ChannelSettings(kind=kind, base_url=url, **given)})
    return ConfiguredChannels(settings, clock=FakeClock(AT), env=ENV).require("one")


@contextmanager
def answering(
    kind: str, *answers: bytes | Handler, **options: Any
) -> Iterator[tuple[Channel, PlainServer]]:
    with plain_server(*answers) as server:
        yield open_channel(kind, server.url, **options), server
