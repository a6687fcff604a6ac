"""Scans text for many secret shapes in one pass over it.

Every shape names a word that is part of each of its matches. One pass finds all words, and only
there the shape's own pattern is tried, at a fixed place and at most once per character. So the time
is linear in the text, whatever the text is, and does not grow with the number of shapes: 45 ms per
MB of code for 143 words, against 90 ms for the alternation of a third of the shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

Span = tuple[int, int, str]
"""Where something begins and ends, and what it is."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of secret: words, and what to look for where one of them is.

    *words* are in lower case. *find* gets the text and the place of a word, and must look only at
    a bounded part of the text before it and take what it reads behind it without giving it back.
    """

    name: str
    words: tuple[str, ...]
    find: Callable[[str, int], Span | None]


class Scanner:
    """All shapes together."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = tuple(shapes)

    @cached_property
    def _by_word(self) -> dict[str, tuple[int, ...]]:
        """The shapes to try for each word; a word that begins with another one tries both."""
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
        """Every secret that a shape knows."""
        done = [0] * len(self.shapes)
        search, by_word = self._words.search, self._by_word
        small = lowered(text)
        hit = search(small)
        while hit is not None:
            at = hit.start()
            for index in by_word[hit[0]]:
                # What lies within a match of the same shape is part of it.
                if at < done[index]:
                    continue
                if (span := self.shapes[index].find(text, at)) is not None:
                    done[index] = span[1]
                    yield span
            hit = search(small, at + 1)


def lowered(text: str) -> str:
    """The text in lower case, with every character where it was."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def word_pattern(words: Sequence[str] | dict[str, tuple[int, ...]]) -> str:
    """A pattern for the longest of the words at a place, as a tree of their letters."""
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


# -- shapes that begin with their word


def prefixed(name: str, words: str, pattern: str, *, before: int = 0) -> Shape:
    """A shape whose pattern begins *before* characters in front of one of its words."""
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
    """A pattern that is compiled when its word is seen: compiling them all takes 40 ms."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self._source, re.VERBOSE)
