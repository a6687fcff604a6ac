"""The phrase syntax of lexicons, and its matcher. Pure.

A phrase is words in order, with spaces or light punctuation between them. ``word*`` and ``*word``
leave the end or the beginning open, ``(a|b c)`` is one of several, ``(a)?`` may be missing, ``*``
is one word, ``...`` is up to three, ``{name}`` is one of a named list, and ``^`` in front binds the
phrase to the beginning of a sentence or clause. A letter with a diacritic also stands for the
letter without.

All phrases become one automaton over words, so that a text is read once whatever their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import NamedTuple, TypeAlias

from holdfast_rewrite.normalize_text import normalize_text, plain

GAP = 3
# The maximum of cached transitions. Household talk needs some 5,000; a text of random words from
# the phrases would create a million.
MOST_REMEMBERED = 50_000
_MOST_VARIANTS = 81


class BadPhrase(ValueError):
    """A phrase is invalid."""


@dataclass(frozen=True, slots=True)
class PhraseWord:
    """One word; its ends may be open."""

    text: str
    opens: bool = False
    closes: bool = False


# Compared by identity: a named list is one shared object, and lists are long.
@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """One of several phrases; an empty one makes it optional."""

    phrases: tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class AnyWord:
    """Any one word."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Up to a number of words."""

    most: int


Part: TypeAlias = PhraseWord | AnyWord | OneOf | Gap

_PIECES = re.compile(r"\s*(?:(\.\.\.)|\{(\w+)\}|([()|?^])|([^\s(){}|?^.]+)|(\S))")
# Most entries are one word; it needs no reader.
_SINGLE = re.compile(r"\*?[^\W_]+\*?")
_WORDS = re.compile(r"\*?[^\W_]+\*?|[^\w\s*'\-,/]")


def parse(text: str, names: Mapping[str, OneOf]) -> tuple[bool, tuple[Part, ...]]:
    """Parse a phrase; return whether it is anchored, and its parts. Raises BadPhrase."""
    if _SINGLE.fullmatch(text):
        return False, (_word(normalize_text(text)),)
    pieces = list(_PIECES.finditer(normalize_text(text).strip()))
    is_bound = bool(pieces) and pieces[0].group(3) == "^"
    reader = _Reader(text, pieces[1:] if is_bound else pieces, names)
    parts = reader.sequence()
    if reader.pieces or not parts:
        raise BadPhrase(f"the phrase {text!r} has trailing characters")
    if not any(words_of(parts)):
        raise BadPhrase(f"the phrase {text!r} has no word")
    return is_bound, parts


