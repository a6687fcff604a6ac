"""Slack: posts messages to a conversation, and reads it back to find our token."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from holdfast.channel.address import problem, text_problem
from holdfast.channel.call import (
    Caller,
    as_declared,
    decode,
    encode,
    is_success,
    known_id,
    lookup_down,
    not_answered,
    refuses_us,
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
    Throttled,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.clock import Clock
from holdfast.config import ChannelSettings
from holdfast.outbound import client
from holdfast.outbound.client import NotSent, Received
from holdfast.outbound.credential import Credential

BASE_URL = "https://slack.com/api"
EVENT = "holdfast_delivery"
# Slack truncates longer texts.
LONGEST_TEXT = 40_000
PAGE = 200
MOST_PAGES = 10
# Tolerance for clock skew.
SKEW = timedelta(minutes=5)

# The message or its conversation is rejected.
PERMANENT = frozenset(
    {
        "cannot_reply_to_message",
        "channel_not_found",
        "invalid_arguments",
        "is_archived",
        "msg_too_long",
        "no_text",
        "restricted_action",
        "restricted_action_read_only_channel",
        "user_not_found",
    }
)
# The app is rejected: token, scopes, or installation in the workspace.
ACCOUNT = frozenset(
    {
        "access_denied",
        "accesslimited",
        "account_inactive",
        "deprecated_endpoint",
        "ekm_access_denied",
        "enterprise_is_restricted",
        "invalid_auth",
        "method_deprecated",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authed",
        "org_login_required",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
        "two_factor_setup_required",
        "unknown_method",
    }
)
# The app is rejected in this conversation until a member adds it.
CONVERSATION = frozenset({"messages_tab_disabled", "not_in_channel"})
BUSY = frozenset({"message_limit_exceeded", "rate_limited", "ratelimited"})

# Slack also reports errors with status 200, so the first field of the body decides.
_OK = re.compile(rb'\s*\{\s*"ok"\s*:\s*true\s*[,}]')

CAPABILITIES = Capabilities(
    lookup=Lookup.BY_OUR_TOKEN,
    settle_seconds=60.0,
    # A workspace may delete messages after a day.
    retention_seconds=86_400.0,
    longest_token=200,
    longest_text=LONGEST_TEXT,
)


class Slack:
    """Posts messages to conversations of one workspace."""

    def __init__(
        self, name: str, settings: ChannelSettings, credential: Credential, clock: Clock
    ) -> None:
        self.name = name
        self.capabilities = as_declared(CAPABILITIES, settings)
        self._settings = settings
        headers = {"authorization": f"Bearer {credential.reveal()}"}
        self._caller = Caller(settings.base_url or BASE_URL, settings, headers, clock)

    def send(self, message: Message) -> Sent:
        """Post a message once."""
        text = written(message.subject, message.text)
        if problem(self._settings, message.address, message.subject) is not None:
            return Rejected("bad_message", is_permanent=True)
        if text_problem(text, LONGEST_TEXT) is not None:
            return Rejected("msg_too_long", is_permanent=True)
        given = {
            "channel": message.address,
            "text": text,
            "mrkdwn": False,
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": {"event_type": EVENT, "event_payload": {"token": message.token}},
        }
        headers = {"content-type": "application/json; charset=utf-8"}
        read = partial(_sent, token=message.token)
        return self._caller.send("/chat.postMessage", encode(given), headers, read=read)

    def lookup(self, key: LookupKey) -> LookupResult:
        """Read the conversation from shortly before the first attempt, and search for the token."""
        query = {
            "channel": key.address,
            "oldest": f"{(key.since - SKEW).timestamp():.6f}",
            "limit": str(PAGE),
            "include_all_metadata": "true",
        }
        found: list[str] = []
        for _ in range(MOST_PAGES):
            try:
                answer = self._caller.get("/conversations.history", query)
            except (NotSent, client.Unsure) as exc:
                return lookup_down(exc)
            document = decode(answer) or {}
            messages = document.get("messages")
            if document.get("ok") is not True or not isinstance(messages, list):
                word = known_id(document.get("error"))
                unanswered = not_answered(answer, word)
                return replace(unanswered, is_refused=unanswered.is_refused or word in ACCOUNT)
            found += [str(one.get("ts")) for one in messages if _token(one) == key.token]
            cursor = _cursor(document)
            if cursor is None:
                is_whole = document.get("has_more") is not True
                return _seen(found) if found or is_whole else LookupFailed("not_understood")
            query["cursor"] = cursor
        # The unread part may contain it.
        return _seen(found) if found else LookupFailed("too_long")


def written(subject: str, text: str) -> str:
    """Return subject and text, with mentions and links escaped."""
    whole = f"{subject}\n{text}" if subject else text
    return whole.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _sent(answer: Received, token: str) -> Sent:
    found = decode(answer)
    if found is None and is_success(answer) and _OK.match(answer.body):
        # The answer broke off after the first field, which says that the message was posted.
        return Accepted(token)
    found = found or {}
    word = known_id(found.get("error"))
    if answer.status == 429 or (found.get("ok") is False and word in BUSY):
        return Throttled(word or "status_429", answer.retry_after)
    name = known_id(found.get("ts"))
    if answer.status == 200 and found.get("ok") is True and name is not None:
        return Accepted(name)
    is_ours = answer.status < 500 and found.get("ok") is False
    if is_ours and word in PERMANENT:
        return Rejected(f"slack_{word}", is_permanent=True)
    is_here = is_ours and word in CONVERSATION
    if refuses_us(answer) or is_here or (is_ours and word in ACCOUNT):
        code = f"slack_{word}"[:100] if word else f"status_{answer.status}"
        return ChannelRefused(code, is_endpoint=is_here)
    # fatal_error may occur after the message was posted, and so may an unknown error.
    return Unsure(f"slack_{word}"[:100] if is_ours and word else f"status_{answer.status}", name)


def _token(found: object) -> object:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict) or metadata.get("event_type") != EVENT:
        return None
    payload = metadata.get("event_payload")
    return payload.get("token") if isinstance(payload, dict) else None


def _cursor(document: dict[str, Any]) -> str | None:
    further = document.get("response_metadata")
    found = further.get("next_cursor") if isinstance(further, dict) else None
    return found if isinstance(found, str) and found else None


def _seen(found: list[str]) -> LookupResult:
    if not found:
        return NotFound()
    if len(found) > 1:
        return Ambiguous(len(found))
    try:
        at = datetime.fromtimestamp(float(found[0]), UTC)
    except (ValueError, OverflowError, OSError):
        return LookupFailed("not_understood")
    return Found(found[0], at)
