"""Validate a rewrite: decides whether it may be stored. Pure.

    1  schema     a text of at most 600 characters in the requested language
    2  lexicon    no word or phrase that the language's lexicon forbids
    3  intent     the sender's intent is preserved
    4  new facts  nothing is added to the sender's message
    5  tone       no shouting or demands, especially across a power difference

If the schema check fails, the other checks are skipped, because the words would mean something
else. Otherwise all four run, and the verdict uses all of them. The result holds codes and no text.
A check that cannot decide sets a flag.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from holdfast_rewrite.detect import Detector, is_left_in, is_told_apart
from holdfast_rewrite.enums import (
    LONGEST_REWRITE,
    Code,
    Lane,
    Level,
    Mark,
    MessageIntent,
    PowerMode,
    Topic,
)
from holdfast_rewrite.language import BadLocale, normalize
from holdfast_rewrite.lexicon import NO_LEXICON, Lexicon
from holdfast_rewrite.model import EvalResult, RewriteRequest
from holdfast_rewrite.negation import content, is_one_word, is_reversed
from holdfast_rewrite.new_facts import invented
from holdfast_rewrite.requests_in_text import Asks, asks_of
from holdfast_rewrite.ruleset import Reading, Rules
from holdfast_rewrite.tone import has_angry_face

JUDGE_VERSION = "v1"
# The version of the cases under eval/ that measure the validation.
DATASET_VERSION = "v1"

LANGUAGE_UNVERIFIED = "language_unverified"
INTENT_UNVERIFIED = "intent_unverified"
LEXICON_MISSING = "lexicon_missing"
NO_TEXT = "no_text"
TOO_LONG = "too_long"
HIDDEN = "hidden_signs"
NO_TAG = "output_language_invalid"
REVERSED = "request_reversed"
MATTER_UNVERIFIED = "matter_unverified"
INVENTED_TOPIC = "invented_topic"
LOUD = "tone_loud"
DEMAND = "tone_demand"

# Distinct issues. Polite phrases such as "let me know in time" do not introduce them.
_ISSUES = (Topic.NOISE, Topic.CLEANLINESS, Topic.PRIVACY, Topic.GUESTS)
_TOPICS = tuple(topic for topic in Topic if topic is not Topic.OTHER)

_SENTENCE = re.compile(r"[^.!?…\n]+")
# Shorter parts contain too many loan words and names.
_SURE_LETTERS = 30
_LONG_WORD = re.compile(r"(?<!\w)[^\W\d_]{4,}(?!\w)")
# Bidirectional overrides, terminal controls and invisible letters. Joiners are allowed: scripts and
# emoji need them.
_HIDDEN = re.compile(
    "[\u0001-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)
_LOUD_SIGNS = re.compile(r"!\s*!|\?\s*!|!\s*\?")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdict: a failed rewrite must not be stored, one with warnings may be."""

    result: EvalResult
    verdict: Mark
    lexicon_version: str


def evaluate(
    request: RewriteRequest, *, rewritten_text: str, output_language: str, detector: Detector
) -> Evaluation:
    """Validate a rewrite of *request*. Never raises, whatever a provider answered."""
    lexicon = Lexicon.for_locale(request.target_locale)
    misshapen = (*_misshapen(rewritten_text), *_undeclared(output_language))
    if misshapen:
        return _evaluation(lexicon, (), misshapen, schema_valid=False, intent=Mark.FAIL)
    is_spoken = _is_spoken(rewritten_text, request, detector)
    if is_spoken is False or normalize(output_language) != request.target_locale:
        codes = (Code.NON_TARGET_LOCALE,)
        return _evaluation(lexicon, codes, (INTENT_UNVERIFIED,), intent=Mark.WARN)
    given = _read(request.original_text, request.source_locale)
    said = _read(rewritten_text, request.target_locale)
    matter = _matter(request, given, said)
    is_turned = _is_turned(request, given, said)
    made_up = (
        *invented(request.original_text, rewritten_text, request.target_locale),
        *((INVENTED_TOPIC,) if matter is Matter.ANOTHER else ()),
    )
    codes = (
        *(lexicon.check(rewritten_text).codes if lexicon else ()),
        *((Code.NEW_FACT,) if made_up else ()),
    )
    tone = tuple(_tone(request.original_text, rewritten_text, said))
    unseen = (
        *(() if is_spoken else (LANGUAGE_UNVERIFIED,)),
        *(() if lexicon else (LEXICON_MISSING,)),
        *(() if said else (INTENT_UNVERIFIED,)),
        *((MATTER_UNVERIFIED,) if matter in _UNVERIFIED else ()),
    )
    return _evaluation(
        lexicon,
        codes,
        (*unseen, *((REVERSED,) if is_turned else ()), *made_up, *tone),
        intent=_intent(request.intent, asks_of(rewritten_text, said), matter, is_turned)
        if said
        else Mark.WARN,
        tone=_of_power(request.context_pack.power.power_mode, request.intent, tone),
    )


