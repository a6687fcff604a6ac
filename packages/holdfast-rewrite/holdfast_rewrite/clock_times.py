"""The hours of the day that a number may mean. Pure.

10 may mean 22:00, but only as a time: not in a count, and not if one text says morning and the
other evening.
"""

from __future__ import annotations

import re
from functools import cache

from holdfast_rewrite.numerals import Number, tables
from holdfast_rewrite.pattern import pattern

Hours = frozenset[int]

NO_HOUR: Hours = frozenset()
_LAST = 24
_MINUTES = re.compile(r"\d\s?[:.h]\s?$")
# Followed by an English word or a line end, unlike German "10 am Montag".
_AM = (
    r"a\.\s?m\.?|am(?=\s*(?:$|[^\w\s])|\s+(?:and|or|to|on|in|at|so|if|i|is|you|u|it|the|that|this"
    r"|till|until|every|each|please|because|when|then|but|not|with|for|by|my|your|we|than|next"
    r"|tomorrow|today|again|sharp)(?!\w))"
)
_PM = r"p\.?\s?m\.?"
# Ranges of hours: 22-7, 10 or 11.
_DASH = "[-\u2013\u2014]"
_RANGE = rf"(?:{_DASH}|or|to|oder|bis|o|a|ou|e|of|tot|en|lub|do|i|y|et|und|and)"


def hours_of(number: Number) -> Hours:
    """Return the hours that a number may mean; none for minutes, money or counts."""
    value = number.value
    if value > _LAST or number.is_counted or _MINUTES.search(number.before):
        return NO_HOUR
    # People confuse 12 am and 12 pm.
    if value in (0, 12, _LAST):
        return frozenset({0, 12} if value == 12 else {0})
    if value > 12:
        return frozenset({value})
    match _part_of_day(number):
        case "morning":
            return frozenset({value})
        case "evening":
            return frozenset({value + 12})
        case "night" if value > 6:
            return frozenset({value + 12})
        case "night" if value < 5:
            return frozenset({value})
        case _:
            return frozenset({value, value + 12})


def is_on_the_clock(number: Number, locale: str) -> bool:
    """Return whether a number in a rewrite in *locale* is certainly an hour.

    In a language without a word list, it is assumed.
    """
    before = _before().get(locale)
    if before is None:
        return True
    return bool(_after().match(number.after) or before.search(number.before))


def around(hours: Hours) -> Hours:
    """Return these hours and their neighbours: "half" may belong to the hour before."""
    return frozenset((hour + step) % 24 for hour in hours for step in (-1, 0, 1))


def _part_of_day(number: Number) -> str | None:
    found = _said_after().match(number.after) or _said_before().search(number.before)
    return found.lastgroup if found else None


# -- the tables


@cache
def _days() -> str:
    day = {kind: pattern(said) for kind, said in tables()["hours"]["day"].items()}
    return "|".join(
        (
            f"(?P<morning>{_AM}|(?:{day['morning']})(?!\\w))",
            f"(?P<evening>(?:{_PM}|{day['evening']})(?!\\w))",
            f"(?P<night>(?:{day['night']})(?!\\w))",
        )
    )


@cache
def _said_after() -> re.Pattern[str]:
    """22:30 Uhr abends, 10 h du soir, diez y media de la noche."""
    hours = tables()["hours"]
    return re.compile(
        rf"(?:\s?[:.h]\s?\d\d(?!\d))?(?:\s*(?:{_oclock()})(?!\w))?(?:\s?\d\d(?!\d))?"
        rf"(?:\s+(?:{pattern(hours['past']['any'])}))?\s{{0,3}}(?:{_days()})"
    )


@cache
def _said_before() -> re.Pattern[str]:
    """Abends um 10; but not "abends bis 3", which means the morning."""
    at = pattern(tables()["hours"]["at"]["any"])
    return re.compile(rf"(?<!\w)(?:{_days()})\s+(?:{at})\s*$")


@cache
def _after() -> re.Pattern[str]:
    """10:30, 10 Uhr, 10 pm, 10-12."""
    clock = rf"\s?[:.h]\s?\d\d(?!\d)|\s*(?:{_oclock()})(?!\w)|\s*{_DASH}\s*\d"
    return re.compile(f"{clock}|{_said_after().pattern}")


def _oclock() -> str:
    return pattern(tables()["hours"]["after"]["any"])


@cache
def _before() -> dict[str, re.Pattern[str]]:
    """After ten, um zehn, a las diez."""
    return {
        language: re.compile(
            rf"(?<!\w)(?:{pattern(said)})\s+(?:\w+\s*{_RANGE}\s+)?$|\d\s*{_RANGE}\s*$"
        )
        for language, said in tables()["hours"]["before"].items()
    }
