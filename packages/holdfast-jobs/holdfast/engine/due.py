"""``delay=``, ``at=`` and ``expires_in=`` of an enqueue: when the job is due, and until when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.errors import InvalidJob

LONGEST = timedelta(days=366 * 5)
_LENGTH = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def read_delay(value: object) -> timedelta:
    """A delay: a timedelta, a number of seconds, or text like ``5m`` or ``1h30m``.

    Raises ValueError with the problem.
    """
    if isinstance(value, str):
        if len(value) > 40 or not _LENGTH.fullmatch(value):
            raise ValueError("must be a length of time like 90s, 5m, 2h or 1d")
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value))
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    else:
        raise ValueError("must be a timedelta, a number of seconds, or text like 5m")
    if not 0 <= seconds <= LONGEST.total_seconds():
        raise ValueError("must be from zero to five years")
    return timedelta(seconds=seconds)


def with_due_time(options: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """*options* with times instead of ``delay``, ``at`` and ``expires_in``. Raises InvalidJob."""
    found = dict(options)
    delay, at = found.pop("delay", None), found.pop("at", None)
    expires_in = found.pop("expires_in", None)
    if expires_in is not None:
        if found.get("deadline") is not None:
            raise InvalidJob({"expires_in": "cannot be combined with deadline"})
        try:
            found["deadline"] = now + read_delay(expires_in)
        except ValueError as exc:
            raise InvalidJob({"expires_in": str(exc)}) from None
    given = [name for name in ("delay", "at", "not_before_at") if options.get(name) is not None]
    if len(given) > 1:
        raise InvalidJob({given[0]: f"cannot be combined with {given[1]}"})
    if delay is not None:
        try:
            found["not_before_at"] = now + read_delay(delay)
        except ValueError as exc:
            raise InvalidJob({"delay": str(exc)}) from None
    if at is not None:
        if not isinstance(at, datetime) or at.tzinfo is None:
            says = "must be an aware datetime, for example datetime.now(UTC)"
            raise InvalidJob({"at": says})
        if abs(at - now) > LONGEST:
            raise InvalidJob({"at": "is more than five years away"})
        found["not_before_at"] = at
    return found
