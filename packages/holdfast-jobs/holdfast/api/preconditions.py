"""The header If-Match: a change is made only to the version of an object that the caller has read.

The ETag of an object has two parts: one of its version, and one of the whole document. A change
compares the first part, because the second one also covers figures that change by themselves, such
as how many jobs wait in a queue.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from weakref import WeakValueDictionary

from fastapi import Request, Response

from holdfast.api.problems import ProblemError

HEADER = "If-Match"
PARAMETER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 1000, "pattern": "^[ -~]*$"},
    "description": "The ETag of the object: if it has another one, nothing is done (412).",
}
Read = Callable[[Request], Awaitable[Response]]


def etag_of(body: bytes, volatile: Collection[str] = ()) -> str:
    """Return the ETag of a document. Fields in *volatile* are not part of its version."""
    whole = hashlib.sha256(body).hexdigest()[:20]
    if not volatile:
        return f'"{whole}-{whole}"'
    document = {name: value for name, value in json.loads(body).items() if name not in volatile}
    version = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:20]
    return f'"{version}-{whole}"'


def with_etag(request: Request, response: Response, volatile: Collection[str] = ()) -> Response:
    """Return the response with an ETag, or 304 if the client has this document."""
    body = getattr(response, "body", None)
    if response.status_code != 200 or not body:
        return response
    etag = etag_of(body, volatile)
    response.headers["ETag"] = etag
    known = [tag.removeprefix("W/") for tag in _tags(request, "if-none-match")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers={"ETag": etag})
    return response


class Preconditions:
    """Checks If-Match of the changes of one application."""

    def __init__(self) -> None:
        # Changes of one object with If-Match come one after the other in this process.
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def hold(
        self, request: Request, path: str, read: Read, act: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the answer of *act* if the object at *path* is the one that If-Match names.

        *read* answers a GET of the object. Raises ProblemError.
        """
        wanted = _tags(request, "if-match")
        if not wanted:
            return await act()
        key = (id(asyncio.get_running_loop()), path)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            found = (await read(_as_get(request, path))).headers["ETag"]
            if "*" not in wanted and _version(found) not in map(_version, wanted):
                raise ProblemError(
                    412,
                    "precondition_failed",
                    "The object is not the version that If-Match names. Nothing was done.",
                    "Read the object again, then decide.",
                    {"ETag": found},
                )
            return await act()


def _tags(request: Request, header: str) -> list[str]:
    sent = ",".join(request.headers.getlist(header))
    return [tag.strip() for tag in sent.split(",") if tag.strip()]


def _version(tag: str) -> str:
    return tag.strip('"').partition("-")[0] if tag.startswith('"') else tag


def _as_get(request: Request, path: str) -> Request:
    """The GET of the object that a change is for, by the same caller."""
    headers = [(name, value) for name, value in request.scope["headers"] if name == b"host"]
    scope = {**request.scope, "method": "GET", "path": path, "query_string": b""}
    scope["headers"] = headers
    return Request(scope, _no_body)


async def _no_body() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}
