"""Cron expressions and intervals, and the instants at which they fire. Pure.

cronsim parses the fields and finds the dates. It gets wall-clock dates without a zone, because the
rule for clock changes here differs from Debian's, which cronsim follows. The hour field decides:

* A fixed hour means the wall clock. A time that the change skips fires once, at the first instant
  after the change; a time that occurs twice fires the first time only.
* Any hour (``*``, ``*/2`` or all 24) means elapsed time. Every instant that matches fires, so an
  hour that occurs twice fires twice and one that is skipped does not fire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from holdfast.clock import EPOCH, ms

LONGEST_CRON = 256
SHORTEST_EVERY_MS = 10_000
LONGEST_EVERY_MS = 366 * 86_400_000

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class BadTiming(ValueError):
    """An invalid cron expression, interval or zone; the message has the reason."""


# -- cron expressions


@dataclass(frozen=True, slots=True)
class _FieldSyntax:
    """The syntax of a field. cronsim accepts more, and its errors name only the field."""

    # A member of cronsim.cronsim.Field. Most commands read settings without a cron expression, so
    # cronsim and zoneinfo are imported on first use.
    field: str
    name: str
    first: int
    last: int

    def read(self, text: str) -> str:
        """The field in the form that cronsim accepts. Raises BadTiming."""
        return ",".join(self._term(term) for term in text.split(","))

    def _term(self, term: str) -> str:
        match = _TERM.fullmatch(term)
        if match is None:
            raise BadTiming(f"has {term[:20]!r} as {self.name}; write it like 5, 1-5, */15 or 1,3")
        star, low, high, step = match.groups()
        read = star or self._range(term, low, high)
        if step is None:
            return read
        if not 1 <= int(step) <= self.last:
            raise BadTiming(f"has {term!r} as {self.name}; a step is from 1 to {self.last}")
        # cronsim continues 5-5/2 to the end of the field, as it does with 5/2.
        return read if high and "-" not in read else f"{read}/{step}"

    def _range(self, term: str, low: str, high: str | None) -> str:
        first = self._value(low)
        if high is None:
            return f"{first}"
        last = self._value(high)
        if self.field == "DOW" and last == 0 < first:
            # A range such as FRI-SUN ends with Sunday as day 7. cronsim has Sunday as 0 there.
            last = 7
        if last < first:
            raise BadTiming(f"has {term!r} as {self.name}, which ends before it begins")
        return f"{first}-{last}" if first < last else f"{first}"

    def _value(self, text: str) -> int:
        from cronsim import CronSimError
        from cronsim.cronsim import Field

        try:
            return Field[self.field].int(text.upper())
        except CronSimError:
            raise BadTiming(
                f"has {text!r} as {self.name}; it goes from {self.first} to {self.last}"
            ) from None


_TERM = re.compile(r"(?:(\*)|([0-9A-Za-z]{1,3})(?:-([0-9A-Za-z]{1,3}))?)(?:/([0-9]{1,2}))?")
_FIELDS = (
    _FieldSyntax("MINUTE", "minute", 0, 59),
    _FieldSyntax("HOUR", "hour", 0, 23),
    _FieldSyntax("DAY", "day of the month", 1, 31),
    _FieldSyntax("MONTH", "month", 1, 12),
    # Sunday is 0 and 7.
    _FieldSyntax("DOW", "day of the week", 0, 7),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed cron expression. *dates* is the expression that fires at midnight of its days."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    dates: str
    any_hour: bool

    def ticks(self, zone: tzinfo, after: datetime) -> Iterator[datetime]:
        """The instants after *after*, in order."""
        last, pending = after, set[datetime]()
        for day in self._dates_from(after.astimezone(zone).date() - timedelta(days=2)):
            # In any zone, no instant of this date or a later one is before the horizon. When
            # clocks change around midnight, the instants of two dates can overlap.
            horizon = datetime.combine(day, time(), UTC) - _FARTHEST_EAST
            for tick in sorted(tick for tick in pending if tick < horizon):
                if tick > last:
                    last = tick
                    yield tick
            pending = {tick for tick in pending if tick >= horizon}
            pending.update(self._instants(day, zone))
        yield from sorted(tick for tick in pending if tick > last)

    def _dates_from(self, first: date) -> Iterator[date]:
        """The dates on which it fires, to the end of the calendar."""
        from cronsim import CronSim

        midnight = datetime.combine(first, time())
        with suppress(OverflowError):
            for found in CronSim(self.dates, midnight - timedelta(seconds=1)):
                if found.year >= _LAST_YEAR:
                    return
                yield found.date()

    def _instants(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        offset = _steady_offset(day, zone)
        for hour in self.hours:
            for minute in self.minutes:
                wall = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001
                if offset is not None:
                    yield (wall - offset).replace(tzinfo=UTC)
                elif self.any_hour:
                    yield from _every_instant(wall, zone)
                else:
                    yield _first_instant(wall, zone)


_LAST_YEAR = 9990
_FARTHEST_EAST = timedelta(hours=16)


@lru_cache(maxsize=1_000)
def parse_cron(text: str) -> Cron:
    """A cron expression of five fields, or one of the aliases. Raises BadTiming."""
    from cronsim import CronSim, CronSimError
    from cronsim.cronsim import Field

    if len(text) > LONGEST_CRON:
        raise BadTiming(f"is longer than {LONGEST_CRON} characters")
    parts = ALIASES.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise BadTiming(
            "must have five fields: minute, hour, day of the month, month, day of the week; it has"
            f" {len(parts)}. Or use one of " + ", ".join(ALIASES)
        )
    fields = [syntax.read(part) for syntax, part in zip(_FIELDS, parts, strict=True)]
    try:
        found = CronSim(" ".join(fields), _ANY_MOMENT)
    except CronSimError:
        # Each field is valid on its own. cronsim compares the days with the lengths of the months.
        days = sorted(Field.DAY.parse(fields[2]))
        raise BadTiming(f"never fires: no such month has a day {days[0]}") from None
    return Cron(
        minutes=tuple(sorted(found.minutes)),
        hours=tuple(sorted(found.hours)),
        dates=" ".join(("0", "0", *fields[2:])),
        any_hour=fields[1].startswith("*") or len(found.hours) == 24,
    )


_ANY_MOMENT = datetime(2000, 1, 1)  # noqa: DTZ001


# -- wall clocks


def _offset(wall: datetime, zone: tzinfo, fold: int) -> timedelta:
    found = wall.replace(tzinfo=zone, fold=fold).utcoffset()
    assert found is not None
    return found


def _steady_offset(day: date, zone: tzinfo) -> timedelta | None:
    """The offset of a date without a clock change, or None. Nearly every date has one."""
    begins = datetime.combine(day, time())
    ends = begins + timedelta(days=1)
    offset = _offset(begins, zone, 0)
    steady = offset == _offset(begins, zone, 1) == _offset(ends, zone, 0) == _offset(ends, zone, 1)
    return offset if steady else None


def _at(wall: datetime, zone: tzinfo, fold: int) -> datetime:
    return (wall - _offset(wall, zone, fold)).replace(tzinfo=UTC)


def _exists(wall: datetime, instant: datetime, zone: tzinfo) -> bool:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall


def _every_instant(wall: datetime, zone: tzinfo) -> Iterator[datetime]:
    """The instants at which the clock shows *wall*: none, one or two."""
    for fold in (0, 1):
        instant = _at(wall, zone, fold)
        if _exists(wall, instant, zone):
            yield instant


def _first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """The first instant at which the clock shows *wall* or has just skipped it."""
    instant = _at(wall, zone, 0)
    if _exists(wall, instant, zone):
        return instant
    # The clock skips this time. The change lies between its two possible readings.
    before, behind = _at(wall, zone, 1), instant
    new = _zone_offset(behind, zone)
    while behind - before > timedelta(seconds=1):
        middle = before + (behind - before) // 2
        middle = middle.replace(microsecond=0)
        if _zone_offset(middle, zone) == new:
            behind = middle
        else:
            before = middle
    return behind


def _zone_offset(instant: datetime, zone: tzinfo) -> timedelta | None:
    return instant.astimezone(zone).utcoffset()


_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(/[A-Za-z0-9_+-]{1,30}){0,2}")
# Files of the folder that name no place: leap seconds, duplicates, the setting of this machine.
_NO_PLACE = re.compile(r"(?:right|posix)/.*|localtime|posixrules|Factory")


def read_zone(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises BadTiming."""
    if name == "UTC":
        # UTC works without a time zone database.
        return UTC
    if not _ZONE.fullmatch(name) or _NO_PLACE.fullmatch(name):
        raise BadTiming(f"is {name[:40]!r}, which is not an IANA time zone name; {_LIKE}")
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as exc:
        raise BadTiming(
            f"is {name!r}, which is not in this machine's time zone database; {_LIKE}. A machine"
            " without such a database needs the package tzdata"
        ) from exc


