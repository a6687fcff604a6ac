"""Detect whether a rewrite asks for the opposite of its original. Pure.

A request must not be returned negated, nor "louder" as "quieter". Most requests are paraphrased:
"stop leaving dishes" may become "could you wash the dishes". So a reversal counts only if it is
certain:

- both texts ask for one side of a pair, such as louder and quieter, and not for the same; or
- in one language, the rewrite asks for what the original forbids in the same words, or forbids
  what it asks for.

Pleas, jokes, limits and reports are undecided: "can't you turn it down", "only after knocking".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from holdfast_rewrite.normalize_text import plain
from holdfast_rewrite.phrase_matcher import Found
from holdfast_rewrite.ruleset import PAIRS, Reading

_SENTENCE = re.compile(r"[^.!?…;:\n]+[.!?…;:\n]?")
_CUT = re.compile(r"[,()\u2013\u2014]|\s-+\s")
_WORD = re.compile(r"[^\W\d_]+")
# One word may match by chance.
_FEWEST_WORDS = 2
# Bring and bringing, abbassa and abbassare share their first letters. Words that share only three
# must have inflected endings: take, taking; baja, bajes; fume, fumar.
_STEM = 4
_LONGEST_ENDING = 4
_SHORT_STEM = 3
_ENDINGS = frozenset(
    {"", "a", "e", "i", "o", "s", "t", "as", "es", "os", "an", "en", "ar", "er", "ir", "st", "te"}
    | {"ac", "ic", "yc", "aj", "cie", "ed", "ez", "are", "ere", "ire", "ing"}
)


class Polarity(Enum):
    """Whether something is requested or forbidden."""

    ASKED = auto()
    FORBIDDEN = auto()
    UNTOLD = auto()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a sentence that requests something, between two commas."""

    polarity: Polarity
    words: frozenset[str]
    sides: frozenset[str]
    # With "only", "before", "when": the request does not cover everything that was forbidden.
    is_limited: bool


def is_reversed(given: Reading, said: Reading, *, is_same_language: bool) -> bool:
    """Return whether *said* requests the opposite of what *given* requests."""
    asked = list(_pieces(given, is_strict=False))
    answered = list(_pieces(said, is_strict=True))
    for pair in PAIRS:
        before, after = _wanted(pair, asked), _wanted(pair, answered)
        if len(before) == len(after) == 1:
            return before != after
    return is_same_language and any(_is_contrary(piece, asked) for piece in answered)


def _wanted(pair: tuple[str, str], pieces: list[_Piece]) -> set[str]:
    """Return the requested side of a pair; both if unclear."""
    found: set[str] = set()
    for piece in pieces:
        for side, other in (pair, pair[::-1]):
            if side in piece.sides:
                found |= {
                    Polarity.ASKED: {side},
                    Polarity.FORBIDDEN: {other},
                    Polarity.UNTOLD: {side, other},
                }[piece.polarity]
    return found


def _is_contrary(piece: _Piece, asked: list[_Piece]) -> bool:
    if piece.polarity is Polarity.UNTOLD or piece.is_limited or len(piece.words) < _FEWEST_WORDS:
        return False
    if any(_shares(piece, other) for other in asked if not _is_opposite(piece, other)):
        return False
    return any(_is_made_of(piece, other) for other in asked if _is_opposite(piece, other))


def _is_opposite(one: _Piece, other: _Piece) -> bool:
    return {one.polarity, other.polarity} == {Polarity.ASKED, Polarity.FORBIDDEN}


def _is_made_of(piece: _Piece, other: _Piece) -> bool:
    """Return whether a part has no word of its own and at least half of the other's."""
    return (
        not other.is_limited
        and 2 * len(piece.words) >= len(other.words)
        and all(any(is_one_word(word, one) for one in other.words) for word in piece.words)
    )


def _shares(piece: _Piece, other: _Piece) -> bool:
    return any(is_one_word(word, one) for word in piece.words for one in other.words)


def is_one_word(word: str, other: str) -> bool:
    """Return whether two words differ only in their endings."""
    if word == other:
        return True
    shared = next(
        (at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b),
        min(len(word), len(other)),
    )
    rests = (word[shared:], other[shared:])
    if shared >= _STEM:
        return max(map(len, rests)) <= _LONGEST_ENDING
    return shared >= _SHORT_STEM and _ENDINGS.issuperset(rests)


# -- reading


def _pieces(reading: Reading, *, is_strict: bool) -> Iterator[_Piece]:
    """Yield the requests, part by part. If strict, a "not" leaves a sentence undecided."""
    for sentence in _SENTENCE.finditer(reading.normalized):
        start, end = sentence.span()
        asked = reading.section("intent.request").between(start, end)
        if not asked:
            continue
        forbids = [
            hit
            for hit in reading.section("polarity.forbids").between(start, end)
            # In a question, a bare "nicht" may be a plea.
            if not (hit.key.endswith("/weak") and sentence[0].endswith("?"))
        ]
        untold = [
            hit
            for hit in reading.section("polarity.untold").between(start, end)
            if not any(map(hit.lies_in, forbids))
        ]
        is_limited = bool(reading.section("polarity.limits").between(start, end))
        for first, last in _parts(reading, start, end):
            polarity = Polarity.UNTOLD
            if not _inside(untold, first, last):
                if _inside(forbids, first, last):
                    polarity = Polarity.FORBIDDEN
                elif _inside(asked, first, last) and not (is_strict and (untold or forbids)):
                    polarity = Polarity.ASKED
            yield _Piece(
                polarity,
                content(reading, first, last),
                frozenset(
                    side
                    for pair in PAIRS
                    for side in pair
                    if reading.section(f"polarity.{side}").between(first, last)
                ),
                is_limited,
            )


def _parts(reading: Reading, start: int, end: int) -> Iterator[tuple[int, int]]:
    cuts = {found.end() for found in _CUT.finditer(reading.normalized, start, end)}
    cuts |= {place for place in reading.contrasts if start < place < end}
    yield from pairwise(sorted({start, end, *cuts}))


def _inside(hits: Iterable[Found], start: int, end: int) -> list[Found]:
    return [hit for hit in hits if start <= hit.start < end]


def content(reading: Reading, start: int = 0, end: int | None = None) -> frozenset[str]:
    """Return the content words between two positions."""
    found = _WORD.findall(reading.normalized[start:end])
    return frozenset(plain(word) for word in found if word not in reading.fillers)
