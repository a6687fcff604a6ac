"""Request bodies: bounded in size, time and depth, uncompressed, and strict JSON."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from fastapi import Request
from starlette.types import Receive, Scope

from holdfast.api.problems import ProblemError
from holdfast.config.serve import ServeSettings
from holdfast.document import BadDocument

# A payload may be nested 32 levels deep; the request adds a few around it.
MAX_DEPTH = 40
# How much of a body is read and discarded before the answer that it is too large.
DISCARDED_BYTES = 32 * 1024 * 1024
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
# An escaped NUL, and not an escaped backslash before the letters u0000.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MISSING = object()


class BoundedRequest(Request):
    """A request whose body is read within the limits, and parsed once."""

    def __init__(self, scope: Scope, receive: Receive, limits: ServeSettings) -> None:
        super().__init__(scope, receive)
        self._limits = limits
        self._raw: bytes | None = None
        self._parsed: Any = _MISSING

    async def body(self) -> bytes:
        """The body. Raises ProblemError if it is too large, too slow or compressed."""
        if self._raw is None:
            refusal = self._check_headers()
            parts: list[bytes] = []
            try:
                async with asyncio.timeout(self._limits.body_seconds):
                    if await self._read(parts) > self._limits.body_limit_bytes:
                        refusal = refusal or self._too_large()
            except TimeoutError:
                refusal = refusal or self._too_slow()
            if refusal is not None:
                raise refusal
            self._raw = b"".join(parts)
        return self._raw

    async def json(self) -> Any:
        """The parsed body. Raises ProblemError if it is not strict JSON."""
        if self._parsed is _MISSING:
            try:
                self._parsed = parse(await self.body())
            except BadDocument as exc:
                raise ProblemError(
                    400,
                    "invalid_json",
                    f"The body {exc}.",
                    "Send one JSON document in UTF-8, without duplicate keys.",
                ) from None
        return self._parsed

    def _check_headers(self) -> ProblemError | None:
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            return ProblemError(
                415,
                "compressed_body",
                "Compressed request bodies are not accepted.",
                "Send the body without Content-Encoding.",
            )
        length = self.headers.get("content-length", "0")
        is_number = length.isascii() and length.isdigit()
        if is_number and int(length[:20]) > self._limits.body_limit_bytes:
            return self._too_large()
        return None

    async def _read(self, parts: list[bytes]) -> int:
        """Add the body to *parts* and return its size. What is beyond the limit is discarded.

        If a server answers and closes a connection with unread data, the network resets it, and the
        client does not get the answer. So a body that is too large is read as well, within reason.
        """
        size = 0
        async for part in self.stream():
            size += len(part)
            if size <= self._limits.body_limit_bytes:
                parts.append(part)
            elif size > max(DISCARDED_BYTES, self._limits.body_limit_bytes):
                break
            else:
                parts.clear()
        return size

    def _too_slow(self) -> ProblemError:
        return ProblemError(
            408,
            "body_too_slow",
            f"The body did not arrive within {self._limits.body_seconds:g} s.",
            "Send the request again, over a faster connection.",
            {"Connection": "close"},
        )

    def _too_large(self) -> ProblemError:
        return ProblemError(
            413,
            "body_too_large",
            f"The body is larger than {self._limits.body_limit_bytes} bytes.",
            "Send fewer items in one request.",
            {"Connection": "close"},
        )

    async def check_content(self) -> None:
        """Read a body and check that it is JSON by its type. Raises ProblemError."""
        raw = await self.body()
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if raw and kind != "application/json":
            raise ProblemError(
                415,
                "unsupported_media_type",
                "The body must be JSON.",
                "Send the body with Content-Type: application/json.",
            )
        if raw:
            await self.json()


def parse(raw: bytes) -> Any:
    """Parse a body: UTF-8, no duplicate keys, no NaN, bounded depth. Raises BadDocument."""
    _check_depth(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadDocument("is not UTF-8") from None
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite
        )
    except BadDocument:
        raise
    except (ValueError, RecursionError):
        # The message of the parser quotes nothing, and its position is of little use.
        raise BadDocument("is not valid JSON") from None
    if "\\u" in text:
        _check_unicode(value)
    return value


def _check_depth(raw: bytes) -> None:
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKETS.finditer(_TEXTS.sub(b"", raw)):
        depth += 1 if found[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise BadDocument(f"is nested deeper than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadDocument("has the same key twice in one object")
    return found


def _refuse(constant: str) -> Any:
    raise BadDocument(f"has {constant}, which JSON cannot hold")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise BadDocument("has a number that is too large")
    return value


def _check_unicode(value: Any) -> None:
    written = json.dumps(value, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        raise BadDocument("has a lone surrogate") from None
    if _NUL.search(written):
        raise BadDocument("has the character NUL")
