"""Resend in the simulator: sending with an idempotency key, and lookup by id."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import timedelta
from typing import Any

from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.messages import ReceivedMessage, Taken
from holdfast_simulator.state import SimulatorState

# How long an idempotency key is remembered.
WINDOW = timedelta(hours=24)
LONGEST_KEY = 256
PAGE = 100

REFUSALS: dict[Why, tuple[int, str]] = {
    Why.INVALID: (422, "validation_error"),
    Why.UNAUTHORIZED: (401, "missing_api_key"),
    Why.FORBIDDEN: (403, "invalid_api_key"),
    Why.NOT_FOUND: (404, "not_found"),
    Why.CONFLICT: (409, "invalid_idempotent_request"),
    Why.ALREADY_EXISTS: (409, "concurrent_idempotent_requests"),
    Why.TOO_LARGE: (413, "validation_error"),
    Why.RATE_LIMITED: (429, "rate_limit_exceeded"),
    Why.SLOW_DOWN: (429, "rate_limit_exceeded"),
    Why.QUOTA: (429, "daily_quota_exceeded"),
    Why.OVERLOADED: (503, "application_error"),
    Why.OVERLOADED_529: (503, "application_error"),
}


class Resend:
    """``POST {simulator.url("resend")}/emails``, with any key."""

    name = "resend"
    prefix = "/resend"

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/emails", Op.SEND, self.send),
            Route("GET", "/emails", Op.LOOKUP, self.list),
            Route("GET", "/emails/{id}", Op.LOOKUP, self.get),
        ]

    def credential(self, call: Call) -> str | None:
        scheme, _, key = call.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" and key.strip() else None

    def refuse(self, refused: Refused) -> Answer:
        status, name = REFUSALS.get(refused.why, (500, "internal_server_error"))
        if refused.param == "idempotency-key":
            status, name = 400, "invalid_idempotency_key"
        value = {"statusCode": status, "message": refused.message, "name": name}
        return Answer.from_json(value, status, refused.headers)

    def send(self, call: Call) -> Answer:
        letter = self._read(call)
        known = self.state.messages.known(letter, WINDOW)
        if known is None:
            message_id = str(uuid.UUID(self.state.new_id()))
            return Answer.from_json({"id": self.state.messages.take(letter, message_id).id})
        if known.letter.extra["asked"] != letter.extra["asked"]:
            raise Refused(Why.CONFLICT, "Same idempotency key used with a different request.")
        known.repeats.append(letter)
        return Answer.from_json({"id": known.id})

    def _read(self, call: Call) -> ReceivedMessage:
        given = call.json
        token = call.headers.get("idempotency-key", "")
        if len(token) > LONGEST_KEY:
            message = "The key must be between 1-256 chars."
            raise Refused(Why.INVALID, message, param="idempotency-key")
        if not isinstance(given, dict):
            raise Refused(Why.INVALID, "The body must be an object.")
        to = given.get("to")
        listed = [to] if isinstance(to, str) else to
        if not isinstance(listed, list) or not 1 <= len(listed) <= 50:
            raise Refused(Why.INVALID, "The `to` field is one address or up to 50.", param="to")
        if any(not isinstance(one, str) or "@" not in one for one in listed):
            raise Refused(Why.INVALID, "Invalid `to` field.", param="to")
        for needed in ("from", "subject"):
            if not isinstance(given.get(needed), str) or not given[needed]:
                raise Refused(Why.INVALID, f"Missing `{needed}` field.", param=needed)
        if not (given.get("text") or given.get("html")):
            raise Refused(Why.INVALID, "Missing `html` or `text` field.")
        canonical = json.dumps(given, sort_keys=True).encode()
        return ReceivedMessage(
            self.name,
            call.account,
            token,
            ",".join(listed),
            given["subject"],
            given.get("text") or "",
            call.body.read(),
            given.get("html"),
            {"from": given["from"], "asked": hashlib.sha256(canonical).hexdigest()},
        )

    def get(self, call: Call) -> Answer:
        for taken in self.state.messages.find(self.name, call.account):
            if taken.id == call.params["id"]:
                body = {"html": taken.letter.html, "text": taken.letter.text}
                return Answer.from_json({"object": "email", **_show(taken), **body})
        raise Refused(Why.NOT_FOUND, "Email not found")

    def list(self, call: Call) -> Answer:
        limit = call.query.get("limit", "20")
        if not limit.isdecimal() or not 1 <= int(limit) <= PAGE:
            raise Refused(Why.INVALID, "`limit` is between 1 and 100.", param="limit")
        found = self.state.messages.find(self.name, call.account)
        ids = [taken.id for taken in found]
        after = call.query.get("after")
        start = ids.index(after) + 1 if after in ids else 0
        page = [_show(taken) for taken in found[start : start + int(limit)]]
        has_more = len(found) > start + int(limit)
        return Answer.from_json({"object": "list", "has_more": has_more, "data": page})


def _show(taken: Taken) -> dict[str, Any]:
    return {
        "id": taken.id,
        "to": taken.address.split(","),
        "from": taken.letter.extra["from"],
        "created_at": taken.at.isoformat(timespec="microseconds"),
        "subject": taken.letter.subject,
        "bcc": None,
        "cc": None,
        "reply_to": None,
        "last_event": "bounced" if taken.is_given_up else "delivered",
        "scheduled_at": None,
    }
