"""Secret rules from data files, in addition to the built-in shapes.

A rule has keywords, a pattern, a minimum entropy and exceptions. A rule file is JSON that
``tools/secret_rules.py`` converts from the rules of another scanner. All files in ``secret_data``
apply. A rule's pattern runs only in windows around its keywords. Windows of one rule do not
overlap, and all windows together cover at most 8 times the text. Beyond that, text that looks
generated is redacted without checking the rule. So the time is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from holdfast.secret_scan import Span, lowered, word_pattern
from holdfast.secret_shapes import entropy, is_random

BEFORE, BEHIND = 100, 600
MOST_SCANNED = 8
_TOKEN = re.compile(r"[A-Za-z0-9_+/=.~-]{16,}+")


@dataclass(frozen=True)
class Rule:
    """One kind of secret."""

    id: str
    source: str
    keywords: tuple[str, ...]
    # The group of the secret; 0 is the first group that matched, or else the whole match.
    group: int = 0
    entropy: float = 0.0
    # Values, matches and lines that are not secrets even if the pattern matches.
    allowed_values: tuple[str, ...] = ()
    allowed_matches: tuple[str, ...] = ()
    allowed_lines: tuple[str, ...] = ()
    stopwords: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Rule:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in document.items()
        }
        return cls(**values)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)

    @cached_property
    def _allowed(self) -> tuple[tuple[re.Pattern[str], ...], ...]:
        kinds = (self.allowed_values, self.allowed_matches, self.allowed_lines)
        return tuple(tuple(map(re.compile, kind)) for kind in kinds)

    def find(self, text: str, start: int, end: int) -> Iterator[Span]:
        """Find the secrets of this rule within a window."""
        for found in self.pattern.finditer(text, start, end):
            group = self.group or next((at for at in range(1, found.re.groups + 1) if found[at]), 0)
            value = found[group]
            if (
                value
                and entropy(value) >= self.entropy
                and not self._is_allowed(text, found, value)
            ):
                yield *found.span(group), "secret"

    def _is_allowed(self, text: str, found: re.Match[str], value: str) -> bool:
        values, matches, lines = self._allowed
        if any(one.search(value) for one in values) or any(one.search(found[0]) for one in matches):
            return True
        if self.stopwords and any(word in value.lower() for word in self.stopwords):
            return True
        if not lines:
            return False
        start = text.rfind("\n", max(0, found.start() - BEFORE), found.start()) + 1
        line = text[start : found.end() + BEFORE].partition("\n")[0]
        return any(one.search(line) for one in lines)


@dataclass(frozen=True)
class RuleSet:
    """Rules that are searched together."""

    rules: Sequence[Rule]
    _by_word: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        wanted: dict[str, list[int]] = {}
        for index, rule in enumerate(self.rules):
            for word in rule.keywords:
                wanted.setdefault(word.lower(), []).append(index)
        for word in wanted:
            parts = [index for other in wanted if word.startswith(other) for index in wanted[other]]
            self._by_word[word] = tuple(dict.fromkeys(parts))

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return re.compile(word_pattern(self._by_word))

    def find(self, text: str) -> Iterator[Span]:
        """Find every secret that matches a rule."""
        if not self.rules:
            return
        left = MOST_SCANNED * len(text) + BEFORE + BEHIND
        for index, start, end in self._windows(text):
            left -= end - start
            if left >= 0:
                yield from self.rules[index].find(text, start, end)
            else:
                yield from _strike_random(text, start, end)

    def _windows(self, text: str) -> Iterator[tuple[int, int, int]]:
        """The windows of each rule: around its keywords, with overlapping windows merged."""
        open_windows: dict[int, tuple[int, int]] = {}
        small = lowered(text)
        hit = self._words.search(small)
        while hit is not None:
            at = hit.start()
            for index in self._by_word[hit[0]]:
                start, end = max(0, at - BEFORE), min(len(text), at + BEHIND)
                known = open_windows.get(index)
                if known is not None and start <= known[1]:
                    start = known[0]
                elif known is not None:
                    yield index, *known
                open_windows[index] = (start, end)
            hit = self._words.search(small, at + 1)
        yield from ((index, *window) for index, window in open_windows.items())


def _strike_random(text: str, start: int, end: int) -> Iterator[Span]:
    for found in _TOKEN.finditer(text, start, end):
        if is_random(found[0]):
            yield *found.span(), "secret"


def read_rules(text: str) -> RuleSet:
    """Parse a rule file."""
    return RuleSet([Rule.from_document(one) for one in json.loads(text)["rules"]])


@cache
def installed_rules() -> tuple[RuleSet, ...]:
    """The rules of all files in the package."""
    folder = files("holdfast").joinpath("secret_data")
    if not folder.is_dir():
        return ()
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".json")), key=str)
    return tuple(read_rules(one.read_text("utf-8")) for one in found)
