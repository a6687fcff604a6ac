"""The documents of the complaint rewrite, stored and in memory. Pure.

Each type parses its document strictly: a missing field, an unknown word or an extra field raises
BadRewrite; there are no defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from hashlib import sha256
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from holdfast.document import canonical
from holdfast_rewrite.enums import (
    CLASSIFIER_VERSION,
    CONTEXT_VERSION,
    Code,
    Directness,
    HomeRole,
    Lane,
    Level,
    Mark,
    MessageIntent,
    PowerMode,
    RepairTiming,
    SafetyFlag,
    Strength,
    Surface,
    Temperature,
    Tone,
    ToneMultiplier,
    Topic,
)


class BadRewrite(ValueError):
    """A document is invalid; the message names the field and never quotes a value."""


class Document:
    """Base of the frozen dataclasses: serialization and strict parsing."""

    __slots__ = ()

    @property
    def document(self) -> dict[str, Any]:
        """Return the value as plain JSON, without absent optional fields."""
        return {
            name: value if type(value) is str else _write(value)
            for name, is_needed in _fields(type(self))
            if (value := getattr(self, name)) is not None or is_needed
        }

    @classmethod
    def read(cls, document: object) -> Self:
        """Parse a document. Raises BadRewrite."""
        found: Self = _read_object(cls, document, cls.__name__)
        return found


@dataclass(frozen=True, slots=True)
class Confidences(Document):
    """A classifier's confidence in each answer. An absent language confidence counts as low."""

    topic_confidence: Level
    intent_confidence: Level
    language_confidence: Level | None = None


@dataclass(frozen=True, slots=True)
class ClassifierResult(Document):
    """ClassifierResultV1: topics, intent and strength of a message."""

    classifier_version: str
    detected_language: str
    topics: tuple[Topic, ...]
    intent: MessageIntent
    rewrite_strength: Strength
    confidence: Confidences
    safety_flags: tuple[SafetyFlag, ...]

    def __post_init__(self) -> None:
        if not self.topics or len(set(self.topics)) != len(self.topics):
            raise BadRewrite("topics must be one or more, each once")
        flags = self.safety_flags
        if not flags or len(set(flags)) != len(flags):
            raise BadRewrite("safety_flags must be one or more, each once")
        if SafetyFlag.NONE in flags and len(flags) > 1:
            raise BadRewrite("safety_flags: none cannot be combined with other flags")

    @property
    def language_confidence(self) -> Level:
        return self.confidence.language_confidence or Level.LOW


# Used when a classifier fails or times out.
SAFE_DEFAULTS = ClassifierResult(
    classifier_version=CLASSIFIER_VERSION,
    detected_language="und",
    topics=(Topic.OTHER,),
    intent=MessageIntent.CONCERN,
    rewrite_strength=Strength.FULL_REFRAME,
    confidence=Confidences(Level.LOW, Level.LOW, Level.LOW),
    safety_flags=(SafetyFlag.NONE,),
)


@dataclass(frozen=True, slots=True)
class Power(Document):
    """The power relation, and how much gentler it makes the tone."""

    sender_role: HomeRole
    recipient_role: HomeRole
    power_mode: PowerMode
    tone_multiplier: ToneMultiplier


@dataclass(frozen=True, slots=True)
class TopicScope(Document):
    """The preferences that the topics include, and those that they exclude."""

    topics: tuple[Topic, ...]
    included_preference_ids: tuple[str, ...]
    excluded_preference_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instructions(Document):
    """Phrasing instructions. The lists are open codes; the last two are never empty."""

    tone: str
    directness: Directness
    repair_timing: RepairTiming
    framing: tuple[str, ...]
    avoid: tuple[str, ...]
    do_not_add: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.tone != "warm_clear":
            raise BadRewrite("instructions.tone must be warm_clear")
        if not self.avoid or not self.do_not_add:
            raise BadRewrite("instructions.avoid and do_not_add must not be empty")


@dataclass(frozen=True, slots=True)
class RecipientSignal(Document):
    """One preference of the recipient, as a phrasing instruction."""

    preference_id: str
    value_key: str
    instruction: str


@dataclass(frozen=True, slots=True)
class ContextPack(Document):
    """RecipientContextPackV1: all that a model learns about the recipient."""

    context_version: str
    recipient_user_id: str
    target_language: str
    power: Power
    topic_scope: TopicScope
    instructions: Instructions
    recipient_signals: tuple[RecipientSignal, ...]
    safety_notes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.context_version != CONTEXT_VERSION:
            raise BadRewrite("context_version is unknown")
        if not self.topic_scope.topics:
            raise BadRewrite("topic_scope.topics must not be empty")


