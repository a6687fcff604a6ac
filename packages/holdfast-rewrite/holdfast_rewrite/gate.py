"""The gate: deterministic checks that a rewrite must pass before it is judged or stored. Pure.

The gate compares forms, not meaning: schema, length, language, markup, links, contact data, foul
words, disclosed preferences, machine phrases, facts that can be listed (numbers, times, dates,
names, currencies), and likeness with the original. A finding either refuses the rewrite or warns.
What a rewrite means, a judge or a person decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast_rewrite.detect import Detector
from holdfast_rewrite.enums import LONGEST_REWRITE, Code, Lane, Mark, PowerMode, Strength
from holdfast_rewrite.foreign_content import contacts_in, links_in, markup_in
from holdfast_rewrite.hidden_words import hidden_words
from holdfast_rewrite.language import BadLocale, normalize
from holdfast_rewrite.lexicon import Lexicon, everywhere
from holdfast_rewrite.likeness import is_copied, is_identical, is_surely_copied, is_unrelated
from holdfast_rewrite.names import has_sure_name
from holdfast_rewrite.new_facts import Invented, invented
from holdfast_rewrite.second_look import loaded_words
from holdfast_rewrite.sentence_language import fillers_of, is_in_language
from holdfast_rewrite.tone import has_angry_face, is_loud

_FOUL = frozenset({Code.VULGARITY, Code.SLUR})


class Severity(StrEnum):
    """What a finding does: refuse the rewrite, or mark it for a second look."""

    REFUSE = "refuse"
    WARN = "warn"


class GateCode(StrEnum):
    """What the gate finds."""

    NO_TEXT = "no_text"
    TOO_LONG = "too_long"
    HIDDEN_SIGNS = "hidden_signs"
    NO_TAG = "output_language_invalid"
    MARKUP = "markup"
    NON_TARGET_LOCALE = "non_target_locale"
    LANGUAGE_UNVERIFIED = "language_unverified"
    LEXICON_MISSING = "lexicon_missing"
    VULGARITY = "vulgarity"
    SLUR = "slur"
    INSULT = "personal_attack"
    PREFERENCE_DISCLOSURE = "preference_disclosure"
    LINK = "invented_link"
    CONTACT = "contact_data"
    KEPT_CONTACT = "contact_data_kept"
    MACHINE = "machine_words"
    NUMBER = "invented_number"
    DATE = "invented_date"
    TIME = "invented_time"
    CURRENCY = "invented_currency"
    NAME = "invented_name"
    THING = "invented_thing"
    MENTION = "new_mention"
    COPIED = "near_identical"
    UNRELATED = "unrelated"
    LOUD = "tone_loud"
    HEALTH = "health_words"
    GROUP = "group_words"
    SHAME = "shame_words"
    THREAT = "threat_words"

    @property
    def is_schema(self) -> bool:
        """Return whether the answer does not have the required form."""
        return self in _SCHEMA

    @property
    def violation(self) -> Code | None:
        """Return the stored code; None if the finding is only a flag."""
        if self in _FACTS:
            return Code.NEW_FACT
        return _SAME.get(self)


_SCHEMA = frozenset(
    {
        GateCode.NO_TEXT,
        GateCode.TOO_LONG,
        GateCode.HIDDEN_SIGNS,
        GateCode.NO_TAG,
        GateCode.MARKUP,
    }
)
_SAME = {
    GateCode.VULGARITY: Code.VULGARITY,
    GateCode.SLUR: Code.SLUR,
    GateCode.INSULT: Code.PERSONAL_ATTACK,
    GateCode.PREFERENCE_DISCLOSURE: Code.PREFERENCE_DISCLOSURE,
    GateCode.NON_TARGET_LOCALE: Code.NON_TARGET_LOCALE,
}
_FACTS = frozenset(
    {
        GateCode.LINK,
        GateCode.CONTACT,
        GateCode.MACHINE,
        GateCode.NUMBER,
        GateCode.DATE,
        GateCode.TIME,
        GateCode.CURRENCY,
        GateCode.NAME,
        GateCode.THING,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a rewrite. The evidence quotes the text and is never stored."""

    code: GateCode
    severity: Severity
    evidence: str = field(default="", repr=False)

    @property
    def is_refused(self) -> bool:
        return self.severity is Severity.REFUSE


def check(
    original: str,
    rewrite: str,
    *,
    source_language: str,
    target_language: str,
    output_language: str | None = None,
    strength: Strength = Strength.FULL_REFRAME,
    power: PowerMode = PowerMode.PEER,
    detector: Detector,
) -> tuple[Finding, ...]:
    """Return the findings of the gate for a rewrite. Never raises, whatever a provider answered.

    A text in a wrong form or language has no other findings: its words would mean something else.
    """
    declared = target_language if output_language is None else output_language
    misshapen = (*_misshapen(rewrite), *_undeclared(declared))
    if misshapen:
        return misshapen
    is_spoken = is_in_language(
        rewrite,
        source=source_language,
        target=target_language,
        detector=detector,
        original=original,
    )
    if is_spoken is False or normalize(declared) != target_language:
        return (Finding(GateCode.NON_TARGET_LOCALE, Severity.REFUSE),)
    found = [
        *_marked_up(rewrite),
        *_foreign(original, rewrite),
        *_foul(rewrite, target_language),
        *_facts(original, rewrite, source_language, target_language),
        *_loaded(original, rewrite, source_language, target_language),
        *_loud(original, rewrite, power),
    ]
    if is_spoken is None:
        found.append(Finding(GateCode.LANGUAGE_UNVERIFIED, Severity.WARN))
    if Lane.between(source_language, target_language) is Lane.SAME_LANGUAGE:
        found += _likeness(original, rewrite, target_language, strength)
    return tuple(found)


