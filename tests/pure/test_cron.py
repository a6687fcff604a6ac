"""Instants of crons and intervals, compared with every minute of every zone."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import cron as crons
from holdfast.cron import BadTiming, Timetable, parse_cron, read_every, read_zone

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = sorted(available_timezones() - {"Factory", "localtime"})


def ticks(cron: str, zone: str, start: datetime, days: float) -> list[datetime]:
    """The ticks of a cron in (start, start + days]."""
    found = []
    for tick in Timetable(cron, None, zone).after(start):
        if tick > start + timedelta(days=days):
            return found
        found.append(tick)
    return found


def local(found: list[datetime], zone: str) -> list[str]:
    return [f"{tick.astimezone(ZoneInfo(zone)):%m-%d %H:%M %z}" for tick in found]


# -- clock changes: Berlin jumps from 2 to 3 on 29 March 2026, back on 25 October


@pytest.mark.parametrize(
    ("cron", "on_the_day"),
    [
        ("30 2 * * *", ["03-29 03:00 +0200"]),
        ("0 2 * * *", ["03-29 03:00 +0200"]),
        ("*/15 2 * * *", ["03-29 03:00 +0200"]),
        ("0 3 * * *", ["03-29 03:00 +0200"]),
        ("0,30 1-3 * * *", ["03-29 01:00 +0100", "03-29 01:30 +0100", "03-29 03:00 +0200",
                            "03-29 03:30 +0200"]),
        ("30 * * * *", ["03-29 00:30 +0100", "03-29 01:30 +0100", "03-29 03:30 +0200",
                        "03-29 04:30 +0200"]),
        ("0 */2 * * *", ["03-29 00:00 +0100", "03-29 04:00 +0200"]),
        ("0 0-23 * * *", ["03-29 00:00 +0100", "03-29 01:00 +0100", "03-29 03:00 +0200",
                          "03-29 04:00 +0200"]),
    ],
)  # fmt: skip
def test_a_time_that_the_change_leaves_out_fires_once_right_after_it(
    cron: str, on_the_day: list[str]
) -> None:
    midnight = datetime(2026, 3, 29, tzinfo=BERLIN).astimezone(UTC)

    until_five = ticks(cron, "Europe/Berlin", midnight - MINUTE, 4 / 24)

    assert local(until_five, "Europe/Berlin") == on_the_day


@pytest.mark.parametrize(
    ("cron", "on_the_day"),
    [
        ("30 2 * * *", ["10-25 02:30 +0200"]),
        ("*/30 2 * * *", ["10-25 02:00 +0200", "10-25 02:30 +0200"]),
        ("0 3 * * *", ["10-25 03:00 +0100"]),
        ("30 * * * *", ["10-25 00:30 +0200", "10-25 01:30 +0200", "10-25 02:30 +0200",
                        "10-25 02:30 +0100", "10-25 03:30 +0100", "10-25 04:30 +0100"]),
        ("0 */2 * * *", ["10-25 00:00 +0200", "10-25 02:00 +0200", "10-25 02:00 +0100",
                         "10-25 04:00 +0100"]),
        ("0 0-23 * * *", ["10-25 00:00 +0200", "10-25 01:00 +0200", "10-25 02:00 +0200",
                          "10-25 02:00 +0100", "10-25 03:00 +0100", "10-25 04:00 +0100"]),
    ],
)  # fmt: skip
def test_a_time_that_comes_twice_fires_once_for_a_fixed_hour_and_each_time_for_any_hour(
    cron: str, on_the_day: list[str]
) -> None:
    midnight = datetime(2026, 10, 25, tzinfo=BERLIN).astimezone(UTC)

    until_five = ticks(cron, "Europe/Berlin", midnight - MINUTE, 6 / 24)

    assert local(until_five, "Europe/Berlin") == on_the_day


def test_a_day_that_a_zone_leaves_out_fires_at_its_end() -> None:
    # Samoa went from 29 to 31 December 2011.
    found = ticks("0 12 * * *", "Pacific/Apia", datetime(2011, 12, 29, tzinfo=UTC), 2.5)

    assert local(found, "Pacific/Apia") == [
        "12-29 12:00 -1000",
        "12-31 00:00 +1400",
        "12-31 12:00 +1400",
    ]


def test_dates_that_overlap_at_midnight_lose_no_tick() -> None:
    # Newfoundland went back at a minute past midnight, from 7 to 6 November 2010.
    found = ticks("*/30 * * * *", "America/St_Johns", datetime(2010, 11, 7, 2, tzinfo=UTC), 2 / 24)

    assert local(found, "America/St_Johns") == [
        "11-07 00:00 -0230",
        "11-06 23:30 -0330",
        "11-07 00:00 -0330",
        "11-07 00:30 -0330",
    ]


# -- compared with every minute


def changes(zone: str, year: int) -> list[date]:
    """The dates of a year on which a zone changes its clocks."""
    days = [datetime(year, 1, 1, tzinfo=UTC) + n * DAY for n in range(367)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    return [day.date() for day, (a, b) in zip(days, pairwise(offsets), strict=False) if a != b]


def every_minute(zone: str, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Each minute, and the local time."""
    info = ZoneInfo(zone)
    while start <= end:
        yield start, start.astimezone(info).replace(tzinfo=None, fold=0)
        start += MINUTE


