"""Find facts in a rewrite that its original lacks: numbers, times, dates, names, currencies. Pure.

A rewrite is read strictly, in its own language. The original is read generously, in all languages,
because it may mix them or its language may be misdetected. So only facts that occur nowhere in the
original count as invented. `new_facts.toml` holds the words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from holdfast_rewrite.clock_times import NO_HOUR, Hours, around, hours_of, is_on_the_clock
from holdfast_rewrite.currencies import has_new_currency
from holdfast_rewrite.fact_table import fact_document, fact_table
from holdfast_rewrite.names import new_names
from holdfast_rewrite.normalize_text import normalize_text, plain
from holdfast_rewrite.numerals import Number, in_digits, in_parts, numerals, tables
from holdfast_rewrite.pattern import one_of, pattern, words
from holdfast_rewrite.spelling import with_spelling
from holdfast_rewrite.time_phrases import TimePhrase, times_in, without_times


class Invented(StrEnum):
    """The kind of an invented fact."""

    NUMBER = "invented_number"
    DATE = "invented_date"
    TIME = "invented_time"
    CURRENCY = "invented_currency"
    NAME = "invented_name"
    THING = "invented_thing"
    MENTION = "new_mention"
    MACHINE = "machine_words"


_KINDS = {
    "day": Invented.DATE,
    "month": Invented.DATE,
    "holiday": Invented.DATE,
    "clock": Invented.TIME,
    "thing": Invented.THING,
    "often": Invented.NUMBER,
    "machine": Invented.MACHINE,
}
# Pets, children and exams have more names than a table: "Klausur", "the little one".
_MANY_WORDS = frozenset({"thing.exam", "thing.child", "thing.mould", "thing.dog", "thing.cat"})
# Words with numeric equivalents.
_IN_NUMBERS = {"clock.midnight": {0, 12, 24}, "clock.noon": {12}, "often.twice": {2}}
_ON_THE_CLOCK: dict[str, Hours] = {
    "clock.midnight": frozenset({0}),
    "clock.noon": frozenset({12}),
}

_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
# Numeric equivalents of half, a quarter and half past.
_PARTS = frozenset({1, 2, 3, 4, 15, 25, 30, 33, 45, 50, 75, 90})
_FRACTION = re.compile(r"(?<=\d)[.,](?:25|5|75)(?!\d)")
_LAST_HOUR = 24
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Overlapping, because 10-16/11 ends with a date.
_DATE = re.compile(r"(?<![\d.,:/])(?=(\d{1,2})[./-](\d{1,2})(?![\d:]))")
# 14/09, 30.9. and 2025-09-30 are no times.
_SURE_DATE = re.compile(
    r"(?<![\d.,:/])(?:\d{1,2}/\d{1,2}(?:/\d{2,4})?|\d{1,2}\.(?:0?[1-9]|1[0-2])\.(?:\d{2,4})?"
    r"|\d{4}-\d\d-\d\d)(?![\d:/])"
)
# Its second half is a word for noon.
_AFTERNOON = re.compile(r"apres[\s-]+midi")
_MOST_WEEKS = 4
_LARGER_UNITS = (7, 12, 24, 60)
_MOST_UNITS = 6
_QUARTER = "quarter*|viertel*|cuartos|quarts|quarti|quartos|kwartier*|kwadrans*"

# The answer format, which must not occur in the text.
_FORM = re.compile(r"rewritten_text|output_language|```")


def invented(
    original: str, rewrite: str, locale: str, *, source: str | None = None
) -> tuple[Invented, ...]:
    """Return the kinds of facts in a *rewrite* in *locale* that its *original* lacks.

    *source* is the language of the original, for its abbreviations; by default the same.
    """
    said, given = _Text.read(rewrite), _Text.read(with_spelling(original))
    read_in = frozenset({source or locale, locale})
    found = {
        *_concepts(said, given, locale, read_in),
        *_numbers(said, given, locale, read_in),
        *((Invented.CURRENCY,) if has_new_currency(said.bare, given.bare, locale) else ()),
        *((Invented.NAME,) if new_names(said.raw, given.raw, locale) else ()),
        *_forms(said, given),
    }
    return tuple(kind for kind in Invented if kind in found)


@dataclass(frozen=True, slots=True)
class _Text:
    raw: str
    # Lower case, without diacritics.
    bare: str

    @classmethod
    def read(cls, raw: str) -> _Text:
        return cls(raw, plain(normalize_text(raw)))


# -- days, months, clock words, things, the machine's own words


def _concepts(
    said: _Text, given: _Text, locale: str, read_in: Collection[str]
) -> Iterator[Invented]:
    pattern = fact_table().concepts.get(locale)
    if pattern is None:
        return
    # A quarter to midnight is no midnight.
    given_times = times_in(given.bare, *_languages(read_in))
    known = [one for one in times_in(said.bare, locale) if any(map(one.means, given_times))]
    text = _AFTERNOON.sub(" ", without_times(said.bare, known))
    names = {found.lastgroup for found in pattern.finditer(text)} - {None}
    months = _months_in_digits(given.bare) | _months_of_holidays(given.bare)
    for group in names:
        concept = fact_table().names[str(group)]
        if concept in _holidays_of(given.bare, read_in):
            continue
        if fact_table().anywhere[concept].search(given.bare) or concept in months:
            continue
        short = (_abbreviated(language).get(concept) for language in read_in)
        if any(one.search(given.bare) for one in short if one):
            continue
        if concept in _IN_NUMBERS and _Held.read(given.bare, read_in).has(concept):
            continue
        yield Invented.MENTION if concept in _MANY_WORDS else _KINDS[concept.partition(".")[0]]


@cache
def _abbreviated(language: str) -> Mapping[str, re.Pattern[str]]:
    """Return the abbreviations of days and months by concept."""
    table = fact_document()["abbreviated"].get(language)
    if table is None:
        return {}
    after = pattern(table["after"])
    days = [f"day.{day}" for day in _DAYS]
    months = [f"month.{month}" for month in _MONTHS]
    found = {
        **dict(zip(days, words(table["days"]), strict=True)),
        **dict(zip(months, words(table["months"]), strict=True)),
    }
    # A weekend consists of its days.
    found["day.weekend"] = "|".join((table["weekend"], *(found[day] for day in days[5:])))
    return {concept: _short(said, after) for concept, said in found.items()}


def _short(said: str, after: str) -> re.Pattern[str]:
    """Match an abbreviation; one that is also a word only with a dot or after a preposition."""
    sure = [one for one in said.split("|") if not one.endswith(".")]
    unsure = [one[:-1] for one in said.split("|") if one.endswith(".")]
    found = [f"(?:{'|'.join(map(pattern, sure))})(?!\\w)"] if sure else []
    if unsure:
        either = "|".join(map(pattern, unsure))
        found.append(f"(?:{either})\\.|(?:{after})\\s+(?:{either})(?!\\w)")
    return re.compile(rf"(?<!\w)(?:{'|'.join(found)})")


def _months_in_digits(text: str) -> set[str]:
    """Return the months of dates in digits, in either order: 14.02., 2/14."""
    found = {int(part) for date in _DATE.finditer(text) for part in date.groups()}
    return {f"month.{_MONTHS[number - 1]}" for number in found if 1 <= number <= len(_MONTHS)}


def _days_of_holidays(text: str) -> set[tuple[int, int]]:
    """Return day and month of the holidays in a text."""
    return {
        day
        for concept, days in fact_table().dates.items()
        if fact_table().anywhere[concept].search(text)
        for day in days
    }


def _months_of_holidays(text: str) -> set[str]:
    return {f"month.{_MONTHS[month - 1]}" for _, month in _days_of_holidays(text)}


def _holidays_of(text: str, read_in: Collection[str]) -> set[str]:
    """Return the holidays whose date a text contains: 24 December, 1.5."""
    numbers = {number.value for number in (*in_digits(text), *in_parts(text))}
    for language in _languages(read_in):
        numbers |= {number.value for number in numerals()[language].possible(text)}
    months = _month_numbers(text, read_in)
    dates = {(int(one[1]), int(one[2])) for one in _DATE.finditer(text)}
    dates |= {(month, day) for day, month in dates}
    return {
        concept
        for concept, days in fact_table().dates.items()
        if any(day in dates or (day[0] in numbers and day[1] in months) for day in days)
    }


def _month_numbers(text: str, read_in: Collection[str]) -> set[int]:
    """Return the numbers of the months that a text names."""
    return {
        number
        for number, month in enumerate(_MONTHS, 1)
        if fact_table().anywhere[f"month.{month}"].search(text)
        or any(
            short[f"month.{month}"].search(text) for short in map(_abbreviated, read_in) if short
        )
    }


# -- numbers


def _numbers(
    said: _Text, given: _Text, locale: str, read_in: Collection[str]
) -> Iterator[Invented]:
    language = numerals().get(locale)
    given_times = times_in(given.bare, *_languages(read_in))
    held = _Held.read(given.bare, read_in, given_times)
    text = said.bare
    for time in times_in(text, locale):
        if not any(time.means(other) for other in given_times):
            is_unread = held.has_parts and not given_times and time.is_near(held.numbers)
            if not time.is_certain or is_unread:
                continue
            yield Invented.TIME
        text = without_times(text, [time])
    for quarters in _quarters().finditer(text):
        if _QUARTERS[quarters["n"]] in held.numbers:
            text = text.replace(quarters[0], " ")
    # One and a half is also 1.5.
    text = _FRACTION.sub("", text) if _part().search(given.bare) else text
    found = (*in_digits(text), *(language.claimed(text) if language else ()))
    # Zero minutes are no information.
    claimed = [number for number in found if number.value]
    dated = _dated(text) | _days_of_months(text)
    for number in claimed:
        is_hour = number.value not in dated and is_on_the_clock(number, locale)
        hours = hours_of(number) if is_hour else NO_HOUR
        if held.says_otherwise(hours):
            yield Invented.TIME
        elif not held.has_hour(hours) and not held.may_count(number, is_hour=bool(hours)):
            yield Invented.NUMBER


def _dated(text: str) -> set[int]:
    """Return the numbers of dates in digits."""
    return {number.value for one in _SURE_DATE.findall(text) for number in in_parts(one)}


def _days_of_months(text: str) -> set[int]:
    """Return the numbers of days before the name of a month: "bis 3. Dezember" is no hour."""
    return {int(one["day"]) for one in _day_and_month().finditer(text)}


@cache
def _day_and_month() -> re.Pattern[str]:
    months = (said for month in fact_document()["month"].values() for said in month.values())
    return re.compile(
        r"(?<![\w.,:])(?P<day>\d{1,2})(?:\.|st|nd|rd|th|er|º|°|ª)?\s+(?:(?:of|de|di|do)\s+)?"
        rf"(?:{'|'.join(map(pattern, months))})(?!\w)"
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """All numbers and hours that an original may contain."""

    numbers: frozenset[int]
    clock: tuple[Hours, ...]
    # Numbers of the text itself, outside of dates and without conversions.
    plain: frozenset[int] = frozenset()
    # The hours after noon that are certainly times.
    afternoon: frozenset[int] = frozenset()
    # Whether it has a half or a quarter that is not part of a known time.
    has_parts: bool = False

    @classmethod
    def read(cls, text: str, read_in: Collection[str], times: Sequence[TimePhrase] = ()) -> _Held:
        found = [*in_digits(text), *in_parts(text)]
        for language in _languages(read_in):
            found += numerals()[language].possible(text)
        numbers = {number.value for number in found}
        dated = _dated(text)
        said = numbers - (dated - {number.value for number in in_parts(_SURE_DATE.sub(" ", text))})
        clock = {hours_of(number) for number in found if number.value in said} - {NO_HOUR}
        for concept, values in _IN_NUMBERS.items():
            if fact_table().anywhere[concept].search(text):
                numbers |= values
                clock |= {_ON_THE_CLOCK[concept]} if concept in _ON_THE_CLOCK else set()
        numbers |= _slang_sums(text, numbers)
        numbers |= _month_numbers(text, read_in)
        numbers |= {part for day in _days_of_holidays(text) for part in day}
        numbers |= _converted(numbers)
        if _week().search(text):
            weeks = {1} | {number for number in numbers if number <= _MOST_WEEKS}
            numbers |= {7 * number for number in weeks} | ({15} if 2 in weeks else set())
        has_parts = _part().search(without_times(text, times)) is not None
        if has_parts:
            # Half past ten, which other languages call half eleven.
            near = {number for number in numbers if number <= _LAST_HOUR}
            numbers |= _PARTS | {number + step for number in near for step in (-1, 1)}
            clock = {around(hours) for hours in clock}
        afternoon = {
            number.value
            for number in found
            if number.value > _LAST_HOUR // 2
            and any(is_on_the_clock(number, language) for language in read_in)
        }
        return cls(
            frozenset(numbers), tuple(clock), frozenset(said), frozenset(afternoon), has_parts
        )

    def has(self, concept: str) -> bool:
        """Return whether the original has the number of a word, as a time if the word is one."""
        if concept in _ON_THE_CLOCK:
            return self.has_hour(_ON_THE_CLOCK[concept])
        return bool(_IN_NUMBERS[concept] & self.numbers)

    def may_count(self, number: Number, *, is_hour: bool) -> bool:
        """Return whether a number is that of the original, apart from the hours."""
        if is_hour:
            return number.value in self.plain
        # "Two" may be 14:00, even where its sentence does not mark it as a time.
        afternoon = number.value + _LAST_HOUR // 2
        return number.value in self.numbers or (
            afternoon in self.afternoon and not number.is_counted
        )

    def has_hour(self, hours: Hours) -> bool:
        """Return whether one of the hours may be meant."""
        return any(hours & held for held in self.clock)

    def says_otherwise(self, hours: Hours) -> bool:
        """Return whether the hour occurs only in the other half of the day."""
        other = frozenset((hour + 12) % 24 for hour in hours)
        return self.has_hour(other) and not self.has_hour(hours)


def _slang_sums(text: str, numbers: Collection[int]) -> set[int]:
    """Return the sums of nicknames of notes and coins, each times a number before it or a word."""
    few = {1} | {number for number in numbers if number <= _MOST_UNITS}
    return {
        (int(one["n"]) if one["n"] else many) * _SLANG[one["unit"]]
        for one in _slang().finditer(text)
        for many in few
    }


def _converted(numbers: Collection[int]) -> set[int]:
    """Return numbers of lengths in a larger unit: 14 days, 48 hours, 120 minutes, 24 months."""
    return {
        number // unit
        for unit in _LARGER_UNITS
        for number in numbers
        if number and number % unit == 0 and number // unit <= _MOST_UNITS
    }


def _languages(read_in: Collection[str]) -> list[str]:
    """Return the languages in which an original is read: it may mix them.

    Short words of Swedish and Turkish are common in the others: tio, on.
    """
    return [name for name in numerals() if name not in ("sv", "tr") or name in read_in]


@cache
def _part() -> re.Pattern[str]:
    return one_of([pattern(tables()["parts"]["any"])])


# Quarters of an hour, in minutes.
_QUARTERS = dict.fromkeys(("3", "three", "drei", "tres", "trois", "tre", "drie", "trzy"), 45)


# Notes and coins by their nicknames: "4 dychy" is 40.
_SLANG = {
    "dych": 10,
    "grand": 1000,
    "riesen": 1000,
    "luca": 1000,
    "stow": 100,
    "stowk": 100,
    "tenner": 10,
    "fiver": 5,
    "zehner": 10,
    "fuffi": 50,
    "funfziger": 50,
    "funfer": 5,
    "zwanni": 20,
    "zwanziger": 20,
    "hunni": 100,
    "hunderter": 100,
}


@cache
def _slang() -> re.Pattern[str]:
    return re.compile(
        rf"(?<!\w)(?:(?P<n>\d{{1,3}})\s?)?(?P<unit>{'|'.join(_SLANG)})\w{{0,3}}(?!\w)"
    )


@cache
def _quarters() -> re.Pattern[str]:
    """Match three quarters of an hour, also "three-quarter" and "dreiviertel"."""
    return re.compile(rf"(?<!\w)(?P<n>{'|'.join(_QUARTERS)})[\s-]?(?:{pattern(_QUARTER)})(?!\w)")


@cache
def _week() -> re.Pattern[str]:
    return one_of([pattern(tables()["lengths"]["week"])])


# -- the answer format


def _forms(said: _Text, given: _Text) -> Iterator[Invented]:
    if any(found not in given.raw for found in _FORM.findall(said.raw)):
        yield Invented.MACHINE
