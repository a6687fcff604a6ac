"""Types of settings: their values, limits and error messages. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from typing import Any

from holdfast.clock import ms
from holdfast.cron import BadTiming, parse_cron, read_every, read_zone, write_every
from holdfast.errors import ConfigError
from holdfast.ids import read_uuid

QUEUE = re.compile(r"q:[a-z][a-z0-9_-]{0,49}")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
JOB_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
DEAD_LETTER_QUEUE = "q:deadletter"


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class SettingType:
    """The type of a setting. *must* completes the sentence "this setting must be …"."""

    must: str
    holds: Callable[[Any], bool]
    # Converts a file's value to the setting's value, and a variable's text to a file's value. Both
    # raise ValueError for invalid input.
    read: Callable[[Any], Any] = _as_it_is
    parse: Callable[[str], Any] = _as_it_is
    is_secret: bool = False
    # An address is displayed without its password, and not repeated in an error.
    is_address: bool = False


def setting(default: Any, kind: SettingType) -> Any:
    """Declare a validated dataclass field; None is allowed if it is the default."""
    return field(default=default, metadata={"kind": kind})


def rows(written: str, section: type) -> Any:
    """A list of sections, written as an array of tables."""
    kind = SettingType(
        f"a list of {written} tables",
        lambda v: isinstance(v, tuple) and all(isinstance(row, section) for row in v),
    )
    return field(default=(), metadata={"kind": kind, "rows": section})


def section(kind: type) -> Any:
    """A section: ``[name]`` in a file."""
    return field(default_factory=kind, metadata={"section": kind})


def table(
    kind: type,
    names: SettingType,
    built_in: Mapping[str, Any] | None = None,
    *,
    merges: bool = False,
    accepts: type | None = None,
    class_of_kind: Callable[[object], type | str] | None = None,
) -> Any:
    """Sections by name: ``[name.INNER]`` in a file.

    Missing keys of a section come from the section of the same name in *built_in*. With *merges*,
    the sections of *built_in* always exist. With *class_of_kind*, the key ``kind`` of a section
    selects its class, which must be one that the table *accepts*.
    """
    given = built_in or {}
    metadata = {
        "table": kind,
        "names": names,
        "built_in": given,
        "merges": merges,
        "accepts": accepts or kind,
        "class_of_kind": class_of_kind,
    }
    return field(default_factory=(lambda: dict(given)) if merges else dict, metadata=metadata)


class Section:
    """Base class of settings sections. The values are validated on construction."""

    __slots__ = ()

    def __post_init__(self) -> None:
        name = type(self).__name__
        refuse(f"Invalid {name}", problems_of(self))


def problems_of(section: Any) -> list[str]:
    """Return the problems of a section's values, one sentence each."""
    return [
        problem
        for item in fields(section)
        for problem in problems_of_value(item.name, item, getattr(section, item.name))
    ]


def problems_of_value(name: str, item: Field[Any], value: Any) -> list[str]:
    """Return the problems of one field's value, if the field has a type."""
    kind = item.metadata.get("kind")
    if kind is None or (value is None and item.default is None) or is_valid(kind, value):
        return []
    # An invalid default means that the key is required.
    is_left_out = value == item.default
    return [f"{name} is needed: {kind.must}" if is_left_out else error_message(name, value, kind)]


def is_valid(kind: SettingType, value: Any) -> bool:
    """Whether *value* is valid; a value of another type is not."""
    try:
        return kind.holds(value)
    except (TypeError, ValueError, AttributeError):
        return False


def error_message(name: str, value: Any, kind: SettingType) -> str:
    """Return "*name* = *value* must be …"; a value that may contain a secret is omitted."""
    shown = "" if kind.is_secret or kind.is_address else f" = {_short(value)}"
    return f"{name}{shown} must be {kind.must}{_timing_fault(kind, value)}"


def _timing_fault(kind: SettingType, value: Any) -> str:
    """Return the problem of a well-formed but invalid time."""
    try:
        kind.holds(kind.read(value))
    except BadTiming as exc:
        return f" (it {exc})"
    except (TypeError, ValueError, AttributeError):
        pass
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


