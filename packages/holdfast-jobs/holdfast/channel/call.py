"""HTTP calls to the server of a channel, and the meaning of their failures."""

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
# The server rejects our credential, so it would reject the next message as well.
UNAUTHORIZED = frozenset({401, 402, 403, 407})
# At a provider's own endpoint these mean that the channel's URL is wrong. So does a redirect that
# keeps the method; nothing was processed.
WRONG_ENDPOINT = frozenset({307, 308, 404, 405, 410})
# No connection was opened, for a reason that only the channel's owner or the receiver can fix.
_UNUSABLE = {"blocked": "address_refused", "tls": "tls"}


class Caller:
    """Calls below one base URL. Its headers, including the credential, are sent nowhere else."""

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
        """Send a message once; return the result of *read*, or the meaning of a missing answer.

        The status decides. The body is passed as far as it could be read.

        *is_recipients* says that the URL belongs to the recipient and not to the channel.
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
        """Make one GET request. Raises the client's NotSent and Unsure."""
        target = self._path + path + (f"?{urlencode(query)}" if query else "")
        return self._client.send("GET", target, self._headers)


def as_declared(known: Capabilities, settings: ChannelSettings) -> Capabilities:
    """The capabilities of a channel, overridden by its settings."""
    for name in ("settle_seconds", "retention_seconds"):
        if (value := getattr(settings, name)) is not None:
            known = replace(known, **{name: value})
    return known


def encode(document: Any) -> bytes:
    """Encode a document. A repeated message is identical to the byte."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, sort_keys=True)
    return text.encode("ascii")


def decode(answer: Received) -> dict[str, Any] | None:
    """The JSON object in an answer; None if there is none."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_success(answer: Received) -> bool:
    """Whether the status says that the message was accepted."""
    return 200 <= answer.status < 300


def has_no_words(answer: Received) -> bool:
    """Whether a success has no usable body: empty, or not read completely."""
    return is_success(answer) and (not answer.body.strip() or not answer.is_whole)


def throttled(answer: Received) -> Throttled | None:
    """Read a 429. A rate-limited request was not processed."""
    if answer.status != 429:
        return None
    return Throttled("status_429", answer.retry_after)


def refuses_us(answer: Received) -> bool:
    """Whether the status says that our credential or the channel's URL is wrong."""
    return answer.status in UNAUTHORIZED | WRONG_ENDPOINT


def not_answered(answer: Received, word: str | None = None) -> LookupFailed:
    """The result of a lookup without a valid answer; *word* is the provider's error code."""
    return LookupFailed(word or f"status_{answer.status}", answer.status in UNAUTHORIZED)


def known_id(value: object) -> str | None:
    """An id that a provider assigned; None if it cannot be stored."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and value.isascii():
        return value if value.isprintable() else None
    return None


def lookup_down(exc: NotSent | client.Unsure) -> LookupFailed:
    """The result of a lookup that failed, whether or not the request was sent."""
    return LookupFailed(_UNUSABLE.get(exc.reason, exc.reason))


def instant(value: object) -> datetime | None:
    """An ISO 8601 timestamp with a time zone; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.astimezone(UTC)