def mark_of(findings: tuple[Finding, ...]) -> Mark:
    """Return the verdict: a refused rewrite must not be stored, one with warnings may be held."""
    if any(finding.is_refused for finding in findings):
        return Mark.FAIL
    return Mark.WARN if findings else Mark.PASS


# -- schema

# Bidirectional overrides, terminal controls and invisible letters. Joiners are allowed: scripts and
# emoji need them.
_HIDDEN = re.compile(
    "[\u0001-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)


def _misshapen(text: str) -> Iterator[Finding]:
    if not any(map(str.isalpha, text)) or "\0" in text or _has_surrogate(text):
        yield Finding(GateCode.NO_TEXT, Severity.REFUSE)
    # Counted as for incoming messages.
    if len(unicodedata.normalize("NFC", text)) > LONGEST_REWRITE:
        yield Finding(GateCode.TOO_LONG, Severity.REFUSE)
    if _HIDDEN.search(text):
        yield Finding(GateCode.HIDDEN_SIGNS, Severity.REFUSE)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= sign <= "\udfff" for sign in text)


def _undeclared(output_language: str) -> Iterator[Finding]:
    try:
        normalize(output_language)
    except BadLocale:
        yield Finding(GateCode.NO_TAG, Severity.REFUSE)


# -- content


def _marked_up(rewrite: str) -> Iterator[Finding]:
    for found in markup_in(rewrite):
        yield Finding(GateCode.MARKUP, Severity.REFUSE, found)


def _foreign(original: str, rewrite: str) -> Iterator[Finding]:
    """Links and contact data: refused if the original lacks them, otherwise a warning."""
    for code, look in ((GateCode.LINK, links_in), (GateCode.CONTACT, contacts_in)):
        known = set(look(original))
        for found in look(rewrite):
            if found in known:
                yield Finding(GateCode.KEPT_CONTACT, Severity.WARN, found)
            else:
                yield Finding(code, Severity.REFUSE, found)


def _foul(rewrite: str, language: str) -> Iterator[Finding]:
    lexicon = Lexicon.for_locale(language)
    if lexicon is None:
        yield Finding(GateCode.LEXICON_MISSING, Severity.WARN)
    lexicons = (everywhere(), lexicon) if lexicon else (everywhere(),)
    codes = {code for one in lexicons for code in one.check(rewrite).codes}
    # Names and rare words are no insults in another reading.
    if hidden := hidden_words(rewrite, language):
        codes |= {code for one in lexicons for code in one.check(hidden).codes} & _FOUL
    for code in (Code.VULGARITY, Code.SLUR, Code.PERSONAL_ATTACK, Code.PREFERENCE_DISCLOSURE):
        if code in codes:
            yield Finding(GateCode(code.value), Severity.REFUSE)


def _loaded(original: str, rewrite: str, source: str, target: str) -> Iterator[Finding]:
    for kind, found in loaded_words(original, rewrite, source=source, target=target):
        yield Finding(GateCode(f"{kind.value}_words"), Severity.WARN, found)


def _facts(original: str, rewrite: str, source: str, target: str) -> Iterator[Finding]:
    for kind in invented(original, rewrite, target, source=source):
        is_sure = kind is not Invented.MENTION and (
            kind is not Invented.NAME or has_sure_name(original, rewrite, target)
        )
        yield Finding(GateCode(kind.value), Severity.REFUSE if is_sure else Severity.WARN)


# Shorter ones are abbreviations, which differ between languages: WLAN.
_LONG_WORD = re.compile(r"(?<!\w)[^\W\d_]{5,}(?!\w)")
_LOUD_SIGNS = re.compile(r"!\s*!|\?\s*!|!\s*\?")


def _loud(original: str, rewrite: str, power: PowerMode) -> Iterator[Finding]:
    """Shouting. From a sender with more power it is an order."""
    # An abbreviation that the sender used is not shouting.
    words = _LONG_WORD.findall(rewrite)
    shouted = [word for word in words if word.isupper() and word not in original]
    if _LOUD_SIGNS.search(rewrite) or shouted or has_angry_face(rewrite):
        is_order = power is PowerMode.HIGHER_SENDER
        yield Finding(GateCode.LOUD, Severity.REFUSE if is_order else Severity.WARN)


def _likeness(original: str, rewrite: str, language: str, strength: Strength) -> Iterator[Finding]:
    if is_copied(original, rewrite):
        if _is_sharp(original, language) or strength is Strength.FULL_REFRAME:
            # A request in a question may be calm although its classification was unsure.
            is_calm = "?" in original and not _is_sharp(original, language)
            # "I must ask that it be cleaned" became "Could it be cleaned?".
            is_asked = "?" in rewrite and "?" not in original
            is_sure = is_surely_copied(original, rewrite) and not (is_calm or is_asked)
            yield Finding(GateCode.COPIED, Severity.REFUSE if is_sure else Severity.WARN)
        elif is_identical(original, rewrite):
            yield Finding(GateCode.COPIED, Severity.WARN)
    elif is_unrelated(original, rewrite, fillers_of(language)) and not _is_foul(original, language):
        # A paraphrase may share no word with its original.
        yield Finding(GateCode.UNRELATED, Severity.WARN)


def _is_sharp(original: str, language: str) -> bool:
    return is_loud(original) or _is_foul(original, language, _FOUL | {Code.PERSONAL_ATTACK})


def _is_foul(original: str, language: str, foul: frozenset[Code] = _FOUL) -> bool:
    lexicon = Lexicon.for_locale(language)
    lexicons = (everywhere(), *((lexicon,) if lexicon else ()))
    return any(not foul.isdisjoint(one.check(original).codes) for one in lexicons)
