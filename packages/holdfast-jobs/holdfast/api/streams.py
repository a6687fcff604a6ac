"""Event streams: server-sent events from a subscription, with an end that clients understand.

An event has the position of the feed as its id. A browser sends it back as ``Last-Event-ID`` and
continues there. A heartbeat keeps the connection open and moves the position as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Annotated, Any

from fastapi import Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from holdfast.api.authentication import COOKIE, Authentication
from holdfast.api.caller import Caller
from holdfast.api.head import HEAD_ONLY
from holdfast.api.problems import ProblemError
from holdfast.errors import StoreError
from holdfast.operate.access import AccessDenied, Identity, find_key, find_session
from holdfast.operate.changes import Change, FeedClosed, FeedEnded, FeedLagged, Subscription

HEARTBEAT_SECONDS = 15.0
# How often a stream without events checks that its key is still valid.
CHECK_SECONDS = 5.0
# Before it sends an event, a stream checks its key unless that was done so recently.
FRESH_SECONDS = 1.0
RETRY_MS = 2_000
# Open streams of one process.
MOST_STREAMS = 4_096
MEDIA_TYPE = "text/event-stream"

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=4_000,
        description="The id of the last event that the client has. A browser sends it itself.",
    ),
]
After = Annotated[
    str | None,
    Query(max_length=4_000, description="The same, for the first connection of a client."),
]
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events. The data of each is a JSON document.",
        # The fields of one event: readers of the document check each of them by it.
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
                }
            }
        },
    }
}

Rendered = tuple[Change, str, Any]
Render = Callable[[Sequence[Change]], Iterable[Rendered] | Awaitable[Iterable[Rendered]]]
"""Returns a change, the name of an event and its document or its text, for each event to send."""


class Admission:
    """Whether the caller of an open stream may still have it."""

    def __init__(self, request: Request, caller: Caller) -> None:
        self._request = request
        self._access: Authentication = request.app.state.authentication
        self._identity = caller.identity
        self._clock = caller.hf.clock.monotonic
        self._checked_at = self._clock()
        self._known: dict[str, tuple[float, asyncio.Future[bool]]] = (
            request.app.state.__dict__.setdefault("stream_admissions", {})
        )

    async def holds(self, *, within: float) -> bool:
        """Whether the key or the session is valid, checked at most *within* seconds ago."""
        now = self._clock()
        if now - self._checked_at < within:
            return True
        self._checked_at = now
        secret = self._request.headers.get("authorization") or self._request.cookies.get(COOKIE)
        if secret is None:
            return await self._access.given(self._request) == self._identity
        # One read serves all streams of a key, also if an event wakes them at the same moment.
        known = self._known.get(secret)
        if known is None or now - known[0] >= within or known[1].get_loop() is not _loop():
            if len(self._known) > MOST_STREAMS:
                self._known.clear()
            known = now, asyncio.ensure_future(run_in_threadpool(self._is_valid))
            self._known[secret] = known
        return await asyncio.shield(known[1])

    def _is_valid(self) -> bool:
        try:
            return self._find() == self._identity
        except AccessDenied:
            return False
        except StoreError:
            # Unknown now; the next check decides.
            return True

    def _find(self) -> Identity:
        store = self._access.hf.store
        sent = self._request.headers.get("authorization")
        if sent is not None:
            return find_key(store, sent.partition(" ")[2].strip())
        return find_session(store, self._request.cookies[COOKIE]).identity


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def open_stream(
    request: Request,
    caller: Caller,
    subscribe: Callable[[], Subscription],
    render: Render,
    *,
    pause: float = 0.0,
) -> Response:
    """Return the response that streams the changes of a subscription.

    With *pause* seconds the changes of such a time are rendered together.
    """
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    state = request.app.state.__dict__
    if state.get("streams", 0) >= MOST_STREAMS:
        raise ProblemError(
            503,
            "too_many_streams",
            "The server has reached its limit of open event streams.",
            "Connect again later.",
            {"Retry-After": "5"},
        )
    subscription = await run_in_threadpool(subscribe)
    if HEAD_ONLY in request.scope:
        subscription.close()
        return StreamingResponse(iter(()), media_type=MEDIA_TYPE, headers=headers)
    state["streams"] = state.get("streams", 0) + 1
    admission = Admission(request, caller)

    async def body() -> AsyncIterator[bytes]:
        try:
            async for part in _parts(subscription, admission, render, pause):
                yield part
        finally:
            subscription.close()
            state["streams"] -= 1

    return StreamingResponse(body(), media_type=MEDIA_TYPE, headers=headers)


async def _parts(
    subscription: Subscription, admission: Admission, render: Render, pause: float
) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MS}\nid: {subscription.position}\n\n".encode()
    idle = 0.0
    try:
        while True:
            changes = await _read(subscription, pause)
            within = FRESH_SECONDS if changes else CHECK_SECONDS
            if not await admission.holds(within=within):
                yield _event("end", {"reason": "access_ended"})
                return
            if changes:
                idle = 0.0
                yield await _render(subscription, changes, render)
                continue
            idle += CHECK_SECONDS
            if idle >= HEARTBEAT_SECONDS:
                idle = 0.0
                yield f": heartbeat\nid: {subscription.settle()}\n\n".encode()
    except FeedEnded as ended:
        yield _event("end", {"reason": _reason(ended)})


def _reason(ended: FeedEnded) -> str:
    match ended:
        case FeedLagged():
            return "too_slow"
        case FeedClosed():
            return "shutting_down"
        case _:
            return "ended"


async def _render(subscription: Subscription, changes: Sequence[Change], render: Render) -> bytes:
    sent = b""
    found = render(changes)
    for change, name, document in await found if isawaitable(found) else found:
        sent += _event(name, document, str(subscription.moved_past(change)))
    # Changes that the reader does not see move its position too.
    for change in changes:
        if not subscription.position.has_read(change.id):
            subscription.moved_past(change)
    return sent or f"id: {subscription.position}\n\n".encode()


def compact(document: Any) -> str:
    """A document as one line of JSON."""
    return json.dumps(document, separators=(",", ":"))


def _event(name: str, document: Any, position: str | None = None) -> bytes:
    """One event. JSON has no line breaks, so the data is one line."""
    head = "" if position is None else f"id: {position}\n"
    body = document if isinstance(document, str) else compact(document)
    return f"{head}event: {name}\ndata: {body}\n\n".encode()


async def _read(subscription: Subscription, pause: float) -> tuple[Change, ...]:
    changes = await subscription.aread(CHECK_SECONDS)
    if changes and pause:
        await asyncio.sleep(pause)
        changes += await subscription.aread(0)
    return changes
