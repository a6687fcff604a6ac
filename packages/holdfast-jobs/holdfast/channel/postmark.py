"""Postmark: mail over HTTP. It has no idempotency keys; messages are looked up by our token."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

from holdfast.channel.address import ascii_email, problem
from holdfast.channel.call import (
    Caller,
    as_declared,
    decode,
    encode,
    has_no_words,
    instant,
    is_success,
    known_id,
    lookup_down,
    not_answered,
    refuses_us,
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
from holdfast.clock import Clock
from holdfast.config import ChannelSettings
from holdfast.outbound import client
from holdfast.outbound.client import NotSent, Received
from holdfast.outbound.credential import Credential

BASE_URL = "https://api.postmarkapp.com"
FIELD = "holdfast"
# The mail or its recipient is rejected, not the account: 300 is an invalid mail, 406 an inactive
# recipient (bounce or complaint).
PERMANENT = frozenset({300, 406})
# The account is rejected: token, sender address, account status or credit.
ACCOUNT = frozenset({10, 400, 401, 405, 412, 413})

CAPABILITIES = Capabilities(
    lookup=Lookup.BY_OUR_TOKEN,
    # The delay of its index is not documented.
    settle_seconds=300.0,
    # Messages are kept for 45 days by default; an account can reduce this to 7.
    retention_seconds=7 * 86_400.0,
    longest_token=80,
)


class Postmark:
    """Sends mails through Postmark."""

    def __init__(
        self, name: str, settings: ChannelSettings, credential: Credential, clock: Clock
    ) -> None:
        self.name = name
        self.capabilities = as_declared(CAPABILITIES, settings)
        self._settings = settings
        headers = {"x-postmark-server-token": credential.reveal()}
        self._caller = Caller(settings.base_url or BASE_URL, settings, headers, clock)

    def send(self, message: Message) -> Sent:
        """Send a mail once."""
        if problem(self._settings, message.address, message.subject) is not None:
            return Rejected("bad_message", is_permanent=True)
        given: dict[str, Any] = {
            "From": self._settings.sender,
            "To": ascii_email(message.address),
            "Subject": message.subject,
            "TextBody": message.text,
            "Metadata": {FIELD: message.token},
        }
        if message.html is not None:
            given["HtmlBody"] = message.html
        return self._caller.send("/email", encode(given), read=partial(_sent, token=message.token))

    def lookup(self, key: LookupKey) -> LookupResult:
        """Look up a mail by its token."""
        query = {"count": "10", "offset": "0", f"metadata_{FIELD}": key.token}
        try:
            answer = self._caller.get("/messages/outbound", query)
        except (NotSent, client.Unsure) as exc:
            return lookup_down(exc)
        found = decode(answer)
        messages = found.get("Messages") if found else None
        if answer.status != 200 or not isinstance(messages, list):
            return not_answered(answer)
        ours = [one for one in messages if _token(one) == key.token]
        if len(ours) != len(messages):
            # The filter was not applied, so the mail may be on another page.
            return LookupFailed("not_understood")
        if not ours:
            return NotFound()
        if len(ours) > 1 or not _is_to(ours[0], key.address):
            return Ambiguous(len(ours))
        name = known_id(ours[0].get("MessageID"))
        if name is None:
            return LookupFailed("not_understood")
        return Found(name, instant(ours[0].get("ReceivedAt")), not self._has_bounced(name))

    def _has_bounced(self, name: str) -> bool:
        """Whether the mail bounced. Only the message details say so; no answer counts as no."""
        try:
            answer = self._caller.get(f"/messages/outbound/{quote(name, safe='')}/details")
        except (NotSent, client.Unsure):
            return False
        events = (decode(answer) or {}).get("MessageEvents")
        return isinstance(events, list) and any(
            isinstance(event, dict) and event.get("Type") == "Bounced" for event in events
        )


def _sent(answer: Received, token: str) -> Sent:
    if (busy := throttled(answer)) is not None:
        return busy
    found = decode(answer)
    if found is None and has_no_words(answer):
        # It was accepted, but the id is lost. The token in its metadata identifies it.
        return Accepted(token)
    found = found or {}
    code = found.get("ErrorCode")
    name = known_id(found.get("MessageID"))
    if is_success(answer) and code == 0 and name is not None:
        return Accepted(name)
    has_code = isinstance(code, int) and code > 0 and "Message" in found
    is_refusal = 400 <= answer.status < 500 and has_code
    if refuses_us(answer) or (is_refusal and code in ACCOUNT):
        return ChannelRefused(f"postmark_{code}" if has_code else f"status_{answer.status}")
    if is_refusal:
        return Rejected(f"postmark_{code}", is_permanent=code in PERMANENT)
    return Unsure(f"status_{answer.status}", name)


def _token(found: object) -> object:
    metadata = found.get("Metadata") if isinstance(found, dict) else None
    return metadata.get(FIELD) if isinstance(metadata, dict) else None


def _is_to(found: dict[str, Any], address: str) -> bool:
    listed = found.get("Recipients")
    wanted = (ascii_email(address) or "").lower()
    return isinstance(listed, list) and [str(one).lower() for one in listed] == [wanted]
