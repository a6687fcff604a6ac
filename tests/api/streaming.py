"""An event stream of the application in this process, read event by event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode


@dataclass(frozen=True)
class Sent:
    """One event, or a heartbeat without a name."""

    id: str | None
    event: str | None
    data: Any


class Stream:
    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.started = asyncio.Event()
        self.gone = asyncio.Event()
        self.last_id: str | None = None
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._text = ""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            self.started.set()
            return
        if message.get("body"):
            await self._parts.put(message["body"])
        if not message.get("more_body"):
            await self._parts.put(None)

    async def next(self, *, named: bool = True) -> Sent | None:
        """The next event, by default one with a name; None at the end of the stream."""
        while True:
            while "\n\n" not in self._text:
                part = await asyncio.wait_for(self._parts.get(), 60)
                if part is None:
                    return None
                self._text += part.decode()
            block, _, self._text = self._text.partition("\n\n")
            fields = dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":")
            self.last_id = fields.get("id", self.last_id)
            if "event" in fields or not named:
                data = fields.get("data")
                return Sent(
                    fields.get("id"),
                    fields.get("event"),
                    None if data is None else json.loads(data),
                )

    async def body(self) -> Any:
        found = b""
        while (part := await asyncio.wait_for(self._parts.get(), 60)) is not None:
            found += part
        return json.loads(found)


@asynccontextmanager
async def open_stream(
    app: Any,
    path: str,
    query: list[tuple[str, str]] | None = None,
    headers: dict[str, str] | None = None,
) -> AsyncIterator[Stream]:
    """Open a stream, and leave it as a client that closes its connection."""
    stream = Stream()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query or []).encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    has_begun = False

    async def receive() -> Any:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await stream.gone.wait()
        return {"type": "http.disconnect"}

    task = asyncio.ensure_future(app(scope, receive, stream.send))
    await asyncio.wait_for(stream.started.wait(), 60)
    try:
        yield stream
    finally:
        stream.gone.set()
        await asyncio.wait_for(task, 60)