@dataclass(frozen=True, slots=True)
class Policy(Document):
    """RewritePolicyV1: tone, temperature and strength."""

    tone: Tone
    directness: Directness
    emotional_temperature: Temperature
    rewrite_strength: Strength


@dataclass(frozen=True, slots=True)
class RewriteRequest(Document):
    """RewriteRequestV1: one message for one recipient. It contains the original text."""

    rewrite_request_id: str
    home_id: str
    sender_user_id: str
    recipient_user_id: str
    recipient_snapshot_id: str
    recipient_preference_snapshot_id: str
    surface: Surface
    original_text: str = field(repr=False)
    topics: tuple[Topic, ...]
    intent: MessageIntent
    rewrite_strength: Strength
    source_locale: str
    target_locale: str
    lane: Lane
    classifier_result: ClassifierResult
    context_pack: ContextPack
    policy: Policy
    classifier_version: str
    context_pack_version: str
    policy_version: str
    created_at: str

    def __post_init__(self) -> None:
        for name in ("source_locale", "target_locale"):
            if getattr(self, name) in ("", "und", "unknown"):
                raise BadRewrite(f"{name} must name a language")
        if self.lane is not Lane.between(self.source_locale, self.target_locale):
            raise BadRewrite("lane must follow from the two locales")
        if self.context_pack.recipient_user_id != self.recipient_user_id:
            raise BadRewrite("context_pack belongs to another request")
        if self.context_pack.target_language != self.target_locale:
            raise BadRewrite("context_pack is for another language")

    @property
    def hash(self) -> str:
        """Return the SHA-256 of the canonical form."""
        return sha256(canonical(self.document).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class EvalResult(Document):
    """RewriteEvalResultV1: the validation result. It contains codes, never text."""

    schema_valid: bool
    # None if the locale has no lexicon and was not checked.
    lexicon_pass: bool | None
    tone_safety: Mark
    intent_preserved: Mark
    violations: tuple[Code, ...]
    judge_version: str
    dataset_version: str
    # Such as language_unverified.
    flags: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        return {
            "schema_valid": self.schema_valid,
            "lexicon_pass": self.lexicon_pass,
            "tone_safety": self.tone_safety.value,
            "intent_preserved": self.intent_preserved.value,
            "violations": [code.value for code in self.violations],
            "judge_version": self.judge_version,
            "dataset_version": self.dataset_version,
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True)
class RewriteResponse(Document):
    """RewriteResponseV1: the rewrite for one recipient. It contains the rewritten text."""

    rewrite_request_id: str
    recipient_user_id: str
    rewritten_text: str = field(repr=False)
    output_language: str
    prompt_version: str
    policy_version: str
    lexicon_version: str
    eval_result: EvalResult
    created_at: str


# -- writing and reading


_FIELDS: dict[Any, tuple[tuple[str, bool], ...]] = {}


def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a document, and whether each is required."""
    found = _FIELDS.get(kind)
    if found is None:
        found = tuple((item.name, item.default is MISSING) for item in fields(kind))
        _FIELDS[kind] = found
    return found


def _write(value: Any) -> Any:
    if isinstance(value, Document):
        return value.document
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_write(part) for part in value]
    return value


def _read_object(kind: Any, document: object, place: str) -> Any:
    if not isinstance(document, Mapping):
        raise BadRewrite(f"{place} must be an object")
    hints = _hints(kind)
    known = {item.name: item for item in fields(kind)}
    if extra := sorted(set(map(str, document)) - set(known)):
        raise BadRewrite(f"{place} has {len(extra)} unknown fields")
    found = {}
    for name, item in known.items():
        if name in document:
            found[name] = _read(hints[name], document[name], f"{place}.{name}")
        elif item.default is MISSING:
            raise BadRewrite(f"{place}.{name} is missing")
    return kind(**found)


def _read(kind: Any, value: object, place: str) -> Any:
    if get_origin(kind) in (UnionType, Union):
        if value is None:
            return None
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise BadRewrite(f"{place} must be a list")
        part, _ = get_args(kind)
        return tuple(_read(part, item, place) for item in value)
    if issubclass(kind, Document):
        return _read_object(kind, value, place)
    if issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in tuple(kind):
            raise BadRewrite(f"{place} has an unknown value")
        return kind(value)
    if type(value) is not kind:
        raise BadRewrite(f"{place} must be {kind.__name__}")
    return value


_HINTS: dict[Any, dict[str, Any]] = {}


def _hints(kind: Any) -> dict[str, Any]:
    found = _HINTS.get(kind)
    if found is None:
        found = _HINTS[kind] = get_type_hints(kind)
    return found
