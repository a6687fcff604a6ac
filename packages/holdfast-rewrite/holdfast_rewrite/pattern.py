"""Patterns out of words, as the tables of new_facts.toml write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from holdfast_rewrite.normalize_text import normalize_text, plain


def words(text: str) -> list[str]:
    """The words of a table's entry, without case and diacritics."""
    return plain(normalize_text(text)).split()


def numbered(text: str) -> dict[str, int]:
    """The words of an entry that gives each its number, as word=number."""
    pairs = (pair.partition("=") for pair in words(text))
    return {word: int(number) for word, _, number in pairs}


def one_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Any of these, as whole words."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)")


@lru_cache(maxsize=1024)
def pattern(text: str) -> str:
    """The expression of an entry: * is any ending, a space or hyphen between words is either."""
    text = plain(normalize_text(text)).replace("(", "(?:").replace("*", r"\w*")
    return text.replace("{number}", r"\d{1,2}\.?").replace(" ", r"[\s\-]+")
