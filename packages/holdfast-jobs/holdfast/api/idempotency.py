"""The header Idempotency-Key: a repeated request is answered like the first one, and acts once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any

from fastapi import Response
from starlette.concurrency import run_in_threadpool

from holdfast.api.bodies import BoundedRequest
from holdfast.api.caller import Caller
from holdfast.api.problems import STATUS, ProblemError, listed
from holdfast.errors import HoldfastError, StoreBusy
from holdfast.operate.access import ReadTimeout
from holdfast.operate.idempotent_requests import KeptAnswer, RequestClaim, claim_request

HEADER = "Idempotency-Key"
LONGEST_KEY = 200
_KEY = re.compile(rf"[!-~][ -~]{{0,{LONGEST_KEY - 1}}}")
PARAMETER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[ -~]*$"},
    "description": (
        "Idempotency key: a repeated request with the same key is not carried out again, and gets"
        " the answer of the first one."
    ),
}
REPLAYED = "Idempotent-Replayed"


async def once(
    request: BoundedRequest,
    shown_once: Collection[str],
    act: Callable[[], Awaitable[Response]],
) -> Response:
    """Return the answer of *act*, or the kept answer of the first request with the same key.

    Fields in *shown_once* are null in a kept answer: secrets are not stored.
    """
    sent = request.headers.get("idempotency-key")
    if sent is None:
        return await act()
    if _KEY.fullmatch(sent) is None:
        raise ProblemError(
            422,
            "invalid_request",
            "Fields of the request are invalid. Nothing was done.",
            "Correct the listed fields.",
            errors=[(HEADER, f"must be 1 to {LONGEST_KEY} printable ASCII characters")],
        )
    caller: Caller = request.state.caller
    found = await run_in_threadpool(_claim, caller, sent, await _hash(request, caller))
    if isinstance(found, KeptAnswer):
        headers = {REPLAYED: "true"}
        if found.location is not None:
            headers["Location"] = found.location
        return Response(found.document, found.status, headers, "application/json")
    try:
        response = await act()
    except Exception as exc:
        if _changed_nothing(exc):
            await run_in_threadpool(found.release, caller.hf.store)
        raise
    await run_in_threadpool(found.keep, caller.hf.store, _answer(response, shown_once))
    return response


def _claim(caller: Caller, key: str, request_hash: str) -> RequestClaim | KeptAnswer:
    hours = caller.hf.settings.serve.idempotency_hours
    return claim_request(
        caller.hf.store,
        caller.org_id,
        key,
        request_hash,
        claim_token=caller.hf.ids.new(),
        keep=timedelta(hours=hours),
    )


async def _hash(request: BoundedRequest, caller: Caller) -> str:
    """What makes two requests the same one. The answer may be for the eyes of its caller only."""
    actor = caller.identity.actor
    body = await request.json() if await request.body() else None
    made = [
        *(str(actor.type), actor.id, caller.identity.role),
        *(request.method, request.scope["path"], request.url.query),
        json.dumps(body, sort_keys=True),
    ]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()


def _answer(response: Response, shown_once: Collection[str]) -> KeptAnswer:
    text = bytes(response.body).decode()
    if shown_once:
        document = json.loads(text)
        text = json.dumps({**document, **dict.fromkeys(shown_once)}, separators=(",", ":"))
    return KeptAnswer(response.status_code, text, response.headers.get("location"))


def _changed_nothing(exc: Exception) -> bool:
    """Whether a failed request is known to have changed nothing."""
    if isinstance(exc, HoldfastError):
        is_rolled_back = isinstance(exc, (StoreBusy, ReadTimeout))
        return is_rolled_back or STATUS[listed(type(exc), STATUS)] < 500
    # Every other refusal: fields that are invalid, or a problem of the API itself.
    return getattr(exc, "status", 0) < 500