def by_looking(cron: str, zone: str, start: datetime, days: int) -> list[datetime]:
    """The ticks in (start, start + days], found without any of the code under test.

    The local time is read minute by minute from two days before to two days after.
    """
    minute, hour, *_ = cron.split()
    minutes, hours = _plain(minute, 59), _plain(hour, 23)
    shown = list(every_minute(zone, start - 2 * DAY, start + (days + 2) * DAY))
    if hour.startswith("*") or len(hours) == 24:
        found = {at for at, wall in shown if wall.hour in hours and wall.minute in minutes}
    else:
        first: dict[datetime, datetime] = {}
        for at, wall in shown:
            first.setdefault(wall, at)
        jumps = [(a[1], b[1], b[0]) for a, b in pairwise(shown) if b[1] - a[1] > MINUTE]
        found = set()
        day = shown[0][1].replace(hour=0, minute=0) + DAY
        while day < shown[-1][1] - DAY:
            for wanted in (day.replace(hour=h, minute=m) for h in hours for m in minutes):
                over = [at for low, high, at in jumps if low < wanted < high]
                found.update([first[wanted]] if wanted in first else over[:1])
            day += DAY
    return sorted(at for at in found if start < at <= start + days * DAY)


def _plain(text: str, high: int) -> set[int]:
    """The values of a field in the few forms that :func:`expressions` writes."""
    if text.startswith("*"):
        return set(range(0, high + 1, int(text[2:] or 1)))
    if "-" in text:
        low, _, last = text.partition("-")
        return set(range(int(low), int(last) + 1))
    return {int(part) for part in text.split(",")}


@st.composite
def expressions(draw: st.DrawFn) -> str:
    minute = draw(
        st.one_of(
            st.integers(0, 59).map(str),
            st.sampled_from(["*", "*/7", "*/15", "0,30", "5-9"]),
        )
    )
    hour = draw(
        st.one_of(
            st.integers(0, 4).map(str),
            st.integers(20, 23).map(str),
            st.sampled_from(["*", "*/2", "*/5", "0-23", "1-3", "0,1,2", "22-23"]),
        )
    )
    return f"{minute} {hour} * * *"


