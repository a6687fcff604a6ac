"""Rules for topic, intent and tone of a language, loaded from ``rules/``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.enums import Topic
from holdfast_rewrite.normalize_text import normalize_text
from holdfast_rewrite.phrase_matcher import Found, Part, Phrases, parse

LOCALES = ("de", "en", "es", "fr", "it", "nl", "pl", "pt")

# The content of a file: sections of phrases, weak phrases, and exceptions to both.
SECTIONS = (
    *(f"topics.{topic.value}" for topic in Topic),
    *(f"intent.{name}" for name in ("request", "boundary", "concern", "question", "withdrawn")),
    *(f"tone.{name}" for name in ("sharp", "intense")),
)
_LISTS = frozenset({"phrases", "weak", "except"})
_TOP = frozenset({"version", "locale", "openers", "contrast", "topics", "intent", "tone"})
_CONTRAST = "contrast"
# People also write dont and jai.
_APOSTROPHE = re.compile(r"([^\W_]+)'([^\W_]+\*?)")
_SENTENCE_END = re.compile(r"[.!?…;:\n]")


class BadRules(ValueError):
    """A rules file is invalid; the message names the file and the section."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The matches of a section: the number of distinct phrases and weak phrases, and positions."""

    strong: int
    weak: int
    hits: tuple[Found, ...]

    @property
    def score(self) -> int:
        return 2 * self.strong + self.weak

    def between(self, start: int, end: int) -> list[Found]:
        """Return the matches that begin between two positions."""
        return [hit for hit in self.hits if start <= hit.start < end]


NOTHING = Evidence(0, 0, ())


@dataclass(frozen=True, slots=True)
class Reading:
    """The matches of one language's rules in a text."""

    normalized: str
    sections: Mapping[str, Evidence]
    # The positions of "but" and similar words.
    contrasts: tuple[int, ...]

    def section(self, section: str) -> Evidence:
        return self.sections.get(section, NOTHING)

    @property
    def weight(self) -> int:
        """Return how much evidence there is for topic, intent and tone."""
        return sum(self.section(section).score for section in SECTIONS)

    def clause(self, hit: Found) -> tuple[int, int]:
        """Return the clause around *hit*: its sentence, split at every "but"."""
        ends = (found.end() for found in _SENTENCE_END.finditer(self.normalized))
        edges = sorted({*ends, *self.contrasts})
        start = max((edge for edge in edges if edge <= hit.start), default=0)
        end = min((edge for edge in edges if edge > hit.start), default=len(self.normalized))
        return start, end


class Rules:
    """The rules of one language."""

    def __init__(self, document: Mapping[str, Any], *, locale: str) -> None:
        """Build the rules. Raises BadRules."""
        try:
            if document["locale"] != locale or set(document) != _TOP:
                raise BadRules(f"rules/{locale}.toml: the keys must be {', '.join(sorted(_TOP))}.")
            openers = frozenset(map(normalize_text, document["openers"]))
            self._phrases = Phrases(_phrases(document), openers=openers)
        except (KeyError, TypeError, AttributeError, ValueError) as bad:
            raise BadRules(f"rules/{locale}.toml cannot be used: {bad}") from bad

    @staticmethod
    def for_locale(locale: str) -> Rules | None:
        """Return the rules of a language, cached; None if there are none."""
        return _packaged(locale) if locale in LOCALES else None

    def read(self, text: str) -> Reading:
        """Apply the rules to a text."""
        normalized = normalize_text(text)
        found: dict[str, list[Found]] = {}
        for hit in self._phrases.find(normalized):
            found.setdefault(hit.key, []).append(hit)
        sections = {}
        for section in SECTIONS:
            strong, weak = found.get(f"{section}/phrases"), found.get(f"{section}/weak")
            if strong or weak:
                shields = found.get(f"{section}/except", ())
                sections[section] = _evidence(normalized, strong or (), weak or (), shields)
        contrasts = tuple(hit.start for hit in found.get(_CONTRAST, ()))
        return Reading(normalized, sections, contrasts)


def _evidence(
    normalized: str, strong: Sequence[Found], weak: Sequence[Found], shields: Sequence[Found]
) -> Evidence:
    strong = [hit for hit in strong if not any(map(hit.lies_in, shields))]
    # "My messages" is one phrase, though "messages" may be another.
    outer = [
        hit for hit in strong if not any(hit.lies_in(other) for other in strong if other != hit)
    ]
    # A weak word inside a matched phrase adds nothing.
    weak = [hit for hit in weak if not any(map(hit.lies_in, (*shields, *strong)))]
    return Evidence(_different(normalized, outer), _different(normalized, weak), (*strong, *weak))


def _different(normalized: str, hits: Sequence[Found]) -> int:
    return len({normalized[hit.start : hit.end] for hit in hits})


@lru_cache(maxsize=len(LOCALES))
def _packaged(locale: str) -> Rules:
    path = files("holdfast_rewrite") / "rules" / f"{locale}.toml"
    return Rules(tomllib.loads(path.read_text("utf-8")), locale=locale)


def _phrases(document: Mapping[str, Any]) -> Iterator[tuple[str, bool, tuple[Part, ...]]]:
    for phrase in document[_CONTRAST]:
        yield (_CONTRAST, *parse(phrase, {}))
    for section in SECTIONS:
        group, _, name = section.partition(".")
        found = document[group][name]
        if set(found) != _LISTS:
            raise BadRules(f"[{section}] must hold {', '.join(sorted(_LISTS))}")
        for kind, phrases in found.items():
            for phrase in phrases:
                written = _APOSTROPHE.sub(r"(\1'\2|\1\2)", phrase)
                yield (f"{section}/{kind}", *parse(written, {}))
