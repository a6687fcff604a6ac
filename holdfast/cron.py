"""When a schedule is due: cron expressions and intervals as instants. Pure.

A cron is computed in its zone and answered in UTC. Where clocks are changed, one rule decides by
the hour field:

* A fixed hour means the wall clock. A time that the change leaves out fires once, at the first
  instant after it; a time that comes twice fires the first time only.
* Any hour (``*``, ``*/2`` or all 24) means elapsed time. Every real instant that matches fires, so
  an hour that comes twice fires twice and one that is left out does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

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
    """A cron, interval or zone that cannot be used; the message says why."""


# -- cron expressions


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    first: int
    last: int
    words: str = ""

    def read(self, text: str) -> frozenset[int]:
        """The values that the text of this field stands for."""
        return frozenset(value for term in text.split(",") for value in self._term(term))

    def _term(self, term: str) -> range:
        match = _TERM.fullmatch(term)
        if match is None:
            raise BadTiming(f"has {term[:20]!r} as {self.name}; write it like 5, 1-5, */15 or 1,3")
        star, low_text, high_text, step_text = match.groups()
        low = self.first if star else self._value(low_text)
        if high_text is not None:
            high = self._value(high_text)
            # Friday to Sunday: a week ends with its seventh day.
            high = 7 if self is WEEKDAY and high == 0 < low else high
        else:
            high = self.last if star or step_text is not None else low
        if high < low:
            raise BadTiming(f"has {term!r} as {self.name}, which ends before it begins")
        step = 1 if step_text is None else int(step_text)
        if not 1 <= step <= self.last:
            raise BadTiming(f"has {term!r} as {self.name}; a step is from 1 to {self.last}")
        return range(low, high + 1, step)

    def _value(self, text: str) -> int:
        if text.upper() in (words := self.words.split()):
            return words.index(text.upper()) + self.first
        if not text.isdecimal() or not self.first <= int(text) <= self.last:
            raise BadTiming(
                f"has {text!r} as {self.name}; it goes from {self.first} to {self.last}"
            )
        return int(text)


_TERM = re.compile(r"(?:(\*)|([0-9A-Za-z]{1,3})(?:-([0-9A-Za-z]{1,3}))?)(?:/([0-9]{1,2}))?")

MINUTE = _Field("minute", 0, 59)
HOUR = _Field("hour", 0, 23)
DAY = _Field("day of the month", 1, 31)
MONTH = _Field("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
# Sunday is 0 and 7.
WEEKDAY = _Field("day of the week", 0, 7, "SUN MON TUE WED THU FRI SAT")

_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression that was understood."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    any_hour: bool

    def ticks(self, zone: tzinfo, after: datetime) -> Iterator[datetime]:
        """The instants after *after*, in order."""
        last, pending = after, set[datetime]()
        for day in self._days_from(after.astimezone(zone).date() - timedelta(days=2)):
            # Nothing of this date or a later one comes before this, whatever the zone: with a
            # change around midnight, the instants of two dates may be in each other's way.
            horizon = datetime.combine(day, time(), UTC) - _FARTHEST_EAST
            for tick in sorted(tick for tick in pending if tick < horizon):
                if tick > last:
                    last = tick
                    yield tick
            pending = {tick for tick in pending if tick >= horizon}
            pending.update(self._instants(day, zone))
        yield from sorted(tick for tick in pending if tick > last)

    def _days_from(self, first: date) -> Iterator[date]:
        """The dates on which it fires, to the end of the calendar."""
        for year in range(first.year, _LAST_YEAR):
            for month in range(first.month if year == first.year else 1, 13):
                if month not in self.months:
                    continue
                for number in range(1, _days_in(year, month) + 1):
                    day = date(year, month, number)
                    if day >= first and self._fires_on(day):
                        yield day

    def _fires_on(self, day: date) -> bool:
        numbered = day.day in self.days
        named = day.isoweekday() % 7 in self.weekdays
        return numbered or named if self.either_day else numbered and named

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
    """A cron of five fields, or one of the aliases. Raises BadTiming."""
    if len(text) > LONGEST_CRON:
        raise BadTiming(f"is longer than {LONGEST_CRON} characters")
    parts = ALIASES.get(text.strip().lower(), text).split()
    if len(parts) != 5:
        raise BadTiming(
            f"has {len(parts)} fields; write five: minute, hour, day of the month, month,"
            " day of the week, or one of " + ", ".join(ALIASES)
        )
    minute, hour, day, month, weekday = parts
    hours = HOUR.read(hour)
    found = Cron(
        minutes=tuple(sorted(MINUTE.read(minute))),
        hours=tuple(sorted(hours)),
        days=tuple(sorted(DAY.read(day))),
        months=MONTH.read(month),
        weekdays=frozenset(value % 7 for value in WEEKDAY.read(weekday)),
        # As cron has always had it: two restrictions widen each other, a star narrows nothing.
        either_day=not day.startswith("*") and not weekday.startswith("*"),
        any_hour=hour.startswith("*") or len(hours) == 24,
    )
    longest = max(_LONGEST_MONTHS[number - 1] for number in found.months)
    if found.days[0] > longest and not found.either_day:
        raise BadTiming(f"never fires: no such month has a day {found.days[0]}")
    return found


def _days_in(year: int, month: int) -> int:
    following = date(year + month // 12, month % 12 + 1, 1)
    return (following - timedelta(days=1)).day


# -- wall clocks


def _offset(wall: datetime, zone: tzinfo, fold: int) -> timedelta:
    found = wall.replace(tzinfo=zone, fold=fold).utcoffset()
    assert found is not None
    return found


def _steady_offset(day: date, zone: tzinfo) -> timedelta | None:
    """The offset of a date on which no clock is changed, or None. Nearly every date is one."""
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
    """The first instant at which the clock shows *wall*, or has just passed over it."""
    instant = _at(wall, zone, 0)
    if _exists(wall, instant, zone):
        return instant
    # The clock jumps over it. The jump lies between the two readings of the time that is not.
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
# They are in the folder, but name no place: leap seconds, doubles, whatever this machine is set to.
_NO_PLACE = re.compile(r"(?:right|posix)/.*|localtime|posixrules|Factory")


def read_zone(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises BadTiming."""
    if name == "UTC":
        # Without any database of zones there is still UTC.
        return UTC
    if not _ZONE.fullmatch(name) or _NO_PLACE.fullmatch(name):
        raise BadTiming(f"is {name[:40]!r}, which is no IANA name; {_LIKE}")
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as exc:
        raise BadTiming(
            f"is {name!r}, which this machine does not know; {_LIKE}. A machine without a database"
            " of time zones needs the package tzdata"
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
    """An interval as people write it."""
    for unit in "dhms":
        if every_ms % _UNIT_MS[unit] == 0:
            return f"{every_ms // _UNIT_MS[unit]}{unit}"
    return f"{every_ms / 1000:g}s"


# -- both


@dataclass(frozen=True, slots=True)
class Timetable:
    """A cron in a zone, or an interval; nothing before *starts_at*.

    An interval counts from *starts_at*, and from the epoch if there is none, so its ticks are the
    same whoever computes them.
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
