"""The head of an answer, noted as it is read. Pure.

The status of an answer is known with its first line. Whatever fails behind it, a header, the
framing or the body, does not take it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# More headers than this are noise; the status is in the first line.
LONGEST_HEAD = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-5][0-9][0-9])(?=[ \r\n])")


class Head:
    """What was read of one answer so far, and for how long reading may go on.

    *head_seconds* bound the wait for the status, counted from the first read. *body_seconds* bound
    everything behind it.
    """

    def __init__(self, *, head_seconds: float, body_seconds: float) -> None:
        self._head_seconds = head_seconds
        self._body_seconds = body_seconds
        self._until: float | None = None
        self._bytes = bytearray()
        self.status: int | None = None

    def seconds_left(self, now: float) -> float:
        """How long the next read may take; zero or less if the time is over."""
        if self._until is None:
            self._until = now + self._head_seconds
        return self._until - now

    def add(self, data: bytes, now: float) -> None:
        """Note what was read."""
        if len(self._bytes) < LONGEST_HEAD:
            self._bytes += data[: LONGEST_HEAD - len(self._bytes)]
        if self.status is None:
            self.status = self._find_status()
            if self.status is not None:
                self._until = now + self._body_seconds

    def _find_status(self) -> int | None:
        """The status of the final answer; hints and interim answers (1xx) come before it."""
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
        """The headers of which the whole line was read, with names in lower case."""
        text, is_over, _ = bytes(self._bytes).partition(b"\r\n\r\n")
        lines = text.split(b"\n")
        found: dict[str, str] = {}
        # Without its end the last line may be half of one.
        for line in lines[1:] if is_over else lines[1:-1]:
            name, colon, value = line.partition(b":")
            if colon:
                key = name.strip().decode("latin-1").lower()
                found.setdefault(key, value.strip().decode("latin-1"))
        return found
