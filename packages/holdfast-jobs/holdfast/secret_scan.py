"""Scans text for many secret shapes in one pass.

Every shape names a word that is part of each of its matches. One pass finds all words. The shape's
pattern is tried only there, at a fixed position and at most once per character. So the time is
linear in the text and does not grow with the number of shapes: 45 ms per MB of code for 143 words,
against 90 ms for the alternation of a third of the shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

Span = tuple[int, int, str]
"""Start, end and kind of a match."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of secret: its words, and a function that matches around one of them.

    *words* are in lower case. *find* gets the text and the position of a word. It must read only a
    bounded part of the text before the word, and must not backtrack after it.
    """

    name: str
    words: tuple[str, ...]
    find: Callable[[str, int], Span | None]


class Scanner:
    """A set of shapes that are searched together."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = tuple(shapes)

    @cached_property
    def _by_word(self) -> dict[str, tuple[int, ...]]:
        """The shapes to try for each word; a word that starts with another one tries both."""
        wanted: dict[str, list[int]] = {}
        for index, shape in enumerate(self.shapes):
            for word in shape.words:
                wanted.setdefault(word, []).append(index)
        found = {}
        for word in wanted:
            shorter = (word[:size] for size in range(1, len(word) + 1))
            indexes = (index for one in shorter for index in wanted.get(one, ()))
            found[word] = tuple(dict.fromkeys(indexes))
        return found

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return re.compile(word_pattern(self._by_word))

    def find(self, text: str) -> Iterator[Span]:
        """Find every secret that matches a shape."""
        done = [0] * len(self.shapes)
        search, by_word = self._words.search, self._by_word
        small = lowered(text)
        hit = search(small)
        while hit is not None:
            at = hit.start()
            for index in by_word[hit[0]]:
                # A word within a match of the same shape is part of that match.
                if at < done[index]:
                    continue
                if (span := self.shapes[index].find(text, at)) is not None:
                    done[index] = span[1]
                    yield span
            hit = search(small, at + 1)


def lowered(text: str) -> str:
    """The text in lower case, with every character at its position."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def word_pattern(words: Sequence[str] | dict[str, tuple[int, ...]]) -> str:
    """A pattern for the longest matching word at a position, built as a prefix tree."""
    tree: _Tree = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _branches(tree)


_Tree = dict[str, "_Tree"]


def _branches(node: _Tree) -> str:
    found = [re.escape(char) + _branches(below) for char, below in sorted(node.items()) if char]
    if not found:
        return ""
    body = found[0] if len(found) == 1 and "" not in node else f"(?:{'|'.join(found)})"
    return body + "?" if "" in node else body


# -- shapes that start with their word


def prefixed(name: str, words: str, pattern: str, *, before: int = 0) -> Shape:
    """A shape whose pattern starts *before* characters in front of one of its words."""
    lazy = _Lazy(pattern)

    def find(text: str, at: int) -> Span | None:
        start = at - before
        found = lazy.pattern.match(text, start) if start >= 0 else None
        if found is None:
            return None
        # A group named "secret" is the secret itself.
        group = "secret" if "secret" in lazy.pattern.groupindex else 0
        return *found.span(group), "secret"

    return Shape(name, tuple(words.split()), find)


class _Lazy:
    """A pattern that is compiled when its word is found: compiling all of them takes 40 ms."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self._source, re.VERBOSE)
