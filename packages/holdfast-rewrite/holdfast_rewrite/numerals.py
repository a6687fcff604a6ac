"""Numbers in a text, as digits and as words of ten languages, with their context.

`numerals.toml` holds the words. All texts here are normalized and without diacritics. Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.pattern import numbered, one_of, pattern, words

_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,' \u00a0\u202f]\d{3})+(?!\d|[.,:]\d)")
_DIGITS = re.compile(r"\d+")
# 2k, 1.5k
_KILO = re.compile(r"(?<![\w.,])(\d{1,3})(?:[.,](\d))?\s?k(?!\w)")
# Between the words of one number.
_GAP = re.compile(r"(?P<only>[\s\-]{1,3})(?:(?:y|e|et|und|en|i|och|and)[\s\-]{1,3})?")
# They mean one only where nothing else can follow: "zwanzig ein bisschen früher".
_ARTICLES = frozenset({"ein", "eine", "un", "una", "une", "um", "uma", "een", "en", "bir"})
_JOINERS = ("und", "en", "e")
# No number word is longer; bounds the time for long runs of letters.
_LONGEST_WORD = 60
_LONGEST_RUN = 18
# How much text beside a number is examined.
_BESIDE = 48


@dataclass(frozen=True, slots=True)
class Number:
    """A number, with the text directly before and after it."""

    value: int
    before: str
    after: str

    @classmethod
    def at(cls, value: int, text: str, start: int, end: int) -> Number:
        return cls(value, text[max(0, start - _BESIDE) : start], text[end : end + _BESIDE])

    def is_of(self, *kinds: str) -> bool:
        """Return whether it counts something of these kinds: money, times, durations, people."""
        if "money" in kinds and re.search(r"[€$£]\s*$", self.before):
            return True
        found = units().match(self.after)
        return found is not None and found.lastgroup in kinds

    @property
    def is_counted(self) -> bool:
        """Return whether it is a count or a price."""
        return self.is_of(*tables()["units"])


def in_digits(text: str) -> Iterator[Number]:
    """Yield the numbers in digits; 1,500 and 1.500 are one number."""
    text = _THOUSANDS.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    for found in _DIGITS.finditer(text):
        yield Number.at(int(found[0][:_LONGEST_RUN]), text, found.start(), found.end())


def in_parts(text: str) -> Iterator[Number]:
    """Yield other readings of digits: each run of digits alone, and 2k."""
    for found in _DIGITS.finditer(text):
        yield Number.at(int(found[0][:_LONGEST_RUN]), text, found.start(), found.end())
    for found in _KILO.finditer(text):
        value = int(found[1]) * 1000 + int(found[2] or 0) * 100
        yield Number.at(value, text, found.start(), found.end())


@dataclass(slots=True)
class _Run:
    """The words of one number, as far as they are parsed."""

    start: int
    end: int
    thousands: int = 0
    rest: int = 0
    tokens: list[str] = field(default_factory=list)

    @property
    def value(self) -> int:
        return self.thousands + self.rest

    def take(self, number: int) -> bool:
        """Add a word's number if it can follow: hundred after two, five after twenty."""
        match number:
            case 1000 if not self.thousands:
                self.thousands, self.rest = max(self.rest, 1) * 1000, 0
            case 100 if 0 < self.rest < 100:
                self.rest *= 100
            case _ if number < 1000 and self.rest == 0:
                self.rest = number
            case _ if number < 100 and self.rest % 100 == 0:
                self.rest += number
            case _ if self.rest % 10 == 0 and self.rest % 100 >= 20 and number < 10:
                self.rest += number
            # Soixante et onze, quatre-vingt-douze.
            case _ if self.rest % 100 in (60, 80) and number < 20:
                self.rest += number
            case _:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Numerals:
    """The number words of one language."""

    words: Mapping[str, int]
    # Thousands first.
    glued: Mapping[str, int]
    endings: tuple[str, ...]
    # The components of a compound word.
    made: re.Pattern[str] | None
    ordinals: Mapping[str, int]
    ordinal: re.Pattern[str]
    unsure: frozenset[str]
    vague: frozenset[str]
    # Number words of several words, such as dix-sept.
    split: re.Pattern[str] | None

    def claimed(self, text: str) -> Iterator[Number]:
        """Yield the certain numbers: no articles, no pronouns, no "thousand thanks"."""
        text = self._in_one(text)
        for run in self._runs(text):
            if len(run.tokens) == 1 and run.tokens[0] in self.unsure:
                continue
            number = Number.at(run.value, text, run.start, run.end)
            # "The two of us" and articles that also mean one are not new.
            if number.value <= 2:
                continue
            if number.value not in (100, 1000) or number.is_of("money", "length"):
                yield number
        for number in self._ordinals(text):
            # The third time, po raz trzeci.
            if number.value > 2 and (number.is_of("times") or times_before().search(number.before)):
                yield number

    def possible(self, text: str) -> Iterator[Number]:
        """Yield every possible reading, with the parts of each number."""
        text = self._in_one(text)
        for run in self._runs(text):
            number = Number.at(run.value, text, run.start, run.end)
            if len(run.tokens) > 1 or run.tokens[0] not in self.vague or number.is_counted:
                yield number
            if len(run.tokens) > 1:
                for token in run.tokens:
                    yield Number.at(self._value(token) or 0, text, run.start, run.end)
        yield from self._ordinals(text)

    def _in_one(self, text: str) -> str:
        if self.split is None:
            return text
        return self.split.sub(lambda found: re.sub(r"[\s\-]+", "", found[0]), text)

    def _runs(self, text: str) -> Iterator[_Run]:
        run: _Run | None = None
        for found in _TOKEN.finditer(text):
            number = self._value(found[0])
            if number is None:
                continue
            if run and self._goes_on(run, found, text) and run.take(number):
                run.end = found.end()
            else:
                if run:
                    yield run
                run = _Run(found.start(), found.end(), number // 1000 * 1000, number % 1000)
            run.tokens.append(found[0])
        if run:
            yield run

    def _goes_on(self, run: _Run, found: re.Match[str], text: str) -> bool:
        gap = _GAP.fullmatch(text, run.end, found.start())
        if gap is None:
            return False
        return found[0] not in _ARTICLES or gap[0] != gap["only"] or "-" in gap[0]

    def _ordinals(self, text: str) -> Iterator[Number]:
        for found in self.ordinal.finditer(text):
            value = self.ordinals[str(found.lastgroup)]
            yield Number.at(value, text, found.start(), found.end())

    def _value(self, token: str) -> int | None:
        number = self.words.get(token)
        if number is not None or self.made is None or not self.made.search(token):
            return number
        number = self._taken_apart(token) if len(token) <= _LONGEST_WORD else None
        for ending in self.endings:
            if number is None and token.endswith(ending):
                return self._value(token.removesuffix(ending))
        return number

    def _taken_apart(self, token: str) -> int | None:
        """Return the number of a compound such as zweihundertfünfzig."""
        for word, unit in self.glued.items():
            head, found, tail = token.partition(word)
            if not found:
                continue
            many = self._value(head) if head else 1
            if many is None or many >= 1000:
                continue
            more = self._tail(tail) if tail else 0
            if more is not None and more < unit:
                return many * unit + more
        return None

    def _tail(self, tail: str) -> int | None:
        number = self._value(tail)
        for joiner in _JOINERS:
            if number is None and tail.startswith(joiner):
                number = self._value(tail.removeprefix(joiner))
        return number


# -- the table


@cache
def tables() -> dict[str, Any]:
    """Return `numerals.toml`."""
    return tomllib.loads((files("holdfast_rewrite") / "numerals.toml").read_text("utf-8"))


@cache
def numerals() -> Mapping[str, Numerals]:
    """Return the number words by language."""
    return {language: _numerals(said) for language, said in tables()["numbers"].items()}


@cache
def units() -> re.Pattern[str]:
    """Match counted things directly after a number."""
    kinds = "|".join(
        f"(?P<{kind}>{'[€$£%]|' if kind == 'money' else ''}(?:{pattern(said)})(?!\\w))"
        for kind, said in tables()["units"].items()
    )
    return re.compile(rf"(?:[.,]\d\d(?!\d))?\s*(?:{kinds})")


@cache
def times_before() -> re.Pattern[str]:
    """Match words for "times" directly before a number."""
    return re.compile(rf"(?<!\w)(?:{pattern(tables()['units']['times'])})\s*$")


def _numerals(said: Mapping[str, Any]) -> Numerals:
    ones, teens, tens = (words(said[key]) for key in ("ones", "teens", "tens"))
    found = {word: number for number, word in enumerate(ones, 1)}
    found |= {word: number for number, word in enumerate(teens, 10)}
    found |= {word: 10 * number for number, word in enumerate(tens, 2)}
    for compound in said["compounds"]:
        for ten, word in enumerate(tens, 2):
            for one, digit in enumerate(ones, 1):
                # Italian drops a vowel: venti, ventotto.
                made = compound.format(ten=word, one=digit, cut=word[:-1])
                found.setdefault(made, 10 * ten + (one if "{one}" in compound else 1))
    found |= numbered(said["also"])
    # The longest first: quatre-vingt-dix before quatre-vingt.
    split = sorted((word for word in found if "-" in word), key=len, reverse=True)
    ordinals = list(enumerate(said["ordinals"].split(), 2))
    glued = sorted(numbered(said.get("glued", "")).items(), key=lambda pair: -pair[1])
    endings = words(said.get("endings", ""))
    made = [*(word for word, _ in glued), *(f"{ending}$" for ending in endings)]
    return Numerals(
        words={word.replace("-", ""): number for word, number in found.items()},
        glued=dict(glued),
        endings=tuple(endings),
        made=re.compile("|".join(made)) if made else None,
        ordinals={f"o{number}": number for number, _ in ordinals},
        ordinal=one_of(f"(?P<o{number}>{pattern(text)})" for number, text in ordinals),
        unsure=frozenset(words(said["unsure"])),
        vague=frozenset(words(said.get("vague", ""))),
        split=one_of(word.replace("-", r"[\s\-]+") for word in split) if split else None,
    )
