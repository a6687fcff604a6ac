"""A receiver of webhooks in the simulator: it knows a message again by its id, and can be asked.

Its signatures are those of Standard Webhooks. They are checked if a secret is set.
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

# How old a signed request may be.
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
    """``{simulator.url("webhook")}/hooks/anything`` takes; ``…/status/{id}`` answers."""

    name = "webhook"
    prefix = "/webhook"

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/hooks/{name}", Op.SEND, self.receive),
            Route("GET", "/status/{id}", Op.LOOKUP, self.status),
        ]

    def credential(self, call: Call) -> str | None:
        """A receiver has no accounts; the signature is its proof."""
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
        """What became of a message, by the id that its sender gave it."""
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
    """A gateway finds the recipient in the body; anybody else is the recipient."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    given = found if isinstance(found, dict) else {"text": body.decode(errors="replace")}
    address = str(given.get("to") or call.origin + call.path)
    subject, text = str(given.get("subject") or ""), str(given.get("text") or "")
    html = given.get("html")
    return ReceivedMessage("webhook", call.account, token, address, subject, text, body, html)
