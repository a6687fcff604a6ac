"""Find words in a rewrite that call for a second look by a judge or a person. Pure.

A short list of words cannot tell what a text means. So a match only warns: the rewrite is held, or
stored with a flag if the policy allows it. `second_look.toml` holds the words; health and groups
count only if the original does not mention them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.normalize_text import normalize_text, plain
from holdfast_rewrite.pattern import one_of, pattern


class Loaded(StrEnum):
    """What a word hints at."""

    HEALTH = "health"
    GROUP = "group"
    SHAME = "shame"
    THREAT = "threat"


# If the original mentions one of these, the rewrite may too.
_MENTIONED = (Loaded.HEALTH, Loaded.GROUP)
_EVERY = "any"
_POLITE = "polite"
_ACCUSED = "accused"


def loaded_words(
    original: str, rewrite: str, *, source: str, target: str
) -> Iterator[tuple[Loaded, str]]:
    """Yield what the words of a rewrite hint at, with the words."""
    said = plain(normalize_text(rewrite))
    for kind in Loaded:
        found = _search(kind, target, said)
        if found is None:
            continue
        if kind in _MENTIONED and _search(kind, source, plain(normalize_text(original))):
            continue
        yield kind, found[0]


def is_accusing(text: str, language: str) -> bool:
    """Return whether a message says that a person always or never does something."""
    return _search(_ACCUSED, language, plain(normalize_text(text))) is not None


def is_polite(text: str, language: str) -> bool:
    """Return whether a message has a polite word of its language."""
    return _search(_POLITE, language, plain(normalize_text(text))) is not None


def _search(kind: str, language: str, text: str) -> re.Match[str] | None:
    compiled = _compiled(kind, language)
    return compiled.search(text) if compiled else None


@cache
def _table() -> Mapping[str, Any]:
    text = (files("holdfast_rewrite") / "second_look.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def _compiled(kind: str, language: str) -> re.Pattern[str] | None:
    lists: Mapping[str, str] = _table()[kind]
    found = [lists[key] for key in (_EVERY, language) if key in lists]
    return one_of(map(pattern, found)) if found else None
