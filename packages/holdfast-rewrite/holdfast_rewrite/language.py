"""The language of a message and of its recipient. Pure.

Tags are normalized here once, when a request is created. All other code compares stored values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.errors import ConfigError
from holdfast_rewrite.enums import Lane, Level

DEFAULT = "en"

# RFC 5646 requires support for 35 characters.
_LONGEST_TAG = 35
# Valid tags that name no language: undetermined, multiple, none, uncoded.
_NO_LANGUAGE = frozenset({"und", "mul", "zxx", "mis"})
# Members of a macrolanguage that nearly all profiles and detectors call by the macrolanguage's tag.
# Without this, one language would be two lanes.
_ONE_LANGUAGE = {"nb": "no", "cmn": "zh", "arb": "ar", "zsm": "ms", "pes": "fa", "swh": "sw"}


class BadLocale(ValueError):
    """A tag that names no language. The message does not quote it."""


@lru_cache(maxsize=1024)
def normalize(tag: str) -> str:
    """Return the primary language of a BCP 47 tag: en-US is en. Raises BadLocale.

    Raises ConfigError if the extra is not installed.
    """
    if not isinstance(tag, str) or not 0 < len(tag) <= _LONGEST_TAG or "_" in tag:
        raise BadLocale("locale is not a BCP 47 tag; write a language such as en or pt-BR")
    # Private use: x-…, and the codes qaa to qtz.
    if tag[:2].lower() == "x-":
        raise BadLocale("locale names no language; private use tags are refused")
    language = _language(tag)
    if language is None or language in _NO_LANGUAGE or _is_private(language):
        raise BadLocale("locale names no language; write one such as en or pt-BR")
    return _ONE_LANGUAGE.get(language, language)


def _language(tag: str) -> str | None:
    """Return the language of a tag if all of its parts are registered; otherwise None."""
    try:
        from langcodes import Language
        from langcodes.tag_parser import LanguageTagError
    except ImportError:
        raise ConfigError(
            "The complaint rewrite needs langcodes and py3langid: pip install holdfast-rewrite."
        ) from None
    try:
        found = Language.get(tag)
    except LanguageTagError:
        raise BadLocale(
            "locale is not a BCP 47 tag; write a language such as en or pt-BR"
        ) from None
    return found.language if found.is_valid() else None


@dataclass(frozen=True, slots=True)
class Locales:
    """The two languages of a request, their original tags, and the lane."""

    source: str
    target: str
    source_raw: str
    target_raw: str
    lane: Lane


def resolve(
    detected: str,
    confidence: Level,
    sender_locale: str | None,
    recipient_locale: str | None,
) -> Locales:
    """Resolve the locales of a request. Raises BadLocale for an invalid profile tag.

    The source is the detected language if the confidence is at least medium, then the sender's
    profile, then English. The target is the recipient's profile.
    """
    heard = _heard(detected) if confidence is not Level.LOW else None
    source_raw = detected if heard else _profile(sender_locale)
    target_raw = _profile(recipient_locale)
    source, target = heard or normalize(source_raw), normalize(target_raw)
    return Locales(source, target, source_raw, target_raw, Lane.between(source, target))


def _heard(detected: str) -> str | None:
    # Classifiers are advisory: an invalid tag counts as none.
    try:
        return normalize(detected)
    except BadLocale:
        return None


def _profile(locale: str | None) -> str:
    return DEFAULT if locale is None else locale


def _is_private(language: str) -> bool:
    return len(language) == 3 and "qaa" <= language <= "qtz"
