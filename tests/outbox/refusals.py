"""Refusals of each channel: the answer, and whether it concerns the message or the account."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.config import ChannelSettings
from tests.provider.plain_server import say


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer of a channel that refuses; *is_final* means the message's own address."""

    kind: str
    word: str
    answer: bytes = field(repr=False)
    is_final: bool = False

    def __str__(self) -> str:
        return f"{self.kind}-{self.word}"


def _told(status: int, document: Any) -> bytes:
    return say(status, json.dumps(document).encode())


def _postmark(status: int, code: int) -> Refusal:
    document = {"ErrorCode": code, "Message": "no"}
    return Refusal("postmark", f"{status}-{code}", _told(status, document))


def _resend(status: int, name: str) -> Refusal:
    return Refusal("resend", f"{status}-{name}", _told(status, {"name": name, "message": "no"}))


def _slack(word: str) -> Refusal:
    return Refusal("slack", word, _told(200, {"ok": False, "error": word}))


REFUSALS = [
    *(Refusal("gateway", str(status), say(status, b"no")) for status in (401, 403, 404)),
    *(Refusal("webhook", str(status), say(status, b"no")) for status in (401, 403)),
    *(Refusal("webhook", str(gone), say(gone, b"no"), is_final=True) for gone in (404, 410)),
    _postmark(401, 10),
    _postmark(422, 405),
    *(
        Refusal(kind, str(status), say(status, b"no such page"))
        for kind in ("postmark", "resend", "slack")
        for status in (401, 403, 404)
    ),
    _resend(403, "invalid_api_key"),
    _resend(401, "missing_api_key"),
    _resend(429, "monthly_quota_exceeded"),
    _slack("invalid_auth"),
    _slack("missing_scope"),
    _slack("token_revoked"),
    _slack("not_in_channel"),
]

# For each channel one refusal by its status, one by its error text, and one that is final. The
# channel tests cover the decision about each answer; make outbox-faults plays all of them.
SOME_REFUSALS = [
    one
    for one in REFUSALS
    if str(one)
    in {
        "gateway-401",
        "webhook-403",
        "webhook-410",
        "postmark-401-10",
        "postmark-404",
        "resend-403",
        "resend-429-monthly_quota_exceeded",
        "slack-401",
        "slack-invalid_auth",
    }
]

TAKEN = {
    "gateway": say(200, b"{}"),
    "webhook": say(200, b"{}"),
    "postmark": _told(200, {"ErrorCode": 0, "Message": "OK", "MessageID": "their-1"}),
    "resend": _told(200, {"id": "their-1"}),
    "slack": _told(200, {"ok": True, "ts": "1.1"}),
}

ADDRESSES = {
    "gateway": "+49 151 1",
    "webhook": "{url}/hook",
    "postmark": "ada@example.com",
    "resend": "ada@example.com",
    "slack": "C0123456789",
}


def settings_for(kind: str, url: str) -> ChannelSettings:
    """A channel of that kind whose provider is at *url*; its credential is the variable KEY."""
    options: dict[str, Any] = {"kind": kind, "allow_private": True}
    match kind:
        case "webhook":
            options |= {"secret_env": "KEY"}
        case "gateway":
            options |= {"kind": "webhook", "base_url": url, "credential_env": "KEY"}
        case "slack":
            options |= {"base_url": url, "credential_env": "KEY"}
        case _:
            options |= {"base_url": url, "credential_env": "KEY", "sender": "a@example.org"}
    return ChannelSettings(**options)
