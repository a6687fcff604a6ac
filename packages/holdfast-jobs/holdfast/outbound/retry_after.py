"""Parse Retry-After headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_SECONDS = 86_400.0

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that an answer requests to wait, at most a day; None without a request.

    Names of *headers* are in lower case. A date is relative to the answer's own ``date``, which
    compensates for clock skew, or to *now* if there is none. Invalid values are ignored.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return min(float(milliseconds) / 1000, LONGEST_SECONDS)
    text = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(text):
        return min(float(text), LONGEST_SECONDS)
    until = _date(text)
    if until is None:
        return None
    seconds = (until - (_date(headers.get("date", "")) or now)).total_seconds()
    return min(max(seconds, 0.0), LONGEST_SECONDS)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
