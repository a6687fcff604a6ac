"""The cases under eval/: messages, their problems, and rewrites that must pass or fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_rewrite.context_pack import build_pack
from holdfast_rewrite.enums import (
    CLASSIFIER_VERSION,
    CONTEXT_VERSION,
    POLICY_VERSION,
    Code,
    HomeRole,
    Lane,
    Level,
    MessageIntent,
    PowerMode,
    SafetyFlag,
    Strength,
    Surface,
    Topic,
)
from holdfast_rewrite.model import ClassifierResult, Confidences, RewriteRequest
from holdfast_rewrite.policy import policy_of

ROOT = Path(__file__).resolve().parent.parent
EVAL = ROOT / "eval"

ROLES = {
    PowerMode.HIGHER_SENDER: (HomeRole.OWNER, HomeRole.HOUSEMATE),
    PowerMode.HIGHER_RECIPIENT: (HomeRole.HOUSEMATE, HomeRole.OWNER),
    PowerMode.PEER: (HomeRole.HOUSEMATE, HomeRole.HOUSEMATE),
}


@dataclass(frozen=True, slots=True)
class Bad:
    """A rewrite that must fail with at least these codes; without codes, by its intent or tone."""

    text: str
    codes: tuple[Code, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One message, its problems, and rewrites of it that must pass or fail."""

    case_id: str
    topic: Topic
    power_mode: PowerMode
    rewrite_strength: Strength
    source_locale: str
    target_locale: str
    original_text: str
    expected_intent: MessageIntent
    expected_lexicon_violations: tuple[Code, ...]
    good_rewrites: tuple[str, ...]
    bad_rewrites: tuple[Bad, ...]
    notes: str = ""

    @classmethod
    def read(cls, line: str) -> Case:
        said: dict[str, Any] = json.loads(line)
        return cls(
            **{
                **said,
                "topic": Topic(said["topic"]),
                "power_mode": PowerMode(said["power_mode"]),
                "rewrite_strength": Strength(said["rewrite_strength"]),
                "expected_intent": MessageIntent(said["expected_intent"]),
                "expected_lexicon_violations": tuple(
                    map(Code, said["expected_lexicon_violations"])
                ),
                "good_rewrites": tuple(said["good_rewrites"]),
                "bad_rewrites": tuple(
                    Bad(bad["text"], tuple(map(Code, bad["codes"]))) for bad in said["bad_rewrites"]
                ),
            }
        )

    @property
    def request(self) -> RewriteRequest:
        """Return the request of the case, with a correct classification."""
        topics = (self.topic,)
        sender, recipient = ROLES[self.power_mode]
        result = ClassifierResult(
            classifier_version=CLASSIFIER_VERSION,
            detected_language=self.source_locale,
            topics=topics,
            intent=self.expected_intent,
            rewrite_strength=self.rewrite_strength,
            confidence=Confidences(Level.HIGH, Level.HIGH, Level.HIGH),
            safety_flags=(SafetyFlag.NONE,),
        )
        pack = build_pack(
            recipient_user_id="recipient",
            target_language=self.target_locale,
            sender_role=sender,
            recipient_role=recipient,
            topics=topics,
            answers={},
        )
        return RewriteRequest(
            rewrite_request_id=self.case_id,
            home_id="home",
            sender_user_id="sender",
            recipient_user_id="recipient",
            recipient_snapshot_id="snapshot",
            recipient_preference_snapshot_id="snapshot",
            surface=Surface.WEEKLY_HARMONY,
            original_text=self.original_text,
            topics=topics,
            intent=self.expected_intent,
            rewrite_strength=self.rewrite_strength,
            source_locale=self.source_locale,
            target_locale=self.target_locale,
            lane=Lane.between(self.source_locale, self.target_locale),
            classifier_result=result,
            context_pack=pack,
            policy=policy_of(result, pack),
            classifier_version=CLASSIFIER_VERSION,
            context_pack_version=CONTEXT_VERSION,
            policy_version=POLICY_VERSION,
            created_at="2026-01-05T00:00:00.000Z",
        )


def cases_of(locale: str, folder: Path = EVAL) -> list[Case]:
    """Return the cases of one language."""
    lines = (folder / "cases" / f"{locale}.jsonl").read_text("utf-8").splitlines()
    return [Case.read(line) for line in lines if line.strip()]


def originals_of(locale: str, folder: Path = EVAL) -> Iterator[tuple[str, str, tuple[Code, ...]]]:
    """Yield messages without rewrites, and their problems; some languages have none."""
    path = folder / "originals" / f"{locale}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    for at, said in enumerate(map(json.loads, lines), 1):
        codes = tuple(map(Code, said["expected_lexicon_violations"]))
        yield f"{locale}-more-{at:03}", said["original_text"], codes


def polite_of(locale: str, folder: Path = EVAL) -> list[str]:
    """Return the polite sentences of one language."""
    lines = (folder / "polite" / f"{locale}.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line.strip()]


def locales(folder: Path = EVAL) -> list[str]:
    """Return the languages that have cases."""
    return sorted(path.stem for path in (folder / "cases").glob("*.jsonl"))
