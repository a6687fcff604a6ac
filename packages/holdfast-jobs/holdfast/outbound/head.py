"""The head of an answer, recorded while it is read. Pure.

The status is known from the first line. A later failure in a header, the framing or the body does
not change it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Longer heads are truncated; the status is in the first line.
LONGEST_HEAD = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-5][0-9][0-9])(?=[ \r\n])")


class Head:
    """The part of an answer read so far, and the time limits for reading.

    *head_seconds* bounds the wait for the status, counted from the first read. *body_seconds*
    bounds everything after it.
    """

    def __init__(self, *, head_seconds: float, body_seconds: float) -> None:
        self._head_seconds = head_seconds
        self._body_seconds = body_seconds
        self._until: float | None = None
        self._bytes = bytearray()
        self.status: int | None = None

    def seconds_left(self, now: float) -> float:
        """The time limit for the next read; zero or less if it has passed."""
        if self._until is None:
            self._until = now + self._head_seconds
        return self._until - now

    def add(self, data: bytes, now: float) -> None:
        """Record data that was read."""
        if len(self._bytes) < LONGEST_HEAD:
            self._bytes += data[: LONGEST_HEAD - len(self._bytes)]
        if self.status is None:
            self.status = self._find_status()
            if self.status is not None:
                self._until = now + self._body_seconds

    def _find_status(self) -> int | None:
        """The status of the final answer, after interim answers (1xx)."""
        while found := _STATUS.match(self._bytes.lstrip(b"\r\n")):
            status = int(found[1])
            if status >= 200:
                return status
            _, end, rest = self._bytes.partition(b"\r\n\r\n")
            if not end:
                return None
            self._bytes = bytearray(rest)
        return None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that were read completely, with names in lower case."""
        text, is_over, _ = bytes(self._bytes).partition(b"\r\n\r\n")
        lines = text.split(b"\n")
        found: dict[str, str] = {}
        # The last line may be incomplete.
        for line in lines[1:] if is_over else lines[1:-1]:
            name, colon, value = line.partition(b":")
            if colon:
                key = name.strip().decode("latin-1").lower()
                found.setdefault(key, value.strip().decode("latin-1"))
        return found
