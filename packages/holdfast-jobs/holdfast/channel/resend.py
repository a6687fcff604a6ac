"""Resend: mail over HTTP. It accepts a token once per day; mails are looked up by Resend's id."""

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

BASE_URL = "https://api.resend.com"
# The mail is rejected, not the account.
PERMANENT = frozenset({400, 413, 422})
# The account is rejected: key, sender domain or plan limit.
ACCOUNT = frozenset(
    {
        "daily_quota_exceeded",
        "invalid_access",
        "invalid_api_key",
        "invalid_from_address",
        "missing_api_key",
        "monthly_quota_exceeded",
        "restricted_api_key",
    }
)
GIVEN_UP = frozenset({"bounced", "canceled", "failed", "suppressed"})

CAPABILITIES = Capabilities(
    idempotency_seconds=86_400.0,
    wants_same_body=True,
    lookup=Lookup.BY_PROVIDER_ID,
    settle_seconds=60.0,
    # The smallest plan keeps a mail for one day; after that its id is not found.
    retention_seconds=86_400.0,
    longest_token=256,
)


class Resend:
    """Sends mails through Resend."""

    def __init__(
        self, name: str, settings: ChannelSettings, credential: Credential, clock: Clock
    ) -> None:
        self.name = name
        self.capabilities = as_declared(CAPABILITIES, settings)
        self._settings = settings
        headers = {"authorization": f"Bearer {credential.reveal()}"}
        self._caller = Caller(settings.base_url or BASE_URL, settings, headers, clock)

    def send(self, message: Message) -> Sent:
        """Send a mail. Within a day the same token is accepted once."""
        if problem(self._settings, message.address, message.subject) is not None:
            return Rejected("bad_message", is_permanent=True)
        given: dict[str, Any] = {
            "from": self._settings.sender,
            "to": [ascii_email(message.address)],
            "subject": message.subject,
            "text": message.text,
        }
        if message.html is not None:
            given["html"] = message.html
        headers = {"idempotency-key": message.token}
        read = partial(_sent, token=message.token)
        return self._caller.send("/emails", encode(given), headers, read=read)

    def lookup(self, key: LookupKey) -> LookupResult:
        """Look up a mail by the id that Resend assigned."""
        if key.provider_id is None:
            return LookupFailed("no_id")
        try:
            answer = self._caller.get(f"/emails/{quote(key.provider_id, safe='')}")
        except (NotSent, client.Unsure) as exc:
            return lookup_down(exc)
        found = decode(answer) or {}
        if answer.status == 404 and found.get("name") == "not_found":
            return NotFound()
        if answer.status != 200 or found.get("id") != key.provider_id:
            return not_answered(answer)
        wanted = (ascii_email(key.address) or "").lower()
        if [str(one).lower() for one in found.get("to") or ()] != [wanted]:
            return Ambiguous(1)
        is_delivered = found.get("last_event") not in GIVEN_UP
        return Found(key.provider_id, instant(found.get("created_at")), is_delivered)


def _sent(answer: Received, token: str) -> Sent:
    found = decode(answer)
    word = known_id((found or {}).get("name"))
    is_refusal = 400 <= answer.status < 500
    if refuses_us(answer) or (is_refusal and word in ACCOUNT):
        return ChannelRefused(f"resend_{word}"[:100] if word else f"status_{answer.status}")
    if (busy := throttled(answer)) is not None:
        return busy
    if found is None and has_no_words(answer):
        # It was accepted under our token, but the id is lost.
        return Accepted(token)
    found = found or {}
    name = known_id(found.get("id"))
    if is_success(answer) and name is not None:
        return Accepted(name)
    # 409 means that the token is in progress or was used for another mail: something was accepted.
    if is_refusal and answer.status not in (408, 409) and word is not None:
        return Rejected(f"resend_{word}"[:100], is_permanent=answer.status in PERMANENT)
    return Unsure(f"status_{answer.status}", name)
