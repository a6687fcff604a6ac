"""Ids: UUIDv7 from an injected clock and random source, in order within one source."""

from __future__ import annotations

import random
import re
import threading
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import NewType

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError, InvalidArgument

JobId = NewType("JobId", str)
OrgId = NewType("OrgId", str)

_RAND_BITS = 74
# Steps of up to 60 bits: ids of one millisecond differ within their first 20 characters, so that an
# id can be abbreviated, and 16,000 ids fit into a millisecond.
_STEP_BYTES = 8
_STEP_BITS = 60
_LOW_MASK = (1 << 62) - 1
_LAST_MS = (1 << 48) - 1
_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


# The ids of names, as in RFC 9562. Both texts are part of stored ids and never change.
_NAMES = uuid.UUID("0198c0de-7000-7000-8000-6e616d656473")
_NAMED = re.compile(r"name:[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# A name without "name:" has a character that no UUID has, so that no part of an id is a name.
# The names that this process has read, by their ids.
_names: dict[str, str] = {}
_MOST_NAMES = 10_000


class MalformedId(HoldfastError, ValueError):
    """A value that must be a UUID is not one. Pass a UUID."""


class IdSource:
    """Generates UUIDv7 ids. The ids of one source are always in order."""

    def __init__(self, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._lock = threading.Lock()
        self._last_ms = 0
        self._low = 0

    def new(self) -> str:
        return self.take(1)[0]

    def take(self, count: int) -> list[str]:
        """Return *count* ids, in order."""
        with self._lock:
            now = int(self._clock.now().timestamp() * 1000)
            if now > self._last_ms:
                self._last_ms = now
                # The top bit stays free so that the counter has room to grow within the tick.
                self._low = self._rng.getrandbits(_RAND_BITS - 1)
            ids = []
            steps = self._rng.randbytes(_STEP_BYTES * count)
            for at in range(0, len(steps), _STEP_BYTES):
                step = int.from_bytes(steps[at : at + _STEP_BYTES])
                self._low += 1 + (step >> (8 * _STEP_BYTES - _STEP_BITS))
                if self._low >> _RAND_BITS:
                    self._last_ms += 1
                    self._low = self._rng.getrandbits(_RAND_BITS - 1)
                ids.append(_uuid7(self._last_ms, self._low))
            return ids


def _uuid7(unix_ms: int, low: int) -> str:
    head = f"{unix_ms:012x}"
    tail = f"{(0b10 << 62) | (low & _LOW_MASK):016x}"
    return f"{head[:8]}-{head[8:]}-7{low >> 62:03x}-{tail[:4]}-{tail[4:]}"


def shift(uuid7: str, by_ms: int) -> str:
    """The UUIDv7 shifted by *by_ms* milliseconds."""
    at = min(max(int(uuid7[:8] + uuid7[9:13], 16) + by_ms, 0), _LAST_MS)
    head = f"{at:012x}"
    return f"{head[:8]}-{head[8:]}{uuid7[13:]}"


def read_uuid(value: object) -> str:
    """The canonical text of a UUID, or of a name like ``name:acme``. Raises MalformedId."""
    if isinstance(value, uuid.UUID):
        return str(value)
    # Only one text form: UUID() accepts braces, blanks and underscores, and SQLite would treat two
    # texts of one id as two tenants.
    if isinstance(value, str) and _TEXT.fullmatch(value):
        return value.lower()
    if isinstance(value, str) and _NAMED.fullmatch(value):
        return named_id(value)
    raise MalformedId("must be a UUID, for example 0198c0de-7000-7000-8000-000000000001")


def read_named_id(value: object) -> str:
    """The id of a tenant or a project: a UUID, or a name like ``name:acme``. Raises MalformedId.

    A name needs its prefix, so that a mistyped UUID is never taken for a new tenant.
    """
    try:
        return read_uuid(value)
    except MalformedId as exc:
        raise MalformedId(f"{exc}, or a name such as name:acme") from None


def named_id(name: str) -> str:
    """The id of a tenant or project that has a name instead: the same name, the same id."""
    found = _derive(name)
    if len(_names) < _MOST_NAMES:
        _names[found] = name.removeprefix("name:")
    return found


@lru_cache(maxsize=1_000)
def _derive(name: str) -> str:
    return str(uuid.uuid5(_NAMES, name))


def has_names() -> bool:
    """Whether this process has derived an id from a name."""
    return bool(_names)


def name_of(found: str) -> str | None:
    """The name from which this process derived an id, if it did."""
    return _names.get(found)


def uuid_argument(name: str, value: object, read: Callable[[object], str] = read_uuid) -> str:
    """*read* an id that is an argument of a public call. Raises InvalidArgument that names it."""
    try:
        return read(value)
    except MalformedId as exc:
        raise InvalidArgument({name: str(exc)}) from None