_LIKE = "write an IANA name such as UTC, Europe/Berlin or America/New_York"


# -- intervals

_EVERY = re.compile(r"(?:every +)?([0-9]{1,8}) ?([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_every(value: str | timedelta) -> int:
    """An interval such as ``15m`` in milliseconds. Raises BadTiming."""
    if isinstance(value, timedelta):
        every_ms = ms(value)
    else:
        match = _EVERY.fullmatch(value)
        if match is None:
            raise BadTiming(f"is {value[:40]!r}; write it like 90s, 15m, 2h or 1d")
        every_ms = int(match[1]) * _UNIT_MS[match[2]]
    if not SHORTEST_EVERY_MS <= every_ms <= LONGEST_EVERY_MS:
        raise BadTiming("must be from 10 seconds to 366 days")
    return every_ms


def write_every(every_ms: int) -> str:
    """An interval in its short text form, such as ``15m``."""
    for unit in "dhms":
        if every_ms % _UNIT_MS[unit] == 0:
            return f"{every_ms // _UNIT_MS[unit]}{unit}"
    return f"{every_ms / 1000:g}s"


# -- both


@dataclass(frozen=True, slots=True)
class Timetable:
    """A cron in a zone, or an interval; nothing before *starts_at*.

    An interval counts from *starts_at*, or else from the epoch, so every process computes the same
    ticks.
    """

    cron: str | None
    every_ms: int | None
    zone: str = "UTC"
    starts_at: datetime | None = None

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The ticks after *instant*, in order. Raises BadTiming."""
        if self.starts_at is not None and instant < self.starts_at:
            instant = self.starts_at - timedelta(microseconds=1)
        if self.cron is not None:
            return parse_cron(self.cron).ticks(read_zone(self.zone), instant)
        assert self.every_ms is not None
        return _multiples(self.starts_at or EPOCH, timedelta(milliseconds=self.every_ms), instant)

    def next(self, instant: datetime) -> datetime:
        """The first tick after *instant*."""
        return next(self.after(instant))


def _multiples(anchor: datetime, every: timedelta, after: datetime) -> Iterator[datetime]:
    tick = anchor + ((after - anchor) // every + 1) * every
    while True:
        yield tick
        tick += every
