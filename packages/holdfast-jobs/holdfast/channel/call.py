"""Calls to one server of a channel, and what their failures prove."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from holdfast.channel.channel import (
    Capabilities,
    ChannelRefused,
    LookupFailed,
    Rejected,
    Sent,
    Throttled,
    Unsure,
)
from holdfast.clock import Clock
from holdfast.config import ChannelSettings
from holdfast.outbound import client
from holdfast.outbound.client import Client, NotSent, Received, Timeouts
from holdfast.outbound.guard import Guard, Origin

LONGEST_ID = 200
# The server does not know us, or does not let us in: the next message would hear the same.
UNAUTHORIZED = frozenset({401, 402, 403, 407})
# At a provider's own endpoint: the address of the channel is wrong. A redirect that keeps the
# method says so too, before anything is done.
WRONG_ENDPOINT = frozenset({307, 308, 404, 405, 410})
# No connection came about, for a reason that only the channel's owner or its receiver can mend.
_UNUSABLE = {"blocked": "address_refused", "tls": "tls"}


class Caller:
    """Calls below one address: its headers, and with them its credential, go nowhere else."""

    def __init__(
        self,
        base_url: str,
        settings: ChannelSettings,
        headers: Mapping[str, str],
        clock: Clock,
    ) -> None:
        private = settings.allow_private
        guard = Guard(Origin.from_url(base_url, allow_private=private), private)
        timeouts = Timeouts(
            connect=settings.connect_seconds,
            read=settings.read_seconds,
            write=settings.read_seconds,
            answer=settings.read_seconds,
        )
        self._client = Client(guard, timeouts, clock=clock)
        self._path = urlsplit(base_url).path.rstrip("/")
        self._headers = {"accept": "application/json", **headers}

    def send(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        read: Callable[[Received], Sent],
        is_recipients: bool = False,
    ) -> Sent:
        """Hand a message over, once: what *read* makes of its answer, or what its lack proves.

        The status decides. The body is there as far as it could be read.

        *is_recipients* says that the address is the recipient's own and not the channel's.
        """
        given = {"content-type": "application/json", **self._headers, **(headers or {})}
        try:
            answer = self._client.post(self._path + path, given, body)
        except NotSent as exc:
            if exc.reason == "blocked" and is_recipients:
                return Rejected("address_refused", is_permanent=True)
            if exc.reason in _UNUSABLE:
                return ChannelRefused(_UNUSABLE[exc.reason], is_endpoint=is_recipients)
            return Rejected(exc.reason, is_permanent=False)
        except client.Unsure as exc:
            return Unsure(exc.reason)
        return read(answer)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Received:
        """One question. Raises the client's NotSent and Unsure."""
        target = self._path + path + (f"?{urlencode(query)}" if query else "")
        return self._client.send("GET", target, self._headers)


def as_declared(known: Capabilities, settings: ChannelSettings) -> Capabilities:
    """What a channel can do, with what its owner knows better."""
    for name in ("settle_seconds", "retention_seconds"):
        if (value := getattr(settings, name)) is not None:
            known = replace(known, **{name: value})
    return known


def encode(document: Any) -> bytes:
    """A document as its one sequence of bytes: a repeated message is the same to the letter."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, sort_keys=True)
    return text.encode("ascii")


def decode(answer: Received) -> dict[str, Any] | None:
    """The object that an answer holds; None if it holds none."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_success(answer: Received) -> bool:
    """Whether the status says that the message was taken."""
    return 200 <= answer.status < 300


def has_no_words(answer: Received) -> bool:
    """Whether a success says nothing beside its status: an empty body, or one that failed."""
    return is_success(answer) and (not answer.body.strip() or not answer.is_whole)


def throttled(answer: Received) -> Throttled | None:
    """What 429 says, whoever says it: a call that is turned away for its pace is not begun."""
    if answer.status != 429:
        return None
    return Throttled("status_429", answer.retry_after)


def refuses_us(answer: Received) -> bool:
    """Whether the status says that our credential, or the channel's own address, is wrong."""
    return answer.status in UNAUTHORIZED | WRONG_ENDPOINT


def not_answered(answer: Received, word: str | None = None) -> LookupFailed:
    """A question whose answer is none; *word* is the provider's own."""
    return LookupFailed(word or f"status_{answer.status}", answer.status in UNAUTHORIZED)


def known_id(value: object) -> str | None:
    """A name that a provider gave; None if it could not be kept as one."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and value.isascii():
        return value if value.isprintable() else None
    return None


def lookup_down(exc: NotSent | client.Unsure) -> LookupFailed:
    """A question that was not answered, whether or not it left."""
    return LookupFailed(_UNUSABLE.get(exc.reason, exc.reason))


def instant(value: object) -> datetime | None:
    """A date as ISO 8601 writes it, if it names its zone; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.astimezone(UTC)