def _evaluation(
    lexicon: Lexicon | None,
    codes: Collection[Code],
    flags: Collection[str],
    *,
    intent: Mark,
    schema_valid: bool = True,
    tone: Mark = Mark.PASS,
) -> Evaluation:
    is_hard = any(code.is_hard for code in codes)
    # Text that is not valid was not checked against a lexicon either.
    is_judged = lexicon is not None and schema_valid
    if is_hard:
        tone = Mark.FAIL
    elif tone is Mark.PASS and (codes or not is_judged):
        tone = Mark.WARN
    result = EvalResult(
        schema_valid=schema_valid,
        lexicon_pass=not is_hard if is_judged else None,
        tone_safety=tone,
        intent_preserved=intent,
        violations=tuple(code for code in Code if code in codes),
        judge_version=JUDGE_VERSION,
        dataset_version=DATASET_VERSION,
        flags=tuple(dict.fromkeys(flags)),
    )
    return Evaluation(result, _verdict(result), lexicon.version if lexicon else NO_LEXICON)


def _verdict(result: EvalResult) -> Mark:
    marks = (result.tone_safety, result.intent_preserved)
    is_hard = any(code.is_hard for code in result.violations)
    if not result.schema_valid or is_hard or Mark.FAIL in marks:
        return Mark.FAIL
    return Mark.WARN if Mark.WARN in marks else Mark.PASS


# -- schema and language


def _misshapen(text: str) -> Iterator[str]:
    if not any(map(str.isalpha, text)) or "\0" in text or _has_surrogate(text):
        yield NO_TEXT
    # Counted as for incoming messages.
    if len(unicodedata.normalize("NFC", text)) > LONGEST_REWRITE:
        yield TOO_LONG
    if _HIDDEN.search(text):
        yield HIDDEN


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= sign <= "\udfff" for sign in text)


def _undeclared(output_language: str) -> Iterator[str]:
    try:
        normalize(output_language)
    except BadLocale:
        yield NO_TAG


def _is_spoken(text: str, request: RewriteRequest, detector: Detector) -> bool | None:
    """Return whether a text is in its target language; None if unknown."""
    source, target = request.source_locale, request.target_locale
    # A translation may include its original.
    for part, is_long in _parts(text):
        heard = detector.detect(part)
        if heard.confidence is not Level.HIGH:
            continue
        if is_left_in(heard.language, source=source, target=target):
            return False
        if is_long and is_told_apart(heard.language, target):
            return False
    whole = detector.detect(text)
    if whole.confidence is Level.LOW:
        return None
    if whole.language == target:
        return True
    return False if is_told_apart(whole.language, target) else None


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield sentences, joined until they are long enough, and whether they are."""
    sentences = _SENTENCE.findall(text)
    for first in range(len(sentences)):
        for last in range(first + 1, len(sentences) + 1):
            part = " ".join(sentences[first:last])
            is_long = sum(map(str.isalpha, part)) >= _SURE_LETTERS
            if is_long or last == first + 1:
                yield part, is_long
            if is_long:
                break


# -- intent


class Matter(Enum):
    """How the rewrite's topic relates to the original's."""

    SAME = auto()
    # No evidence against it.
    UNTOLD = auto()
    # No evidence for it: another language, or unlisted words.
    UNSEEN = auto()
    # A topic that the message clearly names is missing.
    NONE = auto()
    GONE = auto()
    ANOTHER = auto()


_UNVERIFIED = frozenset({Matter.UNSEEN, Matter.NONE, Matter.GONE})


def _intent(intent: MessageIntent, said: Asks, matter: Matter, is_turned: bool) -> Mark:
    """Check whether the rewrite keeps the sender's intent, possibly softened."""
    if said.is_negated_request or is_turned:
        return Mark.FAIL
    # Any sentence on the topic can voice a concern, and many a boundary. Without a known phrase, a
    # loss is not proven.
    is_on_it = matter in (Matter.SAME, Matter.UNTOLD, Matter.UNSEEN)
    match intent:
        # The rewrite asks for something else.
        case MessageIntent.REQUEST | MessageIntent.CLARIFICATION if matter is Matter.GONE:
            return Mark.FAIL
        case MessageIntent.REQUEST:
            kept, softened = said.has_request, said.has_question or said.has_boundary
        case MessageIntent.CLARIFICATION:
            kept, softened = said.has_question, said.has_request
        case MessageIntent.BOUNDARY:
            kept, softened = said.has_boundary, said.has_request or said.has_concern or is_on_it
        case MessageIntent.CONCERN:
            asks = said.has_concern or said.has_request or said.has_boundary
            kept, softened = asks or matter is Matter.SAME, is_on_it
        case _:
            assert_never(intent)
    if kept:
        return Mark.WARN if matter in _UNVERIFIED else Mark.PASS
    return Mark.WARN if softened else Mark.FAIL


