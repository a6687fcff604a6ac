"""The lexicon of a language: words and phrases that a rewrite must not contain. Pure.

Each language has a data file under ``lexicons/`` with a version and its sources. A language without
one has no lexicon; another language's is never used instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.enums import Code, Mark
from holdfast_rewrite.normalize_text import Disguise, disguises, normalize_text
from holdfast_rewrite.phrase_matcher import (
    BadPhrase,
    Found,
    OneOf,
    Part,
    Phrases,
    PhraseWord,
    parse,
    spellings,
    words_of,
)

NO_LEXICON = "none"
LOCALES = frozenset({"de", "en", "es", "fr", "it", "nl", "pl", "pt"})

# The other codes are found by comparing the rewrite with the original, or by a judge.
SECTIONS = (Code.VULGARITY, Code.SLUR, Code.PREFERENCE_DISCLOSURE)
# A person can be attacked without any of these words, so a lexicon may lack them.
INSULTS = Code.PERSONAL_ATTACK
# Only words with these codes are commonly disguised.
_DISGUISED = (Code.VULGARITY, Code.SLUR, INSULTS)
_TOP = {"version", "locale", "sources", "openers", "spellings", "sets"}
_EXCEPT = "except:"
# Three letters in a run of letters match by chance.
_SHORTEST_IN_RUN = 4


class BadLexicon(ValueError):
    """A lexicon's data is invalid; the message names the file and the key."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A match: a code and a span of the normalized text."""

    code: Code
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Findings:
    """The matches of a lexicon in a text: codes and positions, no words."""

    codes: tuple[Code, ...]
    hits: tuple[Hit, ...]

    @property
    def lexicon_pass(self) -> bool:
        return not any(code.is_hard for code in self.codes)

    @property
    def tone_safety(self) -> Mark:
        if not self.lexicon_pass:
            return Mark.FAIL
        return Mark.WARN if self.codes else Mark.PASS


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The single words of a code that people disguise."""

    code: Code
    words: frozenset[str]
    beginnings: frozenset[str]
    endings: frozenset[str]
    # Their lengths, and the words and prefixes by first letter.
    sizes: tuple[int, ...]
    firsts: Mapping[str, tuple[str, ...]]

    @classmethod
    def build(
        cls, code: Code, words: frozenset[str], beginnings: frozenset[str], endings: frozenset[str]
    ) -> _Hidden:
        firsts: dict[str, tuple[str, ...]] = {}
        for word in sorted(words | beginnings):
            firsts[word[0]] = (*firsts.get(word[0], ()), word)
        sizes = sorted({len(word) for word in words | beginnings | endings})
        return cls(code, words, beginnings, endings, tuple(sizes), firsts)

    def holds(self, disguise: Disguise) -> bool:
        if disguise.run:
            return self._holds(disguise.run) or self._is_in(disguise.run)
        if disguise.starred is None:
            return any(self._holds(word, disguise.is_joined) for word in disguise.words)
        return any(
            (fits := disguise.starred.fullmatch(word))
            and (fits.lastindex or word in self.beginnings)
            for first in disguise.firsts
            for word in self.firsts.get(first, ())
        )

    def _holds(self, word: str, is_joined: bool = False) -> bool:
        if word in self.words or any(word[:size] in self.beginnings for size in self.sizes):
            return True
        return not is_joined and any(word[-size:] in self.endings for size in self.sizes)

    def _is_in(self, run: str) -> bool:
        """Return whether one of the words occurs in a run of letters."""
        sizes = (size for size in self.sizes if size >= _SHORTEST_IN_RUN)
        return any(
            run[at : at + size] in known
            for size in sizes
            for known in (self.words, self.beginnings, self.endings)
            for at in range(len(run) - size + 1)
        )


class Lexicon:
    """The lexicon of one language."""

    def __init__(self, document: Mapping[str, Any], *, locale: str) -> None:
        """Build the lexicon. Raises BadLexicon."""
        try:
            self._compile(document, locale)
        except (BadPhrase, KeyError, TypeError, AttributeError) as bad:
            raise BadLexicon(f"the lexicon of {locale} cannot be used: {bad}") from bad

    def _compile(self, document: Mapping[str, Any], locale: str) -> None:
        if document["locale"] != locale:
            raise BadLexicon(f"the lexicon of {locale} declares another language")
        if unknown := sorted(set(document) - _TOP - {*SECTIONS, INSULTS}):
            raise BadLexicon(f"the lexicon of {locale} has unknown keys: {', '.join(unknown)}")
        self.locale = locale
        self.version = f"{locale}-{document['version']}"
        self._written: Mapping[str, str] = document.get("spellings", {})
        phrases = list(_phrases(document))
        openers = frozenset(map(normalize_text, document.get("openers", ())))
        self._phrases = Phrases(phrases, written=self._written, openers=openers)
        self._hidden = tuple(self._hide(code, phrases) for code in _DISGUISED)
        used = {char for _, _, parts in phrases for word in words_of(parts) for char in word.text}
        self._letters = frozenset(char for char in used if not char.isascii())

    def _hide(self, code: Code, phrases: list[tuple[str, bool, tuple[Part, ...]]]) -> _Hidden:
        words: dict[tuple[bool, bool], set[str]] = {}
        for key, _, parts in phrases:
            if key == code and len(parts) == 1 and isinstance(word := parts[0], PhraseWord):
                found = words.setdefault((word.opens, word.closes), set())
                found.update(spellings(word.text, self._written))
        return _Hidden.build(
            code,
            frozenset(words.get((False, False), ())),
            frozenset(words.get((False, True), ())),
            frozenset(words.get((True, False), ())),
        )

    @classmethod
    def for_locale(cls, locale: str) -> Lexicon | None:
        """Return the lexicon of a language, or None. Raises BadLexicon."""
        return _packaged(locale)

    @classmethod
    def has(cls, locale: str) -> bool:
        """Return whether a language has a lexicon, without loading it."""
        return locale in LOCALES

    @classmethod
    def version_of(cls, locale: str) -> str:
        """Return the version of a language's lexicon, or ``none``."""
        lexicon = cls.for_locale(locale)
        return lexicon.version if lexicon else NO_LEXICON

    @classmethod
    def read(cls, text: str, *, locale: str) -> Lexicon:
        """Parse a data file's text. Raises BadLexicon."""
        try:
            return cls(tomllib.loads(text), locale=locale)
        except tomllib.TOMLDecodeError as bad:
            raise BadLexicon(f"the lexicon of {locale} is not valid TOML: {bad}") from bad

    def check(self, text: str) -> Findings:
        """Find matches of the lexicon in a text."""
        normalized = normalize_text(text)
        found = list(self._phrases.find(normalized))
        found += self._unhide(normalized)
        excused = [span for span in found if span.key.startswith(_EXCEPT)]
        hits = {
            Hit(Code(span.key), span.start, span.end)
            for span in found
            if not span.key.startswith(_EXCEPT)
            and not any(span.lies_in(other) for other in excused if other.key == _EXCEPT + span.key)
        }
        codes = {hit.code for hit in hits}
        return Findings(
            tuple(code for code in Code if code in codes),
            tuple(sorted(hits, key=lambda hit: (hit.start, hit.end, hit.code))),
        )

    def _unhide(self, normalized: str) -> Iterator[Found]:
        for disguise in disguises(normalized, self._letters):
            for hidden in self._hidden:
                if hidden.holds(disguise):
                    yield Found(hidden.code, disguise.start, disguise.end)


