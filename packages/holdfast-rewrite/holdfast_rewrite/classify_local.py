"""The local classifier: a language detector and tested rules in eight languages.

It needs no network, and the same message always gets the same answer. If the language is unclear or
has no rules, the confidence is low and the message gets a full reframe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast_rewrite.classify import Message
from holdfast_rewrite.detect import Detector, local_detector
from holdfast_rewrite.enums import (
    CLASSIFIER_VERSION,
    Code,
    Level,
    MessageIntent,
    SafetyFlag,
    Strength,
    Surface,
    Topic,
)
from holdfast_rewrite.lexicon import Lexicon, everywhere
from holdfast_rewrite.model import ClassifierResult, Confidences
from holdfast_rewrite.requests_in_text import Asks, asks_of
from holdfast_rewrite.ruleset import LOCALES, Reading, Rules
from holdfast_rewrite.second_look import is_accusing, is_polite
from holdfast_rewrite.tone import is_loud

# Long enough to be detected, and no question: a question needs no polite word.
_SAMPLE = "Please turn the music down tonight."
# At most two topics: fewer are preferred, two if both are possible.
MOST_TOPICS = 2
# Longer statements without a polite word are mostly complaints.
_FEW_LETTERS = 76
_SENTENCE_END = re.compile(r"[.!…]+\s+|[.!…]+$")
_MANY_SENTENCES, _FEW_WORDS = 3, 6


@dataclass(frozen=True, slots=True)
class _Tone:
    """The tone of a message."""

    is_sharp: bool
    is_intense: bool
    is_calm: bool


class LocalClassifier:
    """Classifies with rules. Thread-safe."""

    # A thread for each call would cost 0.3 ms of processor time.
    waits = False

    def __init__(self, detector: Detector | None = None) -> None:
        self._detector = detector or local_detector()

    def load(self) -> None:
        """Load the detector's model: 0.7 s of processor time. Without it, the first message waits.

        The tables of a language are loaded by its first message, in 0.05 s.
        """
        self.classify(Message("", _SAMPLE, "", Surface.OTHER))

    def classify(self, message: Message) -> ClassifierResult:
        """Classify topic, intent and tone of a message."""
        text = message.sender_message
        heard = self._detector.detect(text)
        is_sure = heard.confidence is not Level.LOW
        read = _read(text, heard.language if is_sure else None)
        if read is None:
            return _unread(text, heard.language, heard.confidence)
        locale, reading = read
        asks, tone = asks_of(text, reading), _tone(text, locale, reading)
        topics, topic_level = _topics(reading)
        intent, intent_level = _intent(asks, tone, topic_level)
        if not is_sure:
            # The rules of a guessed language may produce false matches.
            topic_level = intent_level = Level.LOW
        is_clear = is_sure and intent_level is not Level.LOW
        return ClassifierResult(
            classifier_version=CLASSIFIER_VERSION,
            detected_language=heard.language,
            topics=topics,
            intent=intent,
            rewrite_strength=Strength.LIGHT_TOUCH
            if tone.is_calm and is_clear
            else Strength.FULL_REFRAME,
            confidence=Confidences(topic_level, intent_level, heard.confidence),
            safety_flags=_flags(tone.is_intense, intent_level is Level.LOW),
        )


def _read(text: str, language: str | None) -> tuple[str, Reading] | None:
    """Read the text with the rules of its language; if unknown, with those that match most."""
    if language is not None:
        rules = Rules.for_locale(language)
        return None if rules is None else (language, rules.read(text))
    readings = [
        (locale, rules.read(text)) for locale in LOCALES if (rules := Rules.for_locale(locale))
    ]
    best = max(readings, key=lambda found: found[1].weight)
    return best if best[1].weight else None


def _unread(text: str, language: str, confidence: Level) -> ClassifierResult:
    """Classify a message without understanding its words."""
    return ClassifierResult(
        classifier_version=CLASSIFIER_VERSION,
        detected_language=language,
        topics=(Topic.OTHER,),
        intent=MessageIntent.CONCERN,
        rewrite_strength=Strength.FULL_REFRAME,
        confidence=Confidences(Level.LOW, Level.LOW, confidence),
        safety_flags=_flags(is_loud(text), True),
    )


# -- topics


def _topics(reading: Reading) -> tuple[tuple[Topic, ...], Level]:
    """Return the topics with the most evidence, and their confidence."""
    scores = {topic: reading.section(f"topics.{topic}").score for topic in Topic}
    other = scores.pop(Topic.OTHER)
    best = max(scores.values())
    # Food, money and keys occur in many quarrels: a more specific topic takes precedence.
    if other > best + 1 or best == 0 or (best == 1 and other > 1):
        return (Topic.OTHER,), _level(other)
    # With little evidence, one word less makes no difference.
    margin = 1 if 1 < best <= 4 else 0
    near = [topic for topic, score in scores.items() if score >= max(2, best - margin)]
    found = near or [topic for topic, score in scores.items() if score == best]
    found = sorted(found, key=lambda topic: -scores[topic])[:MOST_TOPICS]
    level = _level(best)
    if len(found) > 1 and level is Level.HIGH:
        level = Level.MEDIUM
    return tuple(topic for topic in Topic if topic in found), level


def _level(score: int) -> Level:
    if score >= 3:
        return Level.HIGH
    return Level.MEDIUM if score == 2 else Level.LOW


# -- intent


def _intent(asks: Asks, tone: _Tone, topic: Level) -> tuple[MessageIntent, Level]:
    """Return the intent. Venting and ambiguous messages are concerns."""
    if asks.is_clarifying and not tone.is_sharp and not asks.has_boundary:
        return MessageIntent.CLARIFICATION, Level.MEDIUM if asks.has_request else Level.HIGH
    if asks.has_boundary:
        return MessageIntent.BOUNDARY, Level.MEDIUM if asks.has_request else Level.HIGH
    if asks.has_request:
        return MessageIntent.REQUEST, Level.HIGH
    if asks.has_question and not tone.is_sharp:
        return MessageIntent.CLARIFICATION, Level.MEDIUM
    if asks.has_concern or tone.is_sharp:
        return MessageIntent.CONCERN, Level.HIGH
    # A plain statement about a clear topic is a concern by elimination.
    return MessageIntent.CONCERN, Level.LOW if topic is Level.LOW else Level.MEDIUM


# -- tone


def _tone(text: str, locale: str, reading: Reading) -> _Tone:
    """Read the tone. Not every sharp word is listed, so calm must show in a sign of its own."""
    loud = is_loud(text)
    is_foul = _is_foul(text, locale)
    is_intense = loud or is_foul or bool(reading.section("tone.intense").hits)
    is_sharp = (
        loud
        or is_foul
        or "??" in text
        or is_accusing(text, locale)
        or bool(reading.section("tone.sharp").hits)
    )
    is_calm = not (is_sharp or is_intense) and _seems_calm(text, locale, reading)
    return _Tone(is_sharp, is_intense, is_calm)


def _seems_calm(text: str, locale: str, reading: Reading) -> bool:
    """Return whether a message is polite, asks, or states a need or a concern in a few words."""
    if "?" in text or is_polite(text, locale):
        return True
    # "Dishes. Again. Third day running." is a sigh.
    sentences = [part.split() for part in _SENTENCE_END.split(text) if part.strip()]
    if len(sentences) >= _MANY_SENTENCES and max(map(len, sentences)) <= _FEW_WORDS:
        return False
    states = reading.section("intent.boundary").hits or reading.section("intent.concern").hits
    return len(text) <= _FEW_LETTERS and bool(states)


def _is_foul(text: str, locale: str) -> bool:
    lexicon = Lexicon.for_locale(locale)
    lexicons = (everywhere(), *((lexicon,) if lexicon else ()))
    foul = {Code.VULGARITY, Code.SLUR}
    return any(not foul.isdisjoint(one.check(text).codes) for one in lexicons)


def _flags(is_intense: bool, is_ambiguous: bool) -> tuple[SafetyFlag, ...]:
    flags = [SafetyFlag.EMOTIONAL_INTENSITY] * is_intense
    flags += [SafetyFlag.AMBIGUOUS_INTENT] * is_ambiguous
    return tuple(flags) or (SafetyFlag.NONE,)