def _is_turned(request: RewriteRequest, given: Reading | None, said: Reading | None) -> bool:
    """Return whether the rewrite asks for the opposite of the original."""
    if given is None or said is None:
        return False
    if not is_reversed(given, said, is_same_language=request.lane is Lane.SAME_LANGUAGE):
        return False
    # "Do go on reading my diary" already asks for the opposite.
    lexicon = Lexicon.for_locale(request.source_locale)
    found = lexicon.check(request.original_text).codes if lexicon else ()
    return Code.SARCASM_WARN not in found


# -- new facts


def _matter(request: RewriteRequest, given: Reading | None, said: Reading | None) -> Matter:
    """Compare the rewrite's topic with the message's, each in its own language."""
    if given is None or said is None:
        return Matter.UNTOLD
    meant = {topic for topic in _TOPICS if topic in request.topics or _hits(given, topic)}
    # Shouting at each other is both.
    meant |= {Topic.NOISE} if Topic.COMMUNICATION in meant else set()
    if any(_hits(said, topic) for topic in meant):
        fresh = [topic for topic in _ISSUES if topic not in meant and _strong(said, topic) > 1]
        return Matter.ANOTHER if fresh or _adds(request, given, said) else Matter.SAME
    if any(_strong(said, topic) for topic in _ISSUES):
        return Matter.ANOTHER if any(_strong(given, topic) for topic in meant) else Matter.UNTOLD
    named = sum(_strong(given, topic) for topic in {*meant, Topic.OTHER})
    if _hits(given, Topic.OTHER) and _hits(said, Topic.OTHER):
        return Matter.UNTOLD
    # Words can be compared only within one language.
    if request.lane is Lane.CROSS_LANGUAGE:
        return Matter.UNSEEN if meant or named else Matter.UNTOLD
    if _shares(content(given), content(said)):
        return Matter.SAME if meant else Matter.UNTOLD
    if named > 1:
        return Matter.GONE
    return Matter.NONE if meant else Matter.UNSEEN


def _adds(request: RewriteRequest, given: Reading, said: Reading) -> bool:
    """Return whether an added sentence asks for money, food, keys and the like."""
    if request.lane is Lane.CROSS_LANGUAGE or _hits(given, Topic.OTHER):
        return False
    words = content(given)
    for hit in said.section(_section(Topic.OTHER)).hits:
        start, end = said.clause(hit)
        if (
            hit.key.endswith("/phrases")
            and said.section("intent.request").between(start, end)
            and not _shares(words, content(said, start, end))
        ):
            return True
    return False


def _shares(words: Collection[str], others: Collection[str]) -> bool:
    return any(is_one_word(word, other) for word in words for other in others)


def _read(text: str, locale: str) -> Reading | None:
    rules = Rules.for_locale(locale)
    return rules.read(text) if rules else None


def _hits(reading: Reading, topic: Topic) -> bool:
    return bool(reading.section(_section(topic)).hits)


def _strong(reading: Reading, topic: Topic) -> int:
    return reading.section(_section(topic)).strong


def _section(topic: Topic) -> str:
    return f"topics.{topic.value}"


# -- tone


def _tone(original: str, text: str, said: Reading | None) -> Iterator[str]:
    # An abbreviation that the sender used is not shouting.
    shouted = [word for word in _LONG_WORD.findall(text) if word.isupper() and word not in original]
    if _LOUD_SIGNS.search(text) or shouted or has_angry_face(text):
        yield LOUD
    if said is not None and said.section("tone.demand").hits:
        yield DEMAND


def _of_power(power: PowerMode, intent: MessageIntent, tone: Collection[str]) -> Mark:
    """Rate a loud word or a demand by the power relation. Between equals it is a warning.

    From a more powerful sender both are orders, and towards a more powerful recipient a demand is
    inappropriate. Only a boundary may state what its sender needs.
    """
    if not tone:
        return Mark.PASS
    is_order = LOUD in tone and power is PowerMode.HIGHER_SENDER
    is_demand = (
        DEMAND in tone and power is not PowerMode.PEER and intent is not MessageIntent.BOUNDARY
    )
    return Mark.FAIL if is_order or is_demand else Mark.WARN
