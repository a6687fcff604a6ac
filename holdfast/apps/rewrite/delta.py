# ruff: noqa: RUF001 — quotation marks and dashes as people write them
"""What a rewrite says that its original does not: numbers, times, days, names, things. Pure.

A rewrite is read strictly, in its own language. The original is read generously, in every language
there is: it may mix them, and somebody may have taken it for another. So only what stands nowhere
in the original counts as invented. `delta.toml` holds the words.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from holdfast.apps.rewrite.fold import fold, plain


class Invented(StrEnum):
    """What kind of thing a rewrite made up."""

    NUMBER = "invented_number"
    DATE = "invented_date"
    TIME = "invented_time"
    NAME = "invented_name"
    THING = "invented_thing"
    LINK = "invented_link"
    MACHINE = "machine_words"


_KINDS = {
    "day": Invented.DATE,
    "month": Invented.DATE,
    "clock": Invented.TIME,
    "thing": Invented.THING,
    "machine": Invented.MACHINE,
}
# Midnight and noon are also written in numbers.
_ON_THE_CLOCK = {"clock.midnight": {0, 12, 24}, "clock.noon": {12}}

_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,' \u00a0\u202f]\d{3})+(?![\d.,:])")
_DIGITS = re.compile(r"\d+")
# An amount must be what it was; elsewhere 10 may be 22 on the clock.
_AMOUNT = re.compile(
    r"[€$£%]\s*(\d{1,18})|(?<!\d)(\d{1,18})(?:[.,]\d{2})?\s*(?:[€$£%]|euros?\b|z[lł]|dollars?\b)"
)
# Halves and quarters of an hour, by which "halb elf" is 10:30 and "quarter to" is 45.
_PART = re.compile(
    r"(?<!\w)(?:half|halve|halb|halbe|viertel|dreiviertel|media|medio|cuarto|demie?|quart|mezz[ao]"
    r"|quarto|meia|meio|kwart|pol|wpol|kwadrans|halv|kvart|bucuk|yarim|ceyrek|quarter)(?!\w)"
)
_JOINERS = frozenset({"y", "e", "et", "und", "en", "i", "och", "and"})

_CAPITAL = re.compile(r"(?<![\w'’.@#/-])([^\W\d_])([^\W\d_]+)(?:['’]s)?")
_CLAUSE_END = re.compile(r"[.!?…\n]")
_SENTENCE_END = re.compile(r"[.!?…:;\n\"“”„«»()¿¡–—•*-]\s*$")
_END = re.compile(r"\s*(?:[.!?]|$)")
# With an end to each part: a row of signs must not cost its square.
_LINK = re.compile(r"https?://\S+|www\.\S+|[^\s@]{1,64}@[^\s@.]{1,63}\.\w+")
_PLACEHOLDER = re.compile(r"\[[^\]\n]{1,40}\]|\{[^}\n]{1,40}\}|<[^>\n]{1,40}>")
# The answer's own form, where only its text should be.
_FORM = re.compile(r"rewritten_text|output_language|```")
_LATIN = re.compile(r"[a-z]")
# What stands before a name tells what it is; the whole text each time would cost its square.
_LONGEST_OPENING = 60
# Names take endings: Kevin, Kevina; Anna, Annas.
_SHORTEST_STEM = 3
_LONGEST_ENDING = 3


def invented(original: str, rewrite: str, locale: str) -> tuple[Invented, ...]:
    """What kinds of things a *rewrite* in *locale* holds that its *original* does not."""
    said, given = _Text.of(rewrite), _Text.of(original)
    found = {
        *_concepts(said, given, locale),
        *_numbers(said, given, locale),
        *_names(said, given, locale),
        *_links(said, given),
        *_forms(said, given),
    }
    return tuple(kind for kind in Invented if kind in found)


@dataclass(frozen=True, slots=True)
class _Text:
    raw: str
    # In one case and without diacritics.
    bare: str

    @classmethod
    def of(cls, raw: str) -> _Text:
        return cls(raw, plain(fold(raw)))


# -- days, months, clock words, things, the machine's own words


def _concepts(said: _Text, given: _Text, locale: str) -> Iterator[Invented]:
    pattern = _table().concepts.get(locale)
    if pattern is None:
        return
    names = {found.lastgroup for found in pattern.finditer(said.bare)} - {None}
    for group in names:
        concept = _table().names[str(group)]
        if _table().anywhere[concept].search(given.bare):
            continue
        if _ON_THE_CLOCK.get(concept, set()) & _given_numbers(given.bare):
            continue
        yield _KINDS[concept.partition(".")[0]]


# -- numbers


def _numbers(said: _Text, given: _Text, locale: str) -> Iterator[Invented]:
    claimed = set(_digits(said.bare)) | set(_claimed_words(said.bare, locale))
    if not claimed:
        return
    allowed = _given_numbers(given.bare)
    hours = {number % 12 for number in allowed if number <= 24}
    amounts = {int(one or other) for one, other in _AMOUNT.findall(fold(said.raw))}
    for number in claimed - allowed:
        is_hour = number <= 24 and number % 12 in hours and number not in amounts
        # Minutes that are none.
        if not is_hour and number != 0:
            yield Invented.NUMBER


def _digits(text: str) -> Iterator[int]:
    joined = _THOUSANDS.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    for found in _DIGITS.finditer(joined):
        yield int(found[0][:18])


def _given_numbers(text: str) -> set[int]:
    """Every number that an original can be read to hold."""
    found = set(_digits(text)) | {int(run[:18]) for run in _DIGITS.findall(text)}
    for numerals in _table().numerals.values():
        found.update(numerals.read(text))
    if _PART.search(text):
        found |= {15, 30, 45} | {number + step for number in found for step in (-1, 1)}
    return found


def _claimed_words(text: str, locale: str) -> Iterator[int]:
    numerals = _table().numerals.get(locale)
    if numerals is None:
        return
    # "The two of us" and the articles that are also a one say nothing new.
    for number in numerals.read(text, is_strict=True):
        if number > 2:
            yield number


@dataclass(frozen=True, slots=True)
class _Numerals:
    """The number words of one language."""

    words: Mapping[str, int]
    unsure: frozenset[str]
    # Those of several words, such as dix-sept.
    split: re.Pattern[str] | None

    def read(self, text: str, *, is_strict: bool = False) -> Iterator[int]:
        """The numbers in a text; not strictly, also the parts of each."""
        if self.split is not None:
            text = self.split.sub(lambda found: re.sub(r"[\s\-]+", "", found[0]), text)
        tokens = _TOKEN.findall(text)
        before: tuple[int, int] | None = None
        for place, token in enumerate(tokens):
            number = self.words.get(token)
            if number is None or (is_strict and token in self.unsure):
                continue
            if before and number < 20 and _follows(tokens, before[0], place):
                yield before[1] + number
                before = None
                continue
            if before and is_strict:
                yield before[1]
            # Twenty may wait for its five.
            before = (place, number) if number >= 20 and number % 10 == 0 else None
            if not is_strict or before is None:
                yield number
        if before and is_strict:
            yield before[1]


def _follows(tokens: list[str], at: int, place: int) -> bool:
    between = tokens[at + 1 : place]
    return not between or (len(between) == 1 and between[0] in _JOINERS)


# -- names


def _names(said: _Text, given: _Text, locale: str) -> Iterator[Invented]:
    # A name out of another script is written anew: there is nothing to compare.
    if locale not in _table().capitals or not _LATIN.search(given.bare):
        return
    known = set(_TOKEN.findall(given.bare))
    for name in _capitals(_PLACEHOLDER.sub(" ", said.raw), locale):
        if not any(_is_one_name(name, word) for word in known):
            yield Invented.NAME


def _capitals(text: str, locale: str) -> Iterator[str]:
    """The words that only a name would begin with a capital letter where they stand."""
    no_names = _table().capitals[locale]
    days = _table().concepts[locale]
    for found in _CAPITAL.finditer(text):
        word = plain(fold(found[0].removesuffix("'s").removesuffix("’s")))
        before = text[max(0, found.start() - _LONGEST_OPENING) : found.start()]
        if not found[1].isupper() or not found[2].islower():
            continue
        opening = _TOKEN.findall(plain(fold(_CLAUSE_END.split(before)[-1])))
        is_greeted = bool(opening) and _table().greetings.issuperset(opening)
        # Every German noun has a capital; alone behind a comma it is somebody who is called.
        is_called = before.endswith(", ") and _END.match(text, found.end())
        is_inside = before.strip() and not _SENTENCE_END.search(before)
        is_name = is_greeted or (is_called if locale == "de" else is_inside)
        if not is_name or word in no_names or days.fullmatch(word):
            continue
        yield word


def _is_one_name(name: str, word: str) -> bool:
    stem = max(_SHORTEST_STEM, min(len(name), len(word)) - _LONGEST_ENDING)
    return name == word or (
        name[:stem] == word[:stem] and abs(len(name) - len(word)) <= _LONGEST_ENDING
    )


# -- links and gaps to fill in


def _links(said: _Text, given: _Text) -> Iterator[Invented]:
    for found in (*_LINK.findall(said.raw), *_PLACEHOLDER.findall(said.raw)):
        if found not in given.raw:
            yield Invented.LINK


def _forms(said: _Text, given: _Text) -> Iterator[Invented]:
    if any(found not in given.raw for found in _FORM.findall(said.raw)):
        yield Invented.MACHINE


# -- the table


@dataclass(frozen=True, slots=True)
class _Table:
    """`delta.toml`, compiled: by language, and for each concept by all of them together."""

    concepts: Mapping[str, re.Pattern[str]]
    names: Mapping[str, str]
    anywhere: Mapping[str, re.Pattern[str]]
    numerals: Mapping[str, _Numerals]
    capitals: Mapping[str, frozenset[str]]
    greetings: frozenset[str]


@cache
def _table() -> _Table:
    text = (files("holdfast.apps.rewrite") / "delta.toml").read_text("utf-8")
    document = tomllib.loads(text)
    languages = tuple(document["numbers"])
    concepts = {
        f"{kind}.{name}": patterns for kind in _KINDS for name, patterns in document[kind].items()
    }
    groups = {concept: f"c{place}" for place, concept in enumerate(concepts)}
    return _Table(
        concepts={
            language: _one_of(
                f"(?P<{groups[concept]}>{_pattern(patterns[language])})"
                for concept, patterns in concepts.items()
                if language in patterns
            )
            for language in languages
        },
        names={group: concept for concept, group in groups.items()},
        anywhere={
            concept: _one_of(map(_pattern, patterns.values()))
            for concept, patterns in concepts.items()
        },
        numerals={name: _numerals(words) for name, words in document["numbers"].items()},
        capitals={name: _words(document["capitals"][name]) for name in languages},
        greetings=_words(document["capitals"]["greetings"]),
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(plain(fold(text)).split())


def _one_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)")


@lru_cache(maxsize=1024)
def _pattern(text: str) -> str:
    text = plain(fold(text)).replace("(", "(?:").replace("*", r"\w*")
    return text.replace("{number}", r"\d{1,2}\.?").replace(" ", r"[\s\-]+")


def _numerals(words: Mapping[str, Any]) -> _Numerals:
    ones, teens, tens = (plain(fold(words[key])).split() for key in ("ones", "teens", "tens"))
    found = {word: number for number, word in enumerate(ones, 1)}
    found |= {word: number for number, word in enumerate(teens, 10)}
    found |= {word: 10 * number for number, word in enumerate(tens, 2)}
    for compound in words["compounds"]:
        for ten, word in enumerate(tens, 2):
            for one, digit in enumerate(ones, 1):
                # Italian drops a vowel: venti, ventotto.
                made = compound.format(ten=word, one=digit, cut=word[:-1])
                found.setdefault(made, 10 * ten + (one if "{one}" in compound else 1))
    for pair in plain(fold(words["also"])).split():
        word, _, number = pair.partition("=")
        found[word] = int(number)
    # The longest first: quatre-vingt-dix before quatre-vingt.
    split = sorted((word for word in found if "-" in word), key=len, reverse=True)
    return _Numerals(
        {word.replace("-", ""): number for word, number in found.items()},
        _words(words["unsure"]),
        _one_of(word.replace("-", r"[\s\-]+") for word in split) if split else None,
    )
