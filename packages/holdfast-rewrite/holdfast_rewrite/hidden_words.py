# ruff: noqa: RUF001 — apostrophes as people write them
"""Other readings of words that are none in their language, for the check of foul words. Pure.

The lexicons recognize symbols, look-alikes and set-apart letters themselves. These readings would
find too much in ordinary words, so a word must be unknown or contain a sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from holdfast_rewrite.normalize_text import normalize_text, plain
from holdfast_rewrite.sentence_language import frequencies

_WORD = re.compile(r"[^\W\d_]{4,}")
_TWO_WORDS = re.compile(r"(?<![^\W_])(?=([^\W\d_]{2,})[ .,_-]{1,2}([^\W\d_]{2,})(?![^\W_]))")
_SIGNED = re.compile(r"(?<!\w)[^\W_]{0,20}[^\W\d_][_@*#][^\W_]{1,20}")
_ELIDED = re.compile(r"(?<!\w)[^\W\d_]{1,2}['’](\S{3,})")
_INSIDE = re.compile(r"(?<=[^\W_])[_@](?=[^\W_])")
# A word with this many diacritics does not exist in the eight languages.
_MOST_DIACRITICS = 2
# Less frequent words, or none.
_COMMON = 4.0
_FEWEST_JOINED = 5


def hidden_words(text: str, language: str) -> str:
    """Return what the strange words of a text may stand for, as sentences of one word."""
    seen = normalize_text(text)
    known = frequencies().get(language, {})
    strange = [word for word in _WORD.findall(seen) if word not in known]
    found = dict.fromkeys(
        (*_readings(strange), *_joined(seen, known), *_signed(seen), *_ELIDED.findall(seen))
    )
    return ". ".join(found)


def _readings(strange: list[str]) -> Iterator[str]:
    for word in strange:
        # "kcuf", "cvnt"
        yield word[::-1]
        if "v" in word:
            yield word.replace("v", "u")
        bare = plain(word)
        if sum(one != other for one, other in zip(word, bare, strict=False)) > _MOST_DIACRITICS:
            yield bare


def _joined(text: str, known: Mapping[str, float]) -> Iterator[str]:
    """Yield neighbouring words in one, if one of them is no common word: "ver dammt"."""
    for first, second in _TWO_WORDS.findall(text):
        is_odd = min(known.get(first, 0.0), known.get(second, 0.0)) < _COMMON
        if is_odd and len(first + second) >= _FEWEST_JOINED:
            yield first + second


def _signed(text: str) -> Iterator[str]:
    """Yield words with a sign for any letter: "sh_t", "assh@le"."""
    for word in _SIGNED.findall(text):
        yield _INSIDE.sub("*", word)
