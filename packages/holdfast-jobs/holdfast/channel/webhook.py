"""Webhooks: signed messages to programs (Standard Webhooks), also for SMS and push gateways.

Without ``base_url``, a message is posted to its own address. With it, every message is posted to
that gateway with the address in the body, and a credential may be sent.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from holdfast.channel.address import problem
from holdfast.channel.call import (
    UNAUTHORIZED,
    Caller,
    as_declared,
    decode,
    encode,
    instant,
    known_id,
    lookup_down,
    not_answered,
    throttled,
)
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
    Rejected,
    Sent,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.channel.signing_keys import SigningKeys, signature_header
from holdfast.clock import Clock
from holdfast.config import ChannelSettings
from holdfast.outbound import client
from holdfast.outbound.client import NotSent, Received
from holdfast.outbound.credential import Credential

# The maximum number of receivers with open connections.
MOST_RECEIVERS = 64
# The receiver will reject this message on every attempt. 404 and 410 mean that the receiver no
# longer exists; at a configured gateway, 404 and 405 mean that its URL is wrong.
PERMANENT = frozenset({400, 404, 405, 406, 410, 411, 413, 414, 415, 422, 431, 451})
# Redirected before processing. Other redirects may follow an accepted message. None is followed.
REDIRECTED = frozenset({307, 308})
# The message may be in progress or processed.
OPEN = frozenset({408, 409})


class Webhook:
    """Posts messages to programs."""

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        credential: Credential | None,
        keys: SigningKeys,
        clock: Clock,
    ) -> None:
        self.name = name
        self.capabilities = _capabilities(settings)
        self._settings = settings
        self._clock = clock
        self._keys = keys
        self._headers: Mapping[str, str] = {}
        if credential is not None:
            self._headers = {"authorization": f"Bearer {credential.reveal()}"}
        self._callers: dict[str, Caller] = {}
        self._lock = threading.Lock()

    def send(self, message: Message) -> Sent:
        """Post a message once. The receiver recognizes a repeat by its token."""
        if self._problem(message) is not None:
            return Rejected("bad_message", is_permanent=True)
        url, document = self._posted(message)
        body = encode(document)
        is_recipients = url == message.address
        return self._caller(url).send(
            _target(url),
            body,
            self._signed(message, url, body),
            read=partial(_sent, token=message.token, is_recipients=is_recipients),
            is_recipients=is_recipients,
        )

    def _problem(self, message: Message) -> str | None:
        return problem(self._settings, message.address, message.subject)

    def _posted(self, message: Message) -> tuple[str, dict[str, Any]]:
        """The URL and the document to post."""
        gateway = self._settings.base_url
        return gateway or message.address, _document(message, with_address=gateway is not None)

    def lookup(self, key: LookupKey) -> LookupResult:
        """Look up a token at the gateway."""
        url = self._settings.status_url
        if url is None:
            return LookupFailed("not_supported")
        target = _target(url).replace("{token}", quote(key.token, safe=""))
        try:
            answer = self._caller(url).get(target)
        except (NotSent, client.Unsure) as exc:
            return lookup_down(exc)
        return _seen(answer, key.address)

    def _signed(self, message: Message, url: str, body: bytes) -> dict[str, str]:
        # A new timestamp for every attempt, because receivers reject timestamps older than a few
        # minutes.
        stamp, token = str(int(self._clock.now().timestamp())), message.token
        headers = {"webhook-id": token, "webhook-timestamp": stamp, "idempotency-key": token}
        keys = self._keys.find(url, message.org_id)
        if keys:
            headers["webhook-signature"] = signature_header(keys, token, stamp, body)
        return headers

    def _caller(self, url: str) -> Caller:
        origin = "/".join(url.split("/", 3)[:3]).lower()
        with self._lock:
            found = self._callers.pop(origin, None)
            if found is None:
                found = Caller(origin, self._settings, self._headers, self._clock)
            # Ordered by last use. A caller that is still in use stays open.
            self._callers[origin] = found
            while len(self._callers) > MOST_RECEIVERS:
                del self._callers[next(iter(self._callers))]
            return found


def _capabilities(settings: ChannelSettings) -> Capabilities:
    known = Capabilities(
        lookup=Lookup.NONE if settings.status_url is None else Lookup.BY_OUR_TOKEN,
        settle_seconds=60.0,
        receiver_dedupes=settings.receiver_dedupes is not False,
        is_per_endpoint=settings.base_url is None,
    )
    return as_declared(known, settings)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _document(message: Message, *, with_address: bool) -> dict[str, Any]:
    """The body, identical to the byte for the same message."""
    found: dict[str, Any] = {
        "id": message.token,
        "subject": message.subject,
        "text": message.text,
        "data": dict(message.data),
    }
    if message.html is not None:
        found["html"] = message.html
    if with_address:
        found["to"] = message.address
    return found


def _sent(answer: Received, token: str, *, is_recipients: bool) -> Sent:
    if (busy := throttled(answer)) is not None:
        return busy
    status = answer.status
    if status in UNAUTHORIZED or (status in (404, 405) and not is_recipients):
        return ChannelRefused(f"status_{status}", is_endpoint=is_recipients)
    if 200 <= status < 300:
        # Without an id from the receiver, the token identifies the message.
        return Accepted(known_id((decode(answer) or {}).get("id")) or token)
    if status in REDIRECTED or (400 <= status < 500 and status not in OPEN):
        return Rejected(f"status_{status}", status in PERMANENT | REDIRECTED)
    return Unsure(f"status_{status}")


def _seen(answer: Received, address: str) -> LookupResult:
    """Interpret the answer of the status URL; an unusable answer is a failed lookup."""
    found = decode(answer) or {}
    if answer.status == 404 and "error" in found:
        return NotFound()
    name = known_id(found.get("id"))
    if answer.status != 200 or name is None:
        return not_answered(answer)
    matches = found.get("matches")
    if isinstance(matches, list) and len(matches) > 1:
        return Ambiguous(len(matches))
    # A different recipient means a different message.
    if found.get("to", address) != address:
        return Ambiguous(1)
    return Found(name, instant(found.get("at")), found.get("status") != "failed")