class _Reader:
    def __init__(self, text: str, pieces: list[re.Match[str]], names: Mapping[str, OneOf]) -> None:
        self.text = text
        self.pieces = pieces[::-1]
        self.names = names

    def sequence(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        while self.pieces and self.pieces[-1].group(3) not in ("|", ")"):
            gap, name, mark, word, _ = self.pieces.pop().groups()
            if gap:
                parts.append(Gap(GAP))
            elif name:
                if name not in self.names:
                    raise BadPhrase(f"the phrase {self.text!r} uses the unknown name {name}")
                parts.append(self.names[name])
            elif mark == "(":
                parts.append(self.group())
            elif word == "*":
                parts.append(AnyWord())
            elif word and (words := _WORDS.findall(word)):
                parts += [_word(found) for found in words]
            else:
                raise BadPhrase(f"the phrase {self.text!r} has a mark where a word should be")
        return tuple(parts)

    def group(self) -> OneOf:
        phrases = [self.sequence()]
        while self.pieces and self.pieces[-1].group(3) == "|":
            self.pieces.pop()
            phrases.append(self.sequence())
        if not self.pieces:
            raise BadPhrase(f"the phrase {self.text!r} has a group without an end")
        self.pieces.pop()
        if () in phrases:
            raise BadPhrase(f"the phrase {self.text!r} has an empty alternative")
        if self.pieces and self.pieces[-1].group(3) == "?":
            self.pieces.pop()
            phrases.append(())
        return OneOf(tuple(phrases))


def _word(text: str) -> PhraseWord:
    return PhraseWord(text.strip("*"), opens=text.startswith("*"), closes=text.endswith("*"))


def spellings(word: str, written: Mapping[str, str]) -> list[str]:
    """Return a word with each diacritic kept, dropped, or *written* in another way."""
    if word.isascii():
        return [word]
    choices = [tuple(dict.fromkeys((c, plain(c), *_also(c, written)))) for c in word]
    return ["".join(chosen) for chosen in islice(product(*choices), _MOST_VARIANTS)]


def _also(char: str, written: Mapping[str, str]) -> Iterator[str]:
    if char in written:
        yield written[char]


@dataclass(slots=True, eq=False)
class _Node:
    """The possible continuations, and the phrases that end here."""

    key: str | None = None
    words: dict[str, list[_Node]] = field(default_factory=dict)
    beginnings: dict[str, list[_Node]] = field(default_factory=dict)
    endings: dict[str, list[_Node]] = field(default_factory=dict)
    middles: dict[str, list[_Node]] = field(default_factory=dict)
    any_word: list[_Node] = field(default_factory=list)

    def after(self, seen: Seen) -> Iterator[_Node]:
        word, beginnings, endings, middles = seen
        if word is not None:
            yield from self.words.get(word, ())
        for text in beginnings:
            yield from self.beginnings.get(text, ())
        for text in endings:
            yield from self.endings.get(text, ())
        for text in middles:
            yield from self.middles.get(text, ())
        yield from self.any_word


# What the phrases know of a word: itself, and its known prefixes, suffixes and infixes. It consists
# of the phrases' own words, so the cache contains nothing of a text.
Seen: TypeAlias = tuple[str | None, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_UNKNOWN: Seen = (None, (), (), ())


@dataclass(slots=True, eq=False)
class _State:
    """The set of nodes that the words so far lead to."""

    nodes: tuple[_Node, ...]
    keys: tuple[str, ...]
    moves: dict[Seen, _State] = field(default_factory=dict)


class Token(NamedTuple):
    """One word of a normalized text."""

    text: str
    start: int
    end: int
    # Nothing matches across the end of a sentence.
    begins_sentence: bool
    begins_clause: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A match of *key* between two positions of the normalized text."""

    key: str
    start: int
    end: int

    def lies_in(self, other: Found) -> bool:
        return other.start <= self.start and self.end <= other.end


class Phrases:
    """The compiled phrases of a lexicon, by key."""

    def __init__(
        self,
        phrases: Iterable[tuple[str, bool, tuple[Part, ...]]],
        *,
        written: Mapping[str, str] | None = None,
        openers: frozenset[str] = frozenset(),
    ) -> None:
        self._written = written or {}
        self._openers = openers
        self._memo: dict[tuple[str, tuple[Part, ...]], _Node] = {}
        self._anywhere = _Node()
        self._bound = _Node()
        symbols: set[str] = set()
        for key, is_bound, parts in phrases:
            self._fill(self._bound if is_bound else self._anywhere, key, parts)
            symbols |= {c for word in words_of(parts) for c in word.text if not c.isalnum()}
        marks = "".join(map(re.escape, sorted(symbols)))
        self._tokens = re.compile(rf"[^\W_]+|[{marks}]" if marks else r"[^\W_]+")
        nodes = (self._anywhere, self._bound, *self._memo.values())
        self._memo.clear()
        self._words = {text for node in nodes for text in node.words}
        self._beginnings = {text for node in nodes for text in node.beginnings}
        self._endings = {text for node in nodes for text in node.endings}
        self._middles = tuple(dict.fromkeys(text for node in nodes for text in node.middles))
        self._beginning_lengths = tuple(sorted({len(text) for text in self._beginnings}))
        self._ending_lengths = tuple(sorted({len(text) for text in self._endings}))
        self._states: dict[tuple[_Node, ...], _State] = {}
        self._remembered = 0
        self._start = self._state((self._anywhere,))
        self._clause_start = self._state((self._anywhere, self._bound))

    def _node(self, key: str, parts: tuple[Part, ...]) -> _Node:
        # Phrases with the same ending share nodes, so a list of traits is stored once.
        node = self._memo.get((key, parts))
        if node is None:
            node = self._memo[key, parts] = _Node()
            self._fill(node, key, parts)
        return node

    def _fill(self, node: _Node, key: str, parts: tuple[Part, ...]) -> None:
        if not parts:
            node.key = key
            return
        part, rest = parts[0], parts[1:]
        match part:
            case OneOf():
                for phrase in part.phrases:
                    self._fill(node, key, (*phrase, *rest))
            case Gap():
                self._fill(node, key, rest)
                if part.most:
                    node.any_word.append(self._node(key, (Gap(part.most - 1), *rest)))
            case AnyWord():
                node.any_word.append(self._node(key, rest))
            case PhraseWord():
                after = self._node(key, rest)
                for text in spellings(part.text, self._written):
                    self._step(node, part, text, after)

    @staticmethod
    def _step(node: _Node, word: PhraseWord, text: str, after: _Node) -> None:
        match word.opens, word.closes:
            case True, True:
                edges = node.middles
            case True, False:
                edges = node.endings
            case False, True:
                edges = node.beginnings
            case _:
                edges = node.words
        edges.setdefault(text, []).append(after)

    def _see(self, word: str) -> Seen:
        size = len(word)
        beginnings = [
            word[:length]
            for length in self._beginning_lengths
            if length <= size and word[:length] in self._beginnings
        ]
        endings = [
            word[-length:]
            for length in self._ending_lengths
            if length <= size and word[-length:] in self._endings
        ]
        known = word if word in self._words else None
        middles = tuple(text for text in self._middles if text in word)
        if known is None and not beginnings and not endings and not middles:
            return _UNKNOWN
        return known, tuple(beginnings), tuple(endings), middles

    def _move(self, state: _State, seen: Seen) -> _State:
        """Return the state after a word, from the cache if known."""
        found = state.moves.get(seen)
        if found is None:
            if self._remembered >= MOST_REMEMBERED:
                self._forget()
            self._remembered += 1
            after = dict.fromkeys(n for node in state.nodes for n in node.after(seen))
            found = state.moves[seen] = self._state(tuple(after))
        return found

    def _forget(self) -> None:
        # Other threads keep the states that they hold.
        self._remembered = 0
        self._states = {state.nodes: state for state in (self._start, self._clause_start)}
        for state in self._states.values():
            state.moves = {}

    def _state(self, nodes: tuple[_Node, ...]) -> _State:
        found = self._states.get(nodes)
        if found is None:
            keys = dict.fromkeys(node.key for node in nodes if node.key is not None)
            found = self._states[nodes] = _State(nodes, tuple(keys))
        return found

    def find(self, normalized: str) -> Iterator[Found]:
        """Find all phrases in a normalized text, the longest of each key from each word."""
        tokens = self._read(normalized)
        seen = [self._see(token.text) for token in tokens]
        for first, token in enumerate(tokens):
            state = self._move(
                self._clause_start if token.begins_clause else self._start, seen[first]
            )
            ends: dict[str, int] = {}
            at = first
            while state.nodes:
                for key in state.keys:
                    ends[key] = tokens[at].end
                at += 1
                if at == len(tokens) or tokens[at].begins_sentence:
                    break
                state = self._move(state, seen[at])
            for key, end in ends.items():
                yield Found(key, token.start, end)

    def _read(self, normalized: str) -> list[Token]:
        found = list(self._tokens.finditer(normalized))
        between = [
            normalized[before.end() if before else 0 : word.start()]
            for before, word in zip((None, *found), found, strict=False)
        ]
        # Most words are one space apart.
        ends = [gap != " " and _SENTENCE.search(gap) is not None for gap in between]
        tokens: list[Token] = []
        opens = True
        is_question = False
        for at, (word, gap) in enumerate(zip(found, between, strict=True)):
            begins = at == 0 or ends[at]
            if begins:
                is_question = _is_question(normalized, found, ends, at)
            # After a comma in a question, another request follows, not a command.
            clause = begins or opens or (gap != " " and _begins_clause(gap, is_question))
            text = word.group()
            tokens.append(Token(text, word.start(), word.end(), begins, clause))
            opens = clause and text in self._openers
        return tokens


def _is_question(normalized: str, found: list[re.Match[str]], ends: list[bool], at: int) -> bool:
    """Return whether the sentence that begins with a word ends with a question mark."""
    after = next((i for i in range(at + 1, len(found)) if ends[i]), None)
    if after is None:
        return "?" in normalized[found[-1].end() :]
    return "?" in normalized[found[after - 1].end() : found[after].start()]


def _begins_clause(gap: str, is_question: bool) -> bool:
    return "\n" in gap or (not is_question and _CLAUSE.search(gap) is not None)


# An ellipsis does not end a sentence: "you... idiot" is one.
_SENTENCE = re.compile(r"[!?;:¡¿]|(?<!\.)\.(?!\.)|\n\s*\n")
_CLAUSE = re.compile(r"[,()\"“”„«»\u2013\u2014]|\s-+\s|\.\.")


def words_of(parts: Iterable[Part]) -> Iterator[PhraseWord]:
    """Yield all words of a phrase."""
    for part in parts:
        if isinstance(part, PhraseWord):
            yield part
        elif isinstance(part, OneOf):
            for phrase in part.phrases:
                yield from words_of(phrase)
