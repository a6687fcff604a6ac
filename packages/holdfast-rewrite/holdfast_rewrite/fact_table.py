"""The words of `new_facts.toml`, compiled on first use. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast_rewrite.numerals import numerals
from holdfast_rewrite.pattern import one_of, pattern, words

# The sections of facts. Each entry is a concept, such as day.monday.
KINDS = ("day", "month", "holiday", "clock", "thing", "often", "machine")


@dataclass(frozen=True, slots=True)
class FactTable:
    """`new_facts.toml`, compiled: by language, and each concept for all languages together."""

    concepts: Mapping[str, re.Pattern[str]]
    names: Mapping[str, str]
    anywhere: Mapping[str, re.Pattern[str]]
    # Day and month of holidays.
    dates: Mapping[str, tuple[tuple[int, int], ...]]
    capitals: Mapping[str, frozenset[str]]
    greetings: frozenset[str]
    brands: frozenset[str]


@cache
def fact_document() -> dict[str, Any]:
    text = (files("holdfast_rewrite") / "new_facts.toml").read_text("utf-8")
    return tomllib.loads(text)


def _day_of(said: str) -> tuple[int, int]:
    day, _, month = said.partition(".")
    return int(day), int(month)


@cache
def fact_table() -> FactTable:
    document = fact_document()
    languages = tuple(numerals())
    concepts = {
        f"{kind}.{name}": patterns for kind in KINDS for name, patterns in document[kind].items()
    }
    groups = {concept: f"c{place}" for place, concept in enumerate(concepts)}
    return FactTable(
        concepts={
            language: one_of(
                f"(?P<{groups[concept]}>{pattern(patterns[language])})"
                for concept, patterns in concepts.items()
                if language in patterns
            )
            for language in languages
        },
        names={group: concept for concept, group in groups.items()},
        anywhere={
            concept: one_of(map(pattern, patterns.values()))
            for concept, patterns in concepts.items()
        },
        dates={
            f"holiday.{name}": tuple(_day_of(day) for day in days)
            for name, days in document["dates"].items()
        },
        capitals={name: frozenset(words(document["capitals"][name])) for name in languages},
        greetings=frozenset(words(document["capitals"]["greetings"])),
        brands=frozenset(words(document["capitals"]["brands"])),
    )
