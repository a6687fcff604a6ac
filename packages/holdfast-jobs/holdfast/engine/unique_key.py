"""The unique key and the deadline of a request. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.clock import ms, write_instant
from holdfast.engine import validation
from holdfast.engine.due import read_delay

if TYPE_CHECKING:
    from holdfast.engine.request import JobRequest

MODES = ("active", "queued")


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The key of a job that may not be enqueued twice at a time."""

    text: str
    # Whether the key is free again as soon as a worker has claimed the job.
    until_claimed: bool = False
    # Whether a new job supersedes the waiting one; otherwise the waiting one is returned.
    replaces: bool = False
    debounce_ms: int | None = None
    debounce_limit_ms: int | None = None

    def is_held(self, state: str | None, lease_token: int | None) -> bool:
        """Whether a job in this state holds the key; None: there is no such job."""
        if self.until_claimed or self.replaces:
            return state == "queued" and lease_token == 0
        return state in ("queued", "processing", "batch_submitted")

    def due_at(self, now: datetime, waiting_since: datetime | None) -> datetime | None:
        """When a debounced job starts; *waiting_since* is the first enqueue of the series."""
        if self.debounce_ms is None:
            return None
        due = now + timedelta(milliseconds=self.debounce_ms)
        if waiting_since is None or self.debounce_limit_ms is None:
            return due
        return min(due, waiting_since + timedelta(milliseconds=self.debounce_limit_ms))


NOT_UNIQUE = UniqueKey("")


def read_unique_key(request: JobRequest, errors: dict[str, str]) -> UniqueKey:
    """Read the options of the unique key of a request."""
    debounce_ms = _length("debounce", request.debounce, errors)
    limit_ms = _length("debounce_limit", request.debounce_limit, errors)
    if request.unique_key is None:
        for name in ("replace", "debounce", "debounce_limit"):
            if getattr(request, name):
                errors[name] = "needs unique_key"
        return NOT_UNIQUE
    text = validation.text("unique_key", request.unique_key, errors)
    if request.unique not in MODES:
        errors["unique"] = f"must be {' or '.join(MODES)}"
    if request.unit_key is not None:
        errors["unique_key"] = "is not for jobs with a unit_key, which are unique for ever"
    if request.idempotency_key is not None:
        errors["unique_key"] = "cannot be combined with idempotency_key, which is unique for longer"
    if not isinstance(request.replace, bool):
        errors["replace"] = "must be true or false"
    if debounce_ms is not None and request.not_before_at is not None:
        errors["debounce"] = "sets the time of the job; leave out delay, at and not_before_at"
    if debounce_ms is not None and request.scheduled_for is not None:
        errors["debounce"] = "cannot be combined with scheduled_for"
    if limit_ms is not None and debounce_ms is None:
        errors["debounce_limit"] = "needs debounce"
    elif limit_ms is not None and debounce_ms is not None and limit_ms < debounce_ms:
        errors["debounce_limit"] = "must not be shorter than debounce"
    return UniqueKey(
        text or "",
        until_claimed=request.unique == "queued",
        replaces=bool(request.replace) or debounce_ms is not None,
        debounce_ms=debounce_ms,
        debounce_limit_ms=limit_ms,
    )


def read_deadline(request: JobRequest, now: datetime, errors: dict[str, str]) -> str | None:
    """The deadline of a request as it is stored. A deadline that has passed is an error."""
    found = validation.instant("deadline", request.deadline, now, errors)
    if found is None or request.deadline is None:
        return None
    if request.deadline <= now:
        errors["deadline"] = "has passed"
    elif request.not_before_at is not None and request.not_before_at >= request.deadline:
        errors["deadline"] = "is not after the time when the job is due"
    return found if "deadline" not in errors else write_instant(now)


def _length(name: str, value: object, errors: dict[str, str]) -> int | None:
    if value is None:
        return None
    try:
        return ms(read_delay(value))
    except ValueError as exc:
        errors[name] = str(exc)
        return None
