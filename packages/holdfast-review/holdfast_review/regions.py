"""The lines of a text that a search by names must scan. Pure and linear.

A secret that is found by its name is near that name. One pass finds the lines with a part of such a
name, 4 % of ordinary code. The patterns run only there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.secret_scan import lowered, word_pattern
from holdfast.sensitive import is_secret_name
from holdfast_review.secret_value import is_password_name

# Each name that is_secret_name accepts and each command of find_commands contains one of these.
_WORDS = (
    "pass", "pw", "secret", "token", "key", "auth", "cred", "cookie", "session", "sid", "sig",
    "bearer", "jwt", "dsn", "pin", "otp", "cvv", "cvc", "ssn", "psk", "connection", "redis-cli",
    "mysql", "mariadb", "identified", "login", "--user", "--proxy-user", "-u ", '-u"', "-u'", "-u=",
)  # fmt: skip
_WORD = re.compile(word_pattern(_WORDS))
# A value may precede its name, and a name may be on a line before its value.
_LINES_BEFORE, _LINES_BEHIND = 2, 3


class Regions:
    """A text and the positions of secret names in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans = list(_merged(text))
        # Code repeats its names.
        self._is_secret: dict[str, bool] = {}
        self._is_password: dict[str, bool] = {}

    def is_secret_name(self, name: str) -> bool:
        if (known := self._is_secret.get(name)) is None:
            known = self._is_secret[name] = is_secret_name(name)
        return known

    def is_password_name(self, name: str) -> bool:
        if (known := self._is_password.get(name)) is None:
            known = self._is_password[name] = is_password_name(name)
        return known

    def finditer(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern that begin in a region; they may end lines after it."""
        text = self.text
        for start, end in self.spans:
            behind = _line_end(text, end, _LINES_BEHIND)
            for found in pattern.finditer(text, start, behind):
                if found.start() > end:
                    break
                yield found


def _merged(text: str) -> Iterator[tuple[int, int]]:
    small = lowered(text)
    start = end = -1
    hit = _WORD.search(small)
    while hit is not None:
        begins = _line_start(text, hit.start(), _LINES_BEFORE)
        if begins > end:
            if end >= 0:
                yield start, end
            start = begins
        end = _line_end(text, hit.start(), 0)
        hit = _WORD.search(small, end)
    if end >= 0:
        yield start, end


def _line_start(text: str, at: int, more: int) -> int:
    start = text.rfind("\n", 0, at) + 1
    for _ in range(more):
        if start == 0:
            break
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _line_end(text: str, at: int, more: int) -> int:
    end = text.find("\n", at)
    for _ in range(more):
        if end < 0:
            break
        end = text.find("\n", end + 1)
    return end if end >= 0 else len(text)
