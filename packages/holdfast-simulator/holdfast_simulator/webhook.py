"""A webhook receiver in the simulator: deduplicates by message id and supports lookups.

It checks Standard Webhooks signatures if a secret is set.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta

from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.messages import ReceivedMessage
from holdfast_simulator.state import SimulatorState

# The maximum age of a signed request.
TOLERANCE = timedelta(minutes=5)

REFUSALS: dict[Why, int] = {
    Why.INVALID: 400,
    Why.UNAUTHORIZED: 401,
    Why.FORBIDDEN: 403,
    Why.NOT_FOUND: 404,
    Why.CONFLICT: 409,
    Why.TOO_LARGE: 413,
    Why.RATE_LIMITED: 429,
    Why.SLOW_DOWN: 429,
    Why.OVERLOADED: 503,
}
GONE = 410


class Webhook:
    """``{simulator.url("webhook")}/hooks/anything`` receives; ``…/status/{id}`` answers lookups."""

    name = "webhook"
    prefix = "/webhook"

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/hooks/{name}", Op.SEND, self.receive),
            Route("GET", "/status/{id}", Op.LOOKUP, self.status),
        ]

    def credential(self, call: Call) -> str | None:
        """Return "": receivers have no accounts, and the signature authenticates."""
        return ""

    def refuse(self, refused: Refused) -> Answer:
        status = GONE if refused.param == "recipient" else REFUSALS.get(refused.why, 500)
        return Answer.from_json({"error": refused.message}, status, refused.headers)

    def receive(self, call: Call) -> Answer:
        body = call.body.read()
        token = call.headers.get("webhook-id") or call.headers.get("idempotency-key", "")
        secret = self.state.messages.webhook_secret
        if secret is not None and not self._is_signed(call, token, body, secret):
            raise Refused(Why.UNAUTHORIZED, "The signature is not valid.")
        letter = _read(call, token, body)
        known = self.state.messages.known(letter)
        if known is None:
            known = self.state.messages.take(letter, self.state.new_id("rcv_", 24))
        else:
            known.repeats.append(letter)
        return Answer.from_json({"id": known.id})

    def status(self, call: Call) -> Answer:
        """Return the status of a message by its sender's id."""
        found = [
            taken
            for taken in self.state.messages.find(self.name, call.account)
            if taken.token == call.params["id"]
        ]
        if not found:
            raise Refused(Why.NOT_FOUND, "Nothing has this id.")
        shown = [
            {
                "id": taken.id,
                "to": taken.address,
                "at": taken.at.isoformat(),
                "status": "failed" if taken.is_given_up else "received",
            }
            for taken in found
        ]
        return Answer.from_json({**shown[0], "matches": shown} if len(shown) > 1 else shown[0])

    def _is_signed(self, call: Call, token: str, body: bytes, secret: str) -> bool:
        stamp = call.headers.get("webhook-timestamp", "")
        if not stamp.isdecimal():
            return False
        if abs(self.state.now.timestamp() - int(stamp)) > TOLERANCE.total_seconds():
            return False
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = hmac.new(key, f"{token}.{stamp}.".encode() + body, hashlib.sha256).digest()
        wanted = "v1," + base64.b64encode(signed).decode()
        given = call.headers.get("webhook-signature", "").split(" ")
        return any(hmac.compare_digest(one.encode(), wanted.encode()) for one in given)


def _read(call: Call, token: str, body: bytes) -> ReceivedMessage:
    """Parse a message. The body's recipient counts, if any; otherwise the URL is the recipient."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    given = found if isinstance(found, dict) else {"text": body.decode(errors="replace")}
    address = str(given.get("to") or call.origin + call.path)
    subject, text = str(given.get("subject") or ""), str(given.get("text") or "")
    html = given.get("html")
    return ReceivedMessage("webhook", call.account, token, address, subject, text, body, html)
