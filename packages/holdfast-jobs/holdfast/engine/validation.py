"""Validators of the fields of a request. Each records its error in *errors* by field name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.actor import read_actor
from holdfast.clock import write_instant
from holdfast.document import BadDocument, canonical
from holdfast.engine.category import QUEUE
from holdfast.engine.job import DEAD_LETTER_QUEUE, SYSTEM, Actor, Priority
from holdfast.errors import InvalidArgument, SecretInPayload
from holdfast.ids import read_named_id, read_uuid
from holdfast.redact import harmless, redact
from holdfast.secret import find_secret

LIMIT_KEY = re.compile(r"[a-z0-9._:/-]{1,100}")
FARTHEST = timedelta(days=366 * 5)
_SHORT_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,500}")
# W3C: version ff and all-zero ids are invalid.
_TRACEPARENT = re.compile(
    r"(?!ff|.{3}0{32}|.{36}0{16})[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
)


def refuse_secret(payload: Mapping[str, Any]) -> None:
    place = find_secret(payload)
    if place is not None:
        says = f"contains something that looks like a secret at {place}; pass a reference to it"
        raise SecretInPayload({"payload": says})


def payload(value: object, limit: int, errors: dict[str, str]) -> str:
    if not isinstance(value, dict):
        if not isinstance(value, Mapping):
            errors["payload"] = f"must be an object, not {type(value).__name__}"
            return "{}"
        value = dict(value)
    try:
        text = canonical(value)
    except BadDocument as exc:
        # The message names a location in the payload by its keys, which come from the caller.
        errors["payload"] = redact(harmless(str(exc)), 300)
        return "{}"
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        errors["payload"] = f"is {size} bytes, the limit is {limit}; store it and pass a reference"
    return text


def uuid(name: str, value: object, errors: dict[str, str]) -> str:
    try:
        return read_uuid(value)
    except ValueError as exc:
        errors[name] = str(exc)
        return ""


def named_id(name: str, value: object, errors: dict[str, str]) -> str:
    """The id of a tenant or a project, given as a UUID or a name."""
    try:
        return read_named_id(value)
    except ValueError as exc:
        errors[name] = str(exc)
        return ""


def text(name: str, value: object, errors: dict[str, str], longest: int = 200) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > longest:
        errors[name] = f"must be text of 1 to {longest} characters"
    elif not _SHORT_TEXT.fullmatch(value):
        errors[name] = "must not contain control characters or lone surrogates"
    else:
        return value
    return None


def actor(value: object, errors: dict[str, str]) -> Actor:
    try:
        return read_actor(value)
    except InvalidArgument as exc:
        errors |= exc.fields
        return SYSTEM


def priority(value: object, default: Priority, errors: dict[str, str]) -> int:
    if value is None:
        return int(default)
    if isinstance(value, Priority):
        return int(value)
    if isinstance(value, str) and value.upper() in Priority.__members__:
        return int(Priority[value.upper()])
    errors["priority"] = "must be critical, high, normal or low"
    return int(default)


def queue(value: object, errors: dict[str, str], queues: Collection[str]) -> str:
    if not isinstance(value, str) or not QUEUE.fullmatch(value):
        errors["queue"] = "must look like 'q:default'"
    elif value == DEAD_LETTER_QUEUE:
        errors["queue"] = f"must not be {DEAD_LETTER_QUEUE}; it is reserved for dead letters"
    elif value not in queues:
        errors["queue"] = f"{value!r} is not registered; declare it with hf.queue({value!r})"
    return str(value)


def limit_key(value: object, errors: dict[str, str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and LIMIT_KEY.fullmatch(value):
        return value
    errors["limit_key"] = "must be 1 to 100 of the characters a-z, 0-9, '.', '_', ':', '/' and '-'"
    return ""


def attempts(value: object, default: int, errors: dict[str, str]) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        errors["max_attempts"] = "must be a whole number from 1 to 100"
        return default
    return value


def instant(name: str, value: object, now: datetime, errors: dict[str, str]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        errors[name] = "must be a datetime"
    elif value.tzinfo is None:
        errors[name] = "has no time zone; use an aware datetime, for example datetime.now(UTC)"
    # Subtraction works across time zones; converting the last day of the calendar to UTC does not.
    elif abs(value - now) > FARTHEST:
        errors[name] = "is more than five years away; it may be in milliseconds by mistake"
    else:
        return write_instant(value)
    return None


def traceparent(value: object, errors: dict[str, str]) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and _TRACEPARENT.fullmatch(value):
        return value
    errors["traceparent"] = "must be a W3C traceparent"
    return None
