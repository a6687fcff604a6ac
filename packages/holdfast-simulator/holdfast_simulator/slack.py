"""Slack in the simulator: posting to a channel, and reading its history.

As at Slack, a refusal has status 200 and ``"ok": false``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.messages import ReceivedMessage, Taken
from holdfast_simulator.state import SimulatorState

PAGE = 999

REFUSALS: dict[Why, tuple[int, str]] = {
    Why.INVALID: (200, "invalid_arguments"),
    Why.UNAUTHORIZED: (200, "not_authed"),
    Why.FORBIDDEN: (200, "invalid_auth"),
    Why.NOT_FOUND: (200, "channel_not_found"),
    Why.TOO_LARGE: (200, "msg_too_long"),
    Why.RATE_LIMITED: (429, "ratelimited"),
    Why.SLOW_DOWN: (429, "ratelimited"),
    Why.OVERLOADED: (503, "service_unavailable"),
}


class Slack:
    """``POST {simulator.url("slack")}/chat.postMessage``, with any token."""

    name = "slack"
    prefix = "/slack/api"

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/chat.postMessage", Op.SEND, self.post),
            Route("GET", "/conversations.history", Op.LOOKUP, self.history),
            Route("POST", "/conversations.history", Op.LOOKUP, self.history),
        ]

    def credential(self, call: Call) -> str | None:
        scheme, _, key = call.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" and key.strip() else None

    def refuse(self, refused: Refused) -> Answer:
        status, error = REFUSALS.get(refused.why, (500, "internal_error"))
        if refused.param == "recipient":
            status, error = 200, "channel_not_found"
        return Answer.from_json({"ok": False, "error": error}, status, refused.headers)

    def post(self, call: Call) -> Answer:
        given = _arguments(call)
        channel = given.get("channel")
        if not isinstance(channel, str) or not channel:
            raise Refused(Why.NOT_FOUND, "no channel")
        if not (given.get("text") or given.get("blocks") or given.get("attachments")):
            raise Refused(Why.INVALID, "no_text")
        metadata = given.get("metadata")
        letter = ReceivedMessage(
            self.name,
            call.account,
            _token(metadata),
            channel,
            "",
            str(given.get("text") or ""),
            call.body.read(),
            None,
            {"channel": self._channel_id(channel), "metadata": metadata},
        )
        taken = self.state.messages.take(letter, self._new_ts())
        return Answer.from_json(
            {
                "ok": True,
                "channel": letter.extra["channel"],
                "ts": taken.id,
                "message": _show(taken, with_metadata=True),
            }
        )

    def history(self, call: Call) -> Answer:
        given = {**call.query, **(_arguments(call) if call.method == "POST" else {})}
        wanted = str(given.get("channel", ""))
        # Posting accepts a name. Reading requires the id that posting returned.
        if not wanted or self._channel_id(wanted) != wanted:
            raise Refused(Why.NOT_FOUND, "no such channel")
        limit = str(given.get("limit", "100"))
        if not limit.isdecimal() or not 1 <= int(limit) <= PAGE:
            raise Refused(Why.INVALID, "limit is between 1 and 999")
        found = [
            taken
            for taken in self.state.messages.find(self.name, call.account)
            if taken.letter.extra["channel"] == wanted and _is_within(taken, given)
        ]
        start = _start(given.get("cursor"))
        page = found[start : start + int(limit)]
        has_more = len(found) > start + int(limit)
        with_metadata = str(given.get("include_all_metadata", "")).lower() in ("1", "true")
        answer: dict[str, Any] = {
            "ok": True,
            "messages": [_show(taken, with_metadata=with_metadata) for taken in page],
            "has_more": has_more,
        }
        if has_more:
            cursor = base64.b64encode(str(start + int(limit)).encode()).decode()
            answer["response_metadata"] = {"next_cursor": cursor}
        return Answer.from_json(answer)

    def _new_ts(self) -> str:
        """Return a timestamp: seconds, and six digits that distinguish messages within a second."""
        number = self.state.messages.next_number()
        return f"{int(self.state.now.timestamp())}.{number:06d}"

    def _channel_id(self, channel: str) -> str:
        """Return a channel id unchanged; map names and people to ids."""
        if channel[:1] in "CDG" and channel.isalnum() and channel.isupper():
            return channel
        kind = "D" if channel[:1] == "U" and channel.isalnum() and channel.isupper() else "C"
        return kind + self.state.digest(f"channel {channel.lstrip('#')}")[:10].upper()


def _arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of a call, sent as JSON or as a form."""
    if "json" not in call.headers.get("content-type", ""):
        return dict(parse_qsl(call.body.read().decode()))
    given = call.json
    if not isinstance(given, dict):
        raise Refused(Why.INVALID, "invalid_json")
    return given


def _token(metadata: Any) -> str:
    """Return the payload's field with the token's name, or the only field."""
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    if not isinstance(payload, dict):
        return ""
    return str(payload.get("token") or (next(iter(payload.values())) if len(payload) == 1 else ""))


def _is_within(taken: Taken, given: Mapping[str, Any]) -> bool:
    at = _ts(taken.id)
    oldest, latest = _ts(given.get("oldest") or "0"), _ts(given.get("latest") or "9" * 10)
    if str(given.get("inclusive", "")).lower() in ("1", "true"):
        return oldest <= at <= latest
    return oldest < at < latest


def _ts(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise Refused(Why.INVALID, "invalid_ts") from None


def _start(cursor: Any) -> int:
    try:
        return int(base64.b64decode(cursor)) if cursor else 0
    except ValueError:
        raise Refused(Why.INVALID, "invalid_cursor") from None


def _show(taken: Taken, *, with_metadata: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "message",
        "bot_id": "B0SIMULATOR",
        "text": taken.letter.text,
        "ts": taken.id,
    }
    metadata = taken.letter.extra["metadata"]
    if with_metadata and metadata is not None:
        shown["metadata"] = metadata
    return shown
