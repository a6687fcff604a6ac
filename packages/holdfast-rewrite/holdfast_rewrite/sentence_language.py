"""Check that every sentence of a rewrite is in the target language. Pure.

A long part is left to the detector. In a short one, the most frequent words of the eight languages
decide, because a detector cannot: "Merci beaucoup" after two Spanish sentences.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from holdfast_rewrite.detect import Detector, is_left_in, is_told_apart
from holdfast_rewrite.enums import Level
from holdfast_rewrite.normalize_text import normalize_text, plain

_SENTENCE = re.compile(r"[^.!?…\n]+")
_CLAUSE = re.compile(r"[^.!?…\n,;:()\u2013\u2014]+")
_WORD = re.compile(r"[^\W\d_]+")
# Shorter parts contain too many loan words and names.
_SURE_LETTERS = 30
# A clause of fewer words may be a name or a title; of these words, two must be known.
_FEWEST_WORDS = 3
_FEWEST_KNOWN = 2
_KNOWN_SHARE = 0.5


def is_in_language(text: str, *, source: str, target: str, detector: Detector) -> bool | None:
    """Return whether a text is in its target language; None if unknown."""
    # A translation may include its original.
    for part, is_long in _parts(text):
        heard = detector.detect(part)
        if heard.confidence is not Level.HIGH:
            continue
        if is_left_in(heard.language, source=source, target=target):
            return False
        if is_long and is_told_apart(heard.language, target):
            return False
    if any(_is_foreign(clause, target) for clause in _CLAUSE.findall(text)):
        return False
    whole = detector.detect(text)
    if whole.confidence is not Level.LOW:
        if whole.language == target:
            return True
        if is_told_apart(whole.language, target):
            return False
    return True if _leader(text) == target else None


def fillers_of(language: str) -> frozenset[str]:
    """Return the function words of a language; none if it is unknown."""
    return _fillers().get(language, frozenset())


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield sentences, joined until they are long enough, and whether they are."""
    sentences = _SENTENCE.findall(text)
    for first in range(len(sentences)):
        for last in range(first + 1, len(sentences) + 1):
            part = " ".join(sentences[first:last])
            is_long = sum(map(str.isalpha, part)) >= _SURE_LETTERS
            if is_long or last == first + 1:
                yield part, is_long
            if is_long:
                break


def _is_foreign(clause: str, target: str) -> bool:
    """Return whether a clause has frequent words of another language and none of the target's."""
    words = _WORD.findall(plain(normalize_text(clause)))
    if target not in _common() or len(words) < _FEWEST_WORDS:
        return False
    known = {
        language: sum(word in frequent for word in words)
        for language, frequent in _common().items()
    }
    own = known.pop(target)
    return own == 0 and max(known.values()) >= max(_FEWEST_KNOWN, _KNOWN_SHARE * len(words))


def _leader(text: str) -> str | None:
    """Return the language with the most frequent words in a text; None if there is no one."""
    words = _WORD.findall(plain(normalize_text(text)))
    counts = sorted(
        (sum(word in frequent for word in words), language)
        for language, frequent in _common().items()
    )
    (second, _), (first, language) = counts[-2:]
    return language if first >= _FEWEST_KNOWN and first > second else None


# The first words of each list have no meaning of their own.
_FUNCTION_WORDS = 60


@cache
def _words() -> Mapping[str, tuple[str, ...]]:
    text = (files("holdfast_rewrite") / "common_words.toml").read_text("utf-8")
    lists = tomllib.loads(text)
    del lists["version"]
    return {language: tuple(plain(said).split()) for language, said in lists.items()}


@cache
def _common() -> Mapping[str, frozenset[str]]:
    return {language: frozenset(said) for language, said in _words().items()}


@cache
def _fillers() -> Mapping[str, frozenset[str]]:
    return {language: frozenset(said[:_FUNCTION_WORDS]) for language, said in _words().items()}