class UnfitSettings(ConfigError):
    """Settings are invalid; *problems* lists every reason. Correct the settings that the message
    names."""

    def __init__(self, what: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(f"{what}: " + "; ".join(problems) + ".")


def refuse(what: str, problems: Iterable[str]) -> None:
    """Raise all problems as one error."""
    listed = list(problems)
    if listed:
        raise UnfitSettings(what, listed)


# -- value types


_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of events per number of seconds."""

    count: int
    seconds: int

    def __post_init__(self) -> None:
        if not all(_is_whole(value) and value >= 1 for value in (self.count, self.seconds)):
            count, seconds = repr(self.count)[:50], repr(self.seconds)[:50]
            raise ConfigError(f"A rate of {count} per {seconds} s allows no starts.")

    @classmethod
    def read(cls, text: str) -> Rate:
        """Parse a rate such as ``100/minute``. Raises ValueError otherwise."""
        found = re.fullmatch(r"([1-9]\d{0,8})\s*/\s*(second|minute|hour|day)", text)
        if found is None:
            raise ValueError(text)
        return cls(int(found[1]), _UNITS[found[2]])

    def __str__(self) -> str:
        unit = next((name for name, length in _UNITS.items() if length == self.seconds), None)
        return f"{self.count}/{unit}" if unit else f"{self.count}/{self.seconds}s"


def _length(value: Any) -> timedelta:
    """Convert a value of a file or of code to an interval. Raises BadTiming."""
    return timedelta(milliseconds=read_every(value))


@dataclass(frozen=True, slots=True)
class Cadence:
    """When something is due: at an interval, or by a cron expression."""

    every: timedelta | None = None
    cron: str | None = None

    def __post_init__(self) -> None:
        if (self.every is None) == (self.cron is None):
            raise ConfigError("A cadence is either an interval or a cron expression.")

    @classmethod
    def read(cls, text: str) -> Cadence:
        """Parse ``every 15m`` or ``*/15 * * * *``. Raises BadTiming otherwise."""
        if text.startswith("every "):
            return cls(every=_length(text))
        parse_cron(text)
        return cls(cron=text)

    def is_ever_due(self) -> bool:
        """Return True if the cadence has a next time. Raises BadTiming if it never has."""
        return (
            _length(self.every) == self.every if self.cron is None else bool(parse_cron(self.cron))
        )

    def __str__(self) -> str:
        return f"every {write_every(ms(self.every))}" if self.every is not None else str(self.cron)


# -- setting types


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(low: int, high: int | None = None, *, more: str = "") -> SettingType:
    """A whole number."""
    span = f"of {low:,} or more" if high is None else f"between {low:,} and {high:,}"
    return SettingType(
        f"a whole number {span}{more}",
        lambda v: _is_whole(v) and v >= low and (high is None or v <= high),
        parse=int,
    )


def cap(*, more: str) -> SettingType:
    """A limit. Zero is rejected, because it would stop all work; pause instead."""
    return whole(1, 1_000_000_000, more=more)


def number(low: float, high: float | None = None, *, more: str = "") -> SettingType:
    """A number; integers are accepted."""
    span = f"of {low:,.9g} or more" if high is None else f"between {low:,.9g} and {high:,.9g}"
    return SettingType(
        f"a number {span}{more}",
        lambda v: (
            (_is_whole(v) or isinstance(v, float))
            and math.isfinite(v)
            and v >= low
            and (high is None or v <= high)
        ),
        read=lambda v: float(v) if _is_whole(v) else v,
        parse=float,
    )


def text(
    must: str = "text",
    pattern: re.Pattern[str] | None = None,
    *,
    is_secret: bool = False,
    is_address: bool = False,
) -> SettingType:
    """Text that matches *pattern*, if given."""
    return SettingType(
        must,
        lambda v: isinstance(v, str) and (pattern is None or pattern.fullmatch(v) is not None),
        is_secret=is_secret,
        is_address=is_address,
    )


def one_of(words: Iterable[str]) -> SettingType:
    """One of these values."""
    known = tuple(words)
    return SettingType(" or ".join(f'"{word}"' for word in known), lambda v: v in known)


def texts(must: str, each: Callable[[str], bool], *, some: bool = False) -> SettingType:
    """A list of texts without repetition; *some* requires at least one."""

    def holds(values: Any) -> bool:
        return (
            isinstance(values, tuple)
            and all(isinstance(value, str) and each(value) for value in values)
            and len(set(values)) == len(values)
            and (bool(values) or not some)
        )

    return SettingType(must, holds, read=_tuple, parse=_split)


def seconds_list() -> SettingType:
    """A list of durations in seconds."""

    def holds(values: Any) -> bool:
        return (
            isinstance(values, tuple)
            and 1 <= len(values) <= 50
            and all(_is_whole(value) and 1 <= value <= 30 * 86_400 for value in values)
        )

    return SettingType(
        "a list of 1 to 50 whole numbers of seconds, each from 1 to 30 days", holds, _tuple
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _reading(kind: type, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else read(value)


FLAG = SettingType("true or false", lambda v: isinstance(v, bool))
RATE = SettingType(
    'a rate such as "100/minute" (per second, minute, hour or day)',
    lambda v: isinstance(v, Rate),
    _reading(Rate, Rate.read),
)
LENGTH = SettingType(
    'a length such as "30s", "15m", "2h" or "1d"',
    lambda v: isinstance(v, timedelta) and _length(v) == v,
    _reading(timedelta, _length),
)
CADENCE = SettingType(
    '"every 15m" (s, m, h or d) or a cron line of five fields such as "0 3 * * *"',
    lambda v: isinstance(v, Cadence) and v.is_ever_due(),
    _reading(Cadence, Cadence.read),
)
CRON = SettingType(
    'a cron line of five fields such as "0 3 * * *", or one of the names such as "@daily"',
    lambda v: parse_cron(v) is not None,
)
QUEUE_NAME = SettingType(
    'a queue such as "q:default", and not the dead letters',
    lambda v: QUEUE.fullmatch(v) is not None and v != DEAD_LETTER_QUEUE,
)
JOB_TYPE_NAME = text('a job type such as "report.export"', JOB_TYPE)
PLAIN_NAME = text("lower-case letters, digits, _ and -, beginning with a letter", NAME)
# The characters of a job's limit_key; otherwise a rule would match no job. A rule whose name ends
# with * applies to each key with that prefix.
KEY_NAME = text(
    "1 to 100 of the characters a-z, 0-9, '.', '_', ':', '/' and '-', and at the end perhaps '*'",
    re.compile(r"[a-z0-9._:/-]{1,100}|[a-z0-9._:/-]{1,99}\*"),
)


def _is_uuid(value: Any) -> bool:
    # Only the canonical form: two spellings of one tenant would be two rules.
    return isinstance(value, str) and read_uuid(value) == value


UUID = SettingType("a UUID in lower case", _is_uuid)


ZONE = SettingType(
    'a time zone such as "Europe/Berlin" or "UTC"', lambda v: read_zone(v) is not None
)
DOCUMENT = SettingType("a table", lambda v: isinstance(v, Mapping))