def check_text(locale: str, text: str) -> dict[str, Any]:
    """Check a text with the lexicon of a language; without one, nothing passes."""
    lexicon = Lexicon.for_locale(locale)
    if lexicon is None:
        return {
            "lexicon_pass": None,
            "violations": [],
            "tone_safety": None,
            "lexicon_version": NO_LEXICON,
        }
    findings = lexicon.check(text)
    return {
        "lexicon_pass": findings.lexicon_pass,
        "violations": [code.value for code in findings.codes],
        "tone_safety": findings.tone_safety.value,
        "lexicon_version": lexicon.version,
    }


@cache
def everywhere() -> Lexicon:
    """Return the foul words that no text may contain, whatever its language."""
    path = files("holdfast_rewrite") / "lexicons" / "everywhere.toml"
    return Lexicon.read(path.read_text("utf-8"), locale="everywhere")


# Any text may be passed as a locale, so the cache is bounded.
@lru_cache(maxsize=64)
def _packaged(locale: str) -> Lexicon | None:
    if re.fullmatch(r"[a-z]{2,3}", locale) is None:
        return None
    path = files("holdfast_rewrite") / "lexicons" / f"{locale}.toml"
    if not path.is_file():
        return None
    return Lexicon.read(path.read_text("utf-8"), locale=locale)


def _phrases(document: Mapping[str, Any]) -> Iterator[tuple[str, bool, tuple[Part, ...]]]:
    """Yield the phrases of a lexicon by code, and the exceptions by code."""
    names: dict[str, OneOf] = {}
    for name, phrases in document.get("sets", {}).items():
        names[name] = _one_of(phrases, names)
    for code in (*SECTIONS, INSULTS):
        section = document.get(code, {})
        wanted = "words" if code in _DISGUISED else "phrases"
        if unknown := sorted(set(section) - {wanted, "except"}):
            raise BadLexicon(f"the section {code} has unknown keys: {', '.join(unknown)}")
        for phrase in section.get(wanted, ()):
            yield (code, *parse(phrase, names))
        for phrase in section.get("except", ()):
            yield (_EXCEPT + code, *parse(phrase, names))


def _one_of(phrases: Any, names: Mapping[str, OneOf]) -> OneOf:
    return OneOf(tuple(parse(phrase, names)[1] for phrase in phrases))
