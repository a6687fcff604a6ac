"""Build patterns from the word lists of new_facts.toml. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from holdfast_rewrite.normalize_text import normalize_text, plain


def words(text: str) -> list[str]:
    """Return the words of an entry, without case and diacritics."""
    return plain(normalize_text(text)).split()


def numbered(text: str) -> dict[str, int]:
    """Return the words of an entry of the form word=number, with their numbers."""
    pairs = (pair.partition("=") for pair in words(text))
    return {word: int(number) for word, _, number in pairs}


def one_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Match any of these, as whole words."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)")


@lru_cache(maxsize=1024)
def pattern(text: str) -> str:
    """Compile an entry: * is any ending; a space or hyphen between words matches either."""
    text = re.sub(r"\((?!\?)", "(?:", plain(normalize_text(text))).replace("*", r"\w*")
    return text.replace("{number}", r"\d{1,2}\.?").replace(" ", r"[\s\-]+")
