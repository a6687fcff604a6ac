"""HEAD: the answer of a GET without its body. A plain ASGI middleware."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Set in the scope of such a request: an event stream has no end, so it must not begin.
HEAD_ONLY = "holdfast.head_only"


class HeadRequests:
    """Answers HEAD with the status and the headers of a GET of the same path.

    Routes declare GET only, so that each of them is one operation of the OpenAPI document.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET", HEAD_ONLY: True}, receive, send_without_body)
