# ruff: noqa: RUF001 — quotation marks and dashes as people write them
"""Find names in a rewrite that its original lacks. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.fact_table import fact_table
from holdfast_rewrite.normalize_text import normalize_text, plain
from holdfast_rewrite.numerals import numerals
from holdfast_rewrite.pattern import words

_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_CAPITAL = re.compile(r"(?<![\w'’.@#/-])([^\W\d_])([^\W\d_]+)(?:['’]s)?")
_CLAUSE_END = re.compile(r"[.!?…\n]")
_SENTENCE_END = re.compile(r"[.!?…:;\n\"“”„«»()¿¡–—•*-]\s*$")
_END = re.compile(r"\s*(?:[.!?]|$)")
_PLACEHOLDER = re.compile(r"\[[^\]\n]{1,40}\]|\{[^}\n]{1,40}\}|<[^>\n]{1,40}>")
_LATIN = re.compile(r"[a-z]")
# The text before a name that is examined; the whole text would take quadratic time.
_LONGEST_OPENING = 60
# Names take endings: Kevin, Kevina; Anna, Annas.
_SHORTEST_STEM = 3
_LONGEST_ENDING = 3


class NameKind(StrEnum):
    """How certain it is that a word is a name."""

    GIVEN = "given"
    ADDRESSED = "addressed"
    # Brands, places and loan words have a capital letter too.
    CAPITAL = "capital"


def new_names(said: str, given: str, locale: str) -> set[NameKind]:
    """Return the kinds of names in a text that its original lacks."""
    bare = plain(normalize_text(given))
    # Names from another script are transliterated and cannot be compared.
    if locale not in fact_table().capitals or not _LATIN.search(bare):
        return set()
    known = set(_TOKEN.findall(bare)) | _words_of_holidays(plain(normalize_text(said)), locale)
    text = _PLACEHOLDER.sub(" ", said)
    return {
        kind
        for name, kind in (*_capitals(text, locale), *_given_names(text, locale))
        if not any(_is_one_name(name, word) for word in known)
    }


def has_sure_name(original: str, rewrite: str, locale: str) -> bool:
    """Return whether a new name is a given name or the name of the addressee."""
    return bool(new_names(rewrite, original, locale) - {NameKind.CAPITAL})


def _words_of_holidays(text: str, locale: str) -> set[str]:
    """Return the words of days and holidays in a text; `_concepts` looks at them."""
    found = fact_table().concepts[locale].finditer(text)
    return {
        word
        for one in found
        if fact_table().names[str(one.lastgroup)].startswith("holiday.")
        for word in _TOKEN.findall(one[0])
    }


def _capitals(text: str, locale: str) -> Iterator[tuple[str, NameKind]]:
    """Yield words whose capital letter marks a name in their position."""
    no_names = fact_table().capitals[locale]
    days = fact_table().concepts[locale]
    for found in _CAPITAL.finditer(text):
        word = plain(normalize_text(found[0].removesuffix("'s").removesuffix("’s")))
        before = text[max(0, found.start() - _LONGEST_OPENING) : found.start()]
        if not found[1].isupper() or not found[2].islower():
            continue
        opening = _TOKEN.findall(plain(normalize_text(_CLAUSE_END.split(before)[-1])))
        is_greeted = bool(opening) and fact_table().greetings.issuperset(opening)
        # All German nouns are capitalized; alone after a comma, a word is a form of address.
        is_called = before.endswith(", ") and _END.match(text, found.end())
        is_inside = before.strip() and not _SENTENCE_END.search(before)
        is_name = is_greeted or (is_called if locale == "de" else is_inside)
        if not is_name or word in no_names or word in fact_table().brands or days.fullmatch(word):
            continue
        yield word, NameKind.ADDRESSED if is_greeted or is_called else NameKind.CAPITAL


def _given_names(text: str, locale: str) -> Iterator[tuple[str, NameKind]]:
    """Yield capitalized words that are common given names, wherever they stand."""
    for found in _CAPITAL.finditer(text):
        if found[1].isupper() and found[2].islower():
            word = plain(normalize_text(found[1] + found[2]))
            # Inflected: Kevins, Annie.
            if {word, word[:-1]} & _given() and not {word, word[:-1]} & _no_names()[locale]:
                yield word, NameKind.GIVEN


@cache
def _namesfact_table() -> dict[str, Any]:
    text = (files("holdfast_rewrite") / "given_names.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def _given() -> frozenset[str]:
    return frozenset(words(_namesfact_table()["any"]))


@cache
def _no_names() -> Mapping[str, frozenset[str]]:
    names = _namesfact_table()["not_names"]
    return {locale: frozenset(words(names.get(locale, ""))) for locale in numerals()}


def _is_one_name(name: str, word: str) -> bool:
    stem = max(_SHORTEST_STEM, min(len(name), len(word)) - _LONGEST_ENDING)
    return name == word or (
        name[:stem] == word[:stem] and abs(len(name) - len(word)) <= _LONGEST_ENDING
    )
