"""Times of day with minutes, in digits and in the phrases of ten languages. Pure.

"Half sechs", 5:30 and 17.30 Uhr are one time here: the half of the day does not count. A phrase may
have several readings: an English "half six" is 6:30, and 5:30 for some people. `numerals.toml`
holds the phrases.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from holdfast_rewrite.numerals import numerals, tables, units

_HALF_DAY = 12 * 60
_LAST_HOUR, _LAST_MINUTE = 24, 59
_DIGITS = re.compile(
    r"(?<![\d.,:])(?P<h>[01]?\d|2[0-4])\s?[:.h]\s?(?P<m>[0-5]\d)(?![\d.,:]\d|\d)"
    r"|(?<![\d.,:])(?P<h2>[01]?\d|2[0-3])(?P<m2>[0-5]\d)(?=\s?(?:am|pm|uhr|uur|hrs|h)(?!\w))"
)
_SIGN = re.compile(r"[€$£]\s?$")
_OFFSET = re.compile(r"(?P<fixed>-?\d+)?(?P<m>[+-]?m)?")


@dataclass(frozen=True, slots=True)
class TimePhrase:
    """A time in a text: its place, and the minutes after twelve that it may mean."""

    start: int
    end: int
    minutes: frozenset[int]
    # A half, a quarter or digits: no reading of it is something else than a time.
    is_certain: bool

    def overlaps(self, other: TimePhrase) -> bool:
        return self.start < other.end and other.start < self.end

    def means(self, other: TimePhrase) -> bool:
        return not self.minutes.isdisjoint(other.minutes)

    def is_near(self, numbers: Collection[int]) -> bool:
        """Return whether numbers of a text may say this time in a way that is not known here."""
        return any(
            {one // 60 or 12, one // 60 + 12} & {*numbers, *(number - 1 for number in numbers)}
            for one in self.minutes
        )


def times_in(text: str, *languages: str) -> list[TimePhrase]:
    """Return the times with minutes in a plain text, read in these languages."""
    found = [*_in_digits(text), *(one for name in languages for one in _in_words(text, name))]
    kept: list[TimePhrase] = []
    # "Half eight" in "ten to half eight" is no time of its own.
    for one in sorted(found, key=lambda one: one.start - one.end):
        at = next((at for at, other in enumerate(kept) if one.overlaps(other)), None)
        if at is None:
            kept.append(one)
        elif (one.start, one.end) == (kept[at].start, kept[at].end):
            kept[at] = replace(kept[at], minutes=kept[at].minutes | one.minutes)
    return kept


def without_times(text: str, found: Iterable[TimePhrase]) -> str:
    """Return a text of the same length with a zero for each of these times."""
    for one in found:
        text = text[: one.start] + "0".ljust(one.end - one.start) + text[one.end :]
    return text


def _in_digits(text: str) -> Iterator[TimePhrase]:
    for found in _DIGITS.finditer(text):
        hour, minute = int(found["h"] or found["h2"]), int(found["m"] or found["m2"])
        is_price = units().match(text, found.end()) or _SIGN.search(text[: found.start()][-2:])
        if minute and not is_price:
            # 14.02 may be a date.
            yield _phrase(found, {hour * 60 + minute}, is_certain="." not in found[0])


def _in_words(text: str, language: str) -> Iterator[TimePhrase]:
    compiled = _compiled().get(language)
    if compiled is None:
        return
    numbers = _numbers(language)
    for pattern, fixed, sign in compiled:
        for found in pattern.finditer(text):
            hour = _value(found["h"], numbers)
            minute = _value(found["m"], numbers) if sign else 0
            if 0 < hour <= _LAST_HOUR and minute <= _LAST_MINUTE:
                yield _phrase(found, {hour * 60 + fixed + sign * minute}, is_certain=not sign)


def _phrase(found: re.Match[str], minutes: set[int], *, is_certain: bool) -> TimePhrase:
    readings = frozenset(one % _HALF_DAY for one in minutes)
    return TimePhrase(found.start(), found.end(), readings, is_certain)


def _value(said: str, numbers: Mapping[str, int]) -> int:
    return int(said) if said.isdigit() else numbers[re.sub(r"[\s\-]+", " ", said)]


@cache
def _numbers(language: str) -> Mapping[str, int]:
    """Return the number words of a language up to 59, those of two words, noon and midnight."""
    words = {word: value for word, value in numerals()[language].words.items() if value < 60}
    tens = {word: value for word, value in words.items() if value in (20, 30, 40, 50)}
    ones = {word: value for word, value in words.items() if value < 10}
    both = {f"{ten} {one}": tens[ten] + ones[one] for ten in tens for one in ones}
    return words | both | dict.fromkeys(tables()["noon"].get(language, ()), 12)


@cache
def _compiled() -> Mapping[str, tuple[tuple[re.Pattern[str], int, int], ...]]:
    return {
        language: tuple(_entry(line, language) for line in lines)
        for language, lines in tables()["times"].items()
    }


def _entry(line: str, language: str) -> tuple[re.Pattern[str], int, int]:
    """Return the pattern of an entry, its fixed minutes, and the sign of its {m}."""
    said, _, offset = line.rpartition(" = ")
    known = sorted(_numbers(language), key=len, reverse=True)
    number = "|".join(word.replace(" ", r"[\s\-]+") for word in known)
    said = said.replace("(", "(?:").replace(" ", r"[\s\-]+")
    said = said.replace("{h}", rf"(?P<h>\d{{1,2}}(?![:.,]?\d)|{number})")
    said = said.replace("{m}", rf"(?P<m>\d{{1,2}}|{number})")
    parts = _OFFSET.fullmatch(offset)
    assert parts is not None, f"{line!r} has no distance"
    sign = 0 if parts["m"] is None else -1 if parts["m"].startswith("-") else 1
    return re.compile(rf"(?<!\w){said}(?!\w)"), int(parts["fixed"] or 0), sign
