"""Which language a message is in, and which its recipient reads. Pure.

Tags are normalized here, once, when a request is made. Everything behind compares what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.errors import ConfigError
from holdfast_rewrite.enums import Lane, Level

DEFAULT = "en"

# RFC 5646 asks a reader to keep 35 characters.
_LONGEST_TAG = 35
# Well-formed, and the name of no language: undetermined, several, none, and what has no code.
_NO_LANGUAGE = frozenset({"und", "mul", "zxx", "mis"})
# The member of a family that bears the family's name in nearly every profile and in every detector;
# apart, one language would be two lanes.
_ONE_LANGUAGE = {"nb": "no", "cmn": "zh", "arb": "ar", "zsm": "ms", "pes": "fa", "swh": "sw"}


class BadLocale(ValueError):
    """A tag that names no language. The message does not quote it."""


@lru_cache(maxsize=1024)
def normalize(tag: str) -> str:
    """The primary language of a BCP 47 tag: en-US is en. Raises BadLocale.

    Raises ConfigError where the extra is not installed.
    """
    if not isinstance(tag, str) or not 0 < len(tag) <= _LONGEST_TAG or "_" in tag:
        raise BadLocale("locale is not a BCP 47 tag; write a language such as en or pt-BR")
    # Private use says nothing to anybody else: x-…, and the codes qaa to qtz.
    if tag[:2].lower() == "x-":
        raise BadLocale("locale names no language; private use tags are refused")
    language = _language(tag)
    if language is None or language in _NO_LANGUAGE or _is_private(language):
        raise BadLocale("locale names no language; write one such as en or pt-BR")
    return _ONE_LANGUAGE.get(language, language)


def _language(tag: str) -> str | None:
    """The language of a tag with every part of it in the registry; None if one is not."""
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
    """The two languages of a request, the tags they were read from, and the lane they make."""

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
    """Decide the locales of a request. Raises BadLocale for a profile's tag that is no language.

    The message's own language counts where the classifier is fairly sure of it, then the sender's
    profile, then English. The recipient's profile alone decides the target.
    """
    heard = _heard(detected) if confidence is not Level.LOW else None
    source_raw = detected if heard else _profile(sender_locale)
    target_raw = _profile(recipient_locale)
    source, target = heard or normalize(source_raw), normalize(target_raw)
    return Locales(source, target, source_raw, target_raw, Lane.between(source, target))


def _heard(detected: str) -> str | None:
    # A classifier is advisory: a tag of its making that is no language is as good as none.
    try:
        return normalize(detected)
    except BadLocale:
        return None


def _profile(locale: str | None) -> str:
    return DEFAULT if locale is None else locale


def _is_private(language: str) -> bool:
    return len(language) == 3 and "qaa" <= language <= "qtz"
