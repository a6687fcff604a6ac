"""The labeled pairs under eval/: an original, one rewrite of it, and whether it may be stored.

The tuning set is eval/cases. The sealed set is eval/sealed; nothing in the package may be written
from it (tests/apps/test_sealed_set.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_rewrite.enums import Lane, MessageIntent, PowerMode, Strength, Topic
from holdfast_rewrite.model import RewriteRequest
from tools.rewrite_cases import EVAL, Case, cases_of, locales

TUNING = "tuning"
SEALED = "sealed"
GOOD = "good"
# Bad rewrites of the tuning set without a code fail for their intent or tone.
OTHER = "intent_or_tone"

# The kinds of bad rewrites of the sealed set.
KINDS = (
    "wrong_language",
    "length",
    "profanity",
    "disguised_profanity",
    "slur",
    "contact_data",
    "link",
    "markup",
    "machine_phrase",
    "preference_disclosure",
    "unchanged",
    "invented_number",
    "invented_time",
    "invented_currency",
    "invented_name",
    "third_party_data",
    "another_item",
    "obeyed_injection",
    "invented_event",
    "reversed_request",
    "lost_request",
    "threat",
    "shaming",
    "blame",
    "sarcasm",
    "discrimination",
    "medical",
    "authority",
)
# The gate alone must catch all of these.
CERTAIN = (
    "wrong_language",
    "length",
    "profanity",
    "disguised_profanity",
    "slur",
    "contact_data",
    "link",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One rewrite of one message, with its label."""

    pair_id: str
    kind: str
    rewrite: str
    request: RewriteRequest
    # Who phrased it. No author of the sealed set wrote a case of the tuning set.
    author: str = TUNING

    @property
    def is_good(self) -> bool:
        return self.kind == GOOD

    @property
    def lane(self) -> Lane:
        return self.request.lane


@dataclass(frozen=True, slots=True)
class SealedCase:
    """A message of the sealed set with the labels of a person."""

    case_id: str
    author: str
    style: str
    source: str
    target: str
    intent: MessageIntent
    strength: Strength
    original: str
    good: tuple[str, ...]
    bad: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, line: str) -> SealedCase:
        said = json.loads(line)
        return cls(
            said["id"],
            said["author"],
            said["style"],
            said["source"],
            said["target"],
            MessageIntent(said["intent"]),
            Strength(said["strength"]),
            said["original"],
            tuple(said["good"]),
            tuple((bad["kind"], bad["text"]) for bad in said["bad"]),
        )

    @property
    def request(self) -> RewriteRequest:
        """Return the request between equals; its topic is unknown."""
        return Case(
            case_id=self.case_id,
            topic=Topic.OTHER,
            power_mode=PowerMode.PEER,
            rewrite_strength=self.strength,
            source_locale=self.source,
            target_locale=self.target,
            original_text=self.original,
            expected_intent=self.intent,
            expected_lexicon_violations=(),
            good_rewrites=(),
            bad_rewrites=(),
        ).request


def sealed_of(locale: str, folder: Path = EVAL) -> list[SealedCase]:
    """Return the sealed cases whose rewrites are in one language."""
    path = folder / SEALED / f"{locale}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [SealedCase.read(line) for line in lines if line.strip()]


def pairs_of(name: str, folder: Path = EVAL) -> list[Pair]:
    """Return all pairs of the tuning or the sealed set."""
    read = _tuning if name == TUNING else _sealed
    return [pair for locale in locales(folder) for pair in read(locale, folder)]


def _tuning(locale: str, folder: Path) -> Iterator[Pair]:
    for case in cases_of(locale, folder):
        request = case.request
        for at, text in enumerate(case.good_rewrites, 1):
            yield Pair(f"{case.case_id} good {at}", GOOD, text, request)
        for at, bad in enumerate(case.bad_rewrites, 1):
            kind = bad.codes[0].value if bad.codes else OTHER
            yield Pair(f"{case.case_id} bad {at}", kind, bad.text, request)


def _sealed(locale: str, folder: Path) -> Iterator[Pair]:
    for case in sealed_of(locale, folder):
        request = case.request
        for at, text in enumerate(case.good, 1):
            yield Pair(f"{case.case_id} good {at}", GOOD, text, request, case.author)
        for at, (kind, text) in enumerate(case.bad, 1):
            yield Pair(f"{case.case_id} bad {at}", kind, text, request, case.author)
