"""Postmark in the simulator: sending, and lookup by metadata.

Postmark has no idempotency keys: a repeated request sends twice. Senders use lookups instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import getaddresses
from typing import Any
from zoneinfo import ZoneInfo

from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.messages import ReceivedMessage, Taken
from holdfast_simulator.state import SimulatorState

# The default retention of messages.
RETENTION = timedelta(days=45)
# The time zone of dates in requests and answers.
ZONE = ZoneInfo("America/New_York")
PAGE = 500

REFUSALS: dict[Why, tuple[int, int]] = {
    Why.INVALID: (422, 300),
    Why.UNAUTHORIZED: (401, 10),
    Why.FORBIDDEN: (422, 405),
    Why.NOT_FOUND: (422, 701),
    Why.TOO_LARGE: (413, 300),
    Why.RATE_LIMITED: (429, 429),
    Why.SLOW_DOWN: (429, 429),
    Why.QUOTA: (422, 405),
    Why.OVERLOADED: (503, 100),
    Why.OVERLOADED_529: (503, 100),
}
INACTIVE_RECIPIENT = (422, 406)


class Postmark:
    """``POST {simulator.url("postmark")}/email``, with any server token."""

    name = "postmark"
    prefix = "/postmark"

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/email", Op.SEND, self.send),
            Route("GET", "/messages/outbound", Op.LOOKUP, self.search),
            Route("GET", "/messages/outbound/{id}/details", Op.LOOKUP, self.details),
        ]

    def credential(self, call: Call) -> str | None:
        return call.headers.get("x-postmark-server-token", "").strip() or None

    def refuse(self, refused: Refused) -> Answer:
        status, code = REFUSALS.get(refused.why, (500, 100))
        if refused.param == "recipient":
            status, code = INACTIVE_RECIPIENT
        return Answer.from_json(
            {"ErrorCode": code, "Message": refused.message}, status, refused.headers
        )

    def send(self, call: Call) -> Answer:
        given = call.json
        if not isinstance(given, dict):
            raise Refused(Why.INVALID, "The body must be an object.")
        for needed in ("From", "To"):
            if not isinstance(given.get(needed), str) or "@" not in given[needed]:
                raise Refused(Why.INVALID, f"Invalid '{needed}' address.", param=needed)
        if not (given.get("TextBody") or given.get("HtmlBody")):
            raise Refused(Why.INVALID, "Provide either TextBody or HtmlBody or both.")
        metadata = _metadata(given.get("Metadata") or {})
        address = ",".join(found for _, found in getaddresses([given["To"]]))
        letter = ReceivedMessage(
            self.name,
            call.account,
            _token(metadata),
            address,
            given.get("Subject") or "",
            given.get("TextBody") or "",
            call.body.read(),
            given.get("HtmlBody"),
            {"metadata": metadata, "from": given["From"], "tag": given.get("Tag") or ""},
        )
        taken = self.state.messages.take(letter, str(uuid.UUID(self.state.new_id())))
        return Answer.from_json(
            {
                "To": given["To"],
                "SubmittedAt": _write(taken.at),
                "MessageID": taken.id,
                "ErrorCode": 0,
                "Message": "OK",
            }
        )

    def search(self, call: Call) -> Answer:
        count, offset = (_number(call.query, name) for name in ("count", "offset"))
        if not 1 <= count <= PAGE or count + offset > 10_000:
            raise Refused(Why.INVALID, "count is at most 500, and with offset at most 10,000.")
        fields = [name for name in call.query if name.startswith("metadata_")]
        if len(fields) > 1:
            raise Refused(Why.INVALID, "One metadata field at a time can be searched for.")
        found = [taken for taken in self._found(call) if _matches(taken, call.query)]
        page = [_show(taken) for taken in found[offset : offset + count]]
        return Answer.from_json({"TotalCount": len(found), "Messages": page})

    def details(self, call: Call) -> Answer:
        for taken in self._found(call):
            if taken.id == call.params["id"]:
                kind = "Bounced" if taken.is_given_up else "Delivered"
                event = {
                    "Recipient": taken.address,
                    "Type": kind,
                    "ReceivedAt": _write(taken.at),
                    "Details": {},
                }
                body = {"TextBody": taken.letter.text, "HtmlBody": taken.letter.html or ""}
                return Answer.from_json({**_show(taken), **body, "MessageEvents": [event]})
        raise Refused(Why.NOT_FOUND, "This message was not found.")

    def _found(self, call: Call) -> list[Taken]:
        return self.state.messages.find(self.name, call.account, RETENTION)


def _metadata(given: Any) -> dict[str, str]:
    """Return the metadata: up to ten fields, names of 20 characters, values of 80."""
    if not isinstance(given, dict) or len(given) > 10:
        raise Refused(Why.INVALID, "Metadata is an object of at most ten fields.")
    for name, value in given.items():
        if not isinstance(value, str) or len(name) > 20 or len(value) > 80:
            raise Refused(Why.INVALID, "A metadata field has a name of 20 and a value of 80.")
    return {str(name): str(value) for name, value in given.items()}


def _token(metadata: Mapping[str, str]) -> str:
    """Return the field with the token's name, or the only field."""
    return metadata.get("token") or (next(iter(metadata.values())) if len(metadata) == 1 else "")


def _number(query: Mapping[str, str], name: str) -> int:
    value = query.get(name, "")
    if not value.isdecimal():
        raise Refused(Why.INVALID, f"{name} is required.", param=name)
    return int(value)


def _matches(taken: Taken, query: Mapping[str, str]) -> bool:
    letter = taken.letter
    for name, value in query.items():
        match name.partition("_"):
            case ("metadata", "_", field) if letter.extra["metadata"].get(field) != value:
                return False
            case ("recipient", _, _) if value.lower() not in taken.address.lower():
                return False
            case ("tag", _, _) if letter.extra["tag"] != value:
                return False
            case ("fromdate", _, _) if taken.at < _instant(value):
                return False
            case ("todate", _, _) if taken.at > _instant(value):
                return False
            case _:
                pass
    return True


def _instant(value: str) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise Refused(Why.INVALID, "A date is like 2026-01-31T12:00:00.") from None
    return found if found.tzinfo else found.replace(tzinfo=ZONE)


def _write(at: datetime) -> str:
    return at.astimezone(ZONE).isoformat(timespec="microseconds")


def _show(taken: Taken) -> dict[str, Any]:
    extra = taken.letter.extra
    return {
        "Tag": extra["tag"],
        "MessageID": taken.id,
        "MessageStream": "outbound",
        "To": [{"Email": taken.address, "Name": None}],
        "Cc": [],
        "Bcc": [],
        "Recipients": [taken.address],
        "ReceivedAt": _write(taken.at),
        "From": extra["from"],
        "Subject": taken.letter.subject,
        "Attachments": [],
        "Status": "Sent",
        "TrackOpens": False,
        "TrackLinks": "None",
        "Metadata": dict(extra["metadata"]),
        "Sandboxed": False,
    }