@st.composite
def places(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and a moment shortly before one of its changes, if it has any that year."""
    zone = draw(st.sampled_from(ZONES))
    year = draw(st.integers(1975, 2037))
    days = changes(zone, year) or [date(year, 1, 1) + timedelta(days=draw(st.integers(0, 364)))]
    day = draw(st.sampled_from(days))
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return zone, moment + timedelta(minutes=draw(st.integers(-2000, 1500)))


@given(place=places(), cron=expressions())
def test_in_every_zone_the_ticks_are_those_that_the_clock_on_the_wall_shows(
    place: tuple[str, datetime], cron: str
) -> None:
    zone, start = place

    found = ticks(cron, zone, start, 1)

    assert found == by_looking(cron, zone, start, 1)
    assert all(a < b for a, b in pairwise(found))


@given(place=places(), cron=expressions(), seed=st.integers(0, 2**32))
def test_the_ticks_are_the_same_from_wherever_one_begins(
    place: tuple[str, datetime], cron: str, seed: int
) -> None:
    zone, start = place
    whole = ticks(cron, zone, start, 4)
    rng = random.Random(seed)

    for _ in range(5):
        later = start + timedelta(seconds=rng.randrange(3 * 86_400))
        assert ticks(cron, zone, later, 1) == [t for t in whole if later < t <= later + DAY]
    for tick, following in pairwise(whole[:20]):
        assert next(Timetable(cron, None, zone).after(tick)) == following


def clocks(year: int) -> list[str]:
    """One zone for each clock that runs differently from the others in a year."""
    # Zones change their clocks on the same weekday, whole weeks apart.
    days = [datetime(year, 1, 1, 12, tzinfo=UTC) + n * DAY for n in range(0, 365, 5)]
    found = {
        tuple(day.astimezone(ZoneInfo(zone)).utcoffset() for day in days): zone for zone in ZONES
    }
    return sorted(found.values())


def test_on_every_clock_a_daily_time_fires_once_for_each_date_of_a_year() -> None:
    first = datetime(2024, 1, 1, 12, tzinfo=UTC)
    for number, zone in enumerate(clocks(2024)):
        cron = f"{number % 60} {number % 4} * * *"
        found = list(islice(Timetable(cron, None, zone).after(first), 366))

        dates = Counter(tick.astimezone(ZoneInfo(zone)).date() for tick in found)
        assert all(a < b for a, b in pairwise(found)), zone
        assert set(dates.values()) == {1}, zone
        assert max(dates) - min(dates) == timedelta(days=365), zone


# -- the fields


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 12 * * MON", ["02-02", "02-09", "02-16"]),
        ("0 12 * * 7", ["02-01", "02-08", "02-15"]),
        ("0 12 * * fri-sun", ["02-01", "02-06", "02-07"]),
        ("0 12 1,15 * *", ["02-01", "02-15", "03-01"]),
        ("0 12 13 * 5", ["02-06", "02-13", "02-20"]),
        ("0 12 5-5/2 * *", ["02-05", "03-05", "04-05"]),
        ("0 12 */10 * 1", ["05-11", "06-01", "08-31"]),
        ("0 12 31 * *", ["03-31", "05-31", "07-31"]),
        ("0 12 L * *", "day of the month"),
        ("0 12 29 feb *", ["02-29", "02-29", "02-29"]),
        ("0 12 1 jan-dec/6 *", ["07-01", "01-01", "07-01"]),
        ("@monthly", ["02-01", "03-01", "04-01"]),
        ("  @Daily ", ["02-01", "02-02", "02-03"]),
    ],
)
def test_the_days_of_a_cron(cron: str, expected: list[str] | str) -> None:
    def look() -> list[str]:
        start = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
        return [f"{at:%m-%d}" for at in islice(Timetable(cron, None, "UTC").after(start), 3)]

    if isinstance(expected, str):
        with pytest.raises(BadTiming, match=expected):
            look()
    else:
        assert look() == expected


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 0 1--100000000 * *", "day of the month"),
        ("0 0 1-100000000 * *", "day of the month"),
        ("0-99999999999999999999/1 * * * *", "minute"),
        ("*/0 * * * *", "step"),
        ("*/99999999 * * * *", "minute"),
        ("60 * * * *", "0 to 59"),
        ("* 24 * * *", "0 to 23"),
        ("* * 0 * *", "1 to 31"),
        ("* * * 13 *", "1 to 12"),
        ("* * * * 8", "0 to 7"),
        ("5-1 * * * *", "ends before it begins"),
        ("* * * * MON#2", "day of the week"),
        ("* * * * ?", "day of the week"),
        ("1,,2 * * * *", "minute"),
        ("² * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("0 0 31 2 *", "never fires"),
        ("0 0 30 feb */2", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("* * * * * *", "it has 6"),
        ("", "it has 0"),
        ("@reboot", "it has 1"),
        ("* " * 10_000, "longer than"),
        ("1," * 200 + "1 * * * *", "longer than"),
        ("9" * 100_000, "longer than"),
        ("\x00 * * * *", "minute"),
    ],
)  # fmt: skip
def test_a_hostile_or_senseless_cron_is_refused_at_once(cron: str, says: str) -> None:
    took = []
    # The quickest of three: the machine may be busy with something else.
    for _ in range(3):
        began = time.perf_counter()
        with pytest.raises(BadTiming, match=says):
            parse_cron(cron)
        took.append(time.perf_counter() - began)

    assert min(took) < 0.010


def test_the_rarest_cron_is_found_quickly() -> None:
    began = time.perf_counter()
    found = next(
        Timetable("0 0 29 2 */7", None, "Pacific/Chatham").after(datetime(2026, 1, 1, tzinfo=UTC))
    )
    took = time.perf_counter() - began

    assert found.astimezone(ZoneInfo("Pacific/Chatham")).date() == date(2032, 2, 29)
    assert took < 1


def test_two_restrictions_of_the_day_make_a_cron_that_always_fires() -> None:
    # By the weekday, though no February has a 31st.
    found = next(Timetable("0 0 31 2 MON", None, "UTC").after(datetime(2026, 1, 1, tzinfo=UTC)))

    assert found == datetime(2026, 2, 2, tzinfo=UTC)


# -- zones


@pytest.mark.parametrize(
    "zone",
    ["Europe/Atlantis", "europe/../berlin", "../../etc/passwd", "/etc/localtime", "localtime",
     "right/Europe/Berlin", "posix/UTC", "Factory", "", " UTC", "UTC+2", "A" * 5_000, "E\x00",
     "é"],
)  # fmt: skip
def test_a_zone_that_is_no_iana_name_is_refused_with_examples(zone: str) -> None:
    with pytest.raises(BadTiming, match=r"IANA name such as UTC, Europe/Berlin"):
        read_zone(zone)


def test_utc_needs_no_database_of_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_database(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr("zoneinfo.ZoneInfo", no_database)

    assert read_zone("UTC") is UTC
    with pytest.raises(BadTiming, match="tzdata"):
        read_zone("Europe/Berlin")


# -- intervals


@pytest.mark.parametrize(
    ("text", "every_ms"),
    [("every 15m", 900_000), ("90s", 90_000), ("2h", 7_200_000), ("1d", 86_400_000),
     ("10s", 10_000), ("366d", 366 * 86_400_000)],
)  # fmt: skip
def test_an_interval_is_written_as_people_say_it(text: str, every_ms: int) -> None:
    assert read_every(text) == every_ms
    assert read_every(crons.write_every(every_ms)) == every_ms
    assert read_every(timedelta(milliseconds=every_ms)) == every_ms


@pytest.mark.parametrize(
    "text",
    ["9s", "367d", "0m", "1w", "m", "-5m", "1.5h", "15 minutes", "99999999999999d", "", "٣m"],
)
def test_an_interval_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadTiming):
        read_every(text)


@given(
    every_ms=st.integers(10_000, 366 * 86_400_000),
    anchor=st.none() | st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    at=st.datetimes(datetime(2015, 1, 1), datetime(2035, 1, 1)),  # noqa: DTZ001
)
def test_an_interval_counts_from_its_anchor_in_every_process(
    every_ms: int, anchor: datetime | None, at: datetime
) -> None:
    starts_at = None if anchor is None else anchor.replace(tzinfo=UTC)
    timetable = Timetable(None, every_ms, "UTC", starts_at)
    begun = at.replace(tzinfo=UTC)

    found = list(islice(timetable.after(begun), 5))

    base = starts_at or datetime(1970, 1, 1, tzinfo=UTC)
    assert all((tick - base) % timedelta(milliseconds=every_ms) == timedelta(0) for tick in found)
    assert found[0] > begun
    assert found[0] >= base
    assert found[0] - timedelta(milliseconds=every_ms) <= max(begun, base)
    assert [next(timetable.after(tick)) for tick in found[:-1]] == found[1:]


def test_nothing_fires_before_a_schedule_starts() -> None:
    starts_at = datetime(2026, 5, 1, 3, tzinfo=UTC)
    timetable = Timetable("0 3 * * *", None, "UTC", starts_at)

    assert timetable.next(datetime(2026, 1, 1, tzinfo=UTC)) == starts_at
    assert timetable.next(starts_at) == starts_at + DAY
