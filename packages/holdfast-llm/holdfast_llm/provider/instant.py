"""Parse timestamps of providers. Pure; an invalid value gives None."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from holdfast_llm.provider.classify import get_int


def unix_instant(value: object) -> datetime | None:
    """Parse seconds since 1970."""
    seconds = get_int(int(value) if isinstance(value, float) and 0 < value < 10**10 else value)
    if seconds is None or not 0 < seconds < 10**10:
        return None
    return _instant(seconds)


# Answers of a batch end in the same seconds.
@lru_cache(maxsize=1_024)
def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def iso_instant(value: object) -> datetime | None:
    """Parse an ISO 8601 timestamp; UTC if it has no zone."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
