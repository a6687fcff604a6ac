"""Check that every sentence of a rewrite is in the target language. Pure.

A long part is left to the detector. In a short one, the frequencies of its words in 25 languages
decide, because a detector cannot: "Merci beaucoup" after two Spanish sentences. Two words of
another language in a sentence are enough; names and loan words are about as frequent in both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files

from holdfast_rewrite.detect import Detector, is_left_in, is_told_apart
from holdfast_rewrite.enums import Level
from holdfast_rewrite.normalize_text import plain

_SENTENCE = re.compile(r"[^.!?…\n]+")
_CLAUSE = re.compile(r"[^.!?…\n,;:()]+")
# "Hi Max" is in every language.
_SMALL_WORD = re.compile(r"(?<!\w)[^\W\d_A-Z]{2,}(?!\w)")
# Addresses and disguised words are for other checks.
_NOISE = re.compile(r"\S*(?:@|\w[.(\[*$]\w|://)\S*")
# Galician and Asturian use them too, but none of the target languages does.
_SPANISH_SIGN = re.compile("[¿¡]")
# Parts of contractions such as I've and l'eau are no words of another language, nor are letters.
_WORD = re.compile(r"(?<![\w'’])[^\W\d_]{2,}(?![\w'’])")  # noqa: RUF001
_INSIDE = re.compile(r"(?<=[^\W_][ ,])\s*([^\W\d_]+)")
# Shorter parts contain too many loan words and names.
_SURE_LETTERS = 30
# The frequency of a word that is not in the table.
_RARE = 3.4
# One word counts at most this much, so that it takes two.
_MOST, _LEAST = 2.2, -2.5
# What the words of another language must be ahead, on a logarithmic scale. Measured on 3,011 good
# and polite texts of eight languages: at most 2.6 for a run of words, and 1.7 for a sentence in
# which no word is more frequent in the target language. Of 4,334 sentences in a wrong language, 10
# are below both, and the detector finds those.
_AHEAD_IN_RUN = 2.8
_AHEAD_IN_SENTENCE = 1.8
_AHEAD_AND_HEARD = 0.9
_SAME = 0.3
# "Je ne" is French although "je" and "ne" are more frequent in Croatian, and "Zamkniesz je" Polish.
_EVERYDAY = 5.8
# Courtesies of other languages that stand alone in a sentence.
_BORROWED = {
    "de": frozenset({"ciao", "merci", "okay", "sorry", "thanks"}),
    "en": frozenset({"ciao", "ta", "xx"}),
    "fr": frozenset({"ciao", "okay", "sorry"}),
    "it": frozenset({"okay", "sorry"}),
    "nl": frozenset({"okay", "sorry", "thanks", "xx"}),
    "pl": frozenset({"okay", "sorry"}),
}
# Letters beside a to z. A word with another one is not in the language, unless it is a name.
_LETTERS = {
    "de": "äöüßéèàêç",
    "en": "éèêëïñçáóöü",
    "es": "áéíñóúüç",
    "fr": "àâæçèéêëîïôœùûüÿñ",
    "it": "àèéìíîòóùú",
    "nl": "áàéèêëïíöóüúç",
    "pl": "ąćęłńóśźżé",
    "pt": "áâãàçéêíóôõúü",
}


def is_in_language(
    text: str, *, source: str, target: str, detector: Detector, original: str = ""
) -> bool | None:
    """Return whether a text is in its target language; None if unknown."""
    # A translation may include its original.
    for part, is_long in _parts(text):
        heard = detector.detect(part)
        if heard.confidence is not Level.HIGH:
            continue
        if is_left_in(heard.language, source=source, target=target):
            return False
        if is_long and is_told_apart(heard.language, target):
            return False
    quoted = _quoted(original, is_translated=source != target)
    clean = _NOISE.sub(" ", text)
    # A clause may be in another language than the rest of its sentence.
    clauses = [one for one in _CLAUSE.findall(clean) if len(_SMALL_WORD.findall(one)) > 1]
    for sentence in dict.fromkeys((*_SENTENCE.findall(clean), *clauses)):
        heard = detector.detect(sentence)
        is_other = heard.confidence is not Level.LOW and is_told_apart(heard.language, target)
        if _is_foreign(sentence, target, quoted, heard.language if is_other else None):
            return False
    if target != "es" and _SPANISH_SIGN.search(text) and not _SPANISH_SIGN.search(original):
        return False
    whole = detector.detect(text)
    if whole.confidence is not Level.LOW:
        if whole.language == target:
            return True
        if is_told_apart(whole.language, target):
            return False
    return True if _leader(text) == target else None


def fillers_of(language: str) -> frozenset[str]:
    """Return the function words of a language, without diacritics; none if it is unknown."""
    return _fillers().get(language, frozenset())


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


def _quoted(original: str, *, is_translated: bool) -> frozenset[str]:
    """Return the words that a rewrite may take over: all, or in a translation only names."""
    seen = unicodedata.normalize("NFC", original)
    if not is_translated:
        return frozenset(map(str.lower, _WORD.findall(seen)))
    return frozenset(word.lower() for word in _INSIDE.findall(seen) if word[0].isupper())


def _is_foreign(
    sentence: str, target: str, quoted: Collection[str], heard: str | None = None
) -> bool:
    """Return whether the words of a sentence are far more frequent in another language.

    *heard* is the language in which the detector hears the sentence, if it is another one.
    """
    own = frequencies().get(target)
    if own is None:
        return False
    spoken = _WORD.findall(unicodedata.normalize("NFC", sentence))
    said = [word for word in spoken if word.lower() not in quoted]
    if not said or _is_borrowed(spoken, target):
        return False
    strange = [
        _MOST if _is_strange(word, target, own, is_first=at == 0) else None
        for at, word in enumerate(said)
    ]
    words = [word.lower() for word in said]
    held = [max(own.get(word, _RARE), _RARE) for word in words]
    kept = [word.lower() for word in spoken if word.lower() in quoted]
    for language, others in frequencies().items():
        if not is_told_apart(language, target):
            continue
        ahead = [
            odd if odd is not None else _lead(max(others.get(word, _RARE), _RARE), mine)
            for word, mine, odd in zip(words, held, strange, strict=True)
        ]
        if _best_run(ahead) >= _AHEAD_IN_RUN:
            return True
        if language == heard and sum(ahead) >= _AHEAD_AND_HEARD:
            return True
        # A word of the original is no evidence for another language, but it may be for the target.
        least = min((*ahead, *(others.get(word, _RARE) - own.get(word, _RARE) for word in kept)))
        if least >= -_SAME and sum(ahead) >= _AHEAD_IN_SENTENCE:
            return True
    return False


def _is_borrowed(words: list[str], target: str) -> bool:
    """Return whether a sentence is "Thanks!" or "Sorry Max!" in a language that borrowed it."""
    is_alone = all(word[0].isupper() for word in words[1:])
    return is_alone and words[0].lower() in _BORROWED.get(target, frozenset())


def _lead(other: float, own: float) -> float:
    """Return what a word says for another language; an everyday word of its own says little."""
    return min(other - own, _SAME) if own >= _EVERYDAY else other - own


def _is_strange(word: str, target: str, own: Mapping[str, float], *, is_first: bool) -> bool:
    """Return whether a word has a letter that its language does not use."""
    letters = _LETTERS.get(target)
    if letters is None or word.isascii() or word.lower() in own:
        return False
    # A name keeps the letters of its language, but not another script.
    known = letters if word[0].islower() or is_first else None
    return any(
        not unicodedata.name(sign, "").startswith("LATIN")
        or (known is not None and sign not in known)
        for sign in word.lower()
        if not sign.isascii()
    )


def _best_run(ahead: list[float]) -> float:
    """Return the largest sum of neighbouring words."""
    best = run = 0.0
    for one in ahead:
        run = max(0.0, run + min(_MOST, max(_LEAST, one)))
        best = max(best, run)
    return best


def _leader(text: str) -> str | None:
    """Return the language whose words are most frequent in a text; None if it has no lead."""
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", text))]
    sums = sorted(
        (sum(table.get(word, _RARE) for word in words), language)
        for language, table in frequencies().items()
    )
    (second, _), (first, language) = sums[-2:]
    return language if first - second >= _SAME * 2 else None


# -- the table

# Words without a meaning of their own are this frequent.
_FUNCTION_WORD = 6.0


@cache
def frequencies() -> Mapping[str, Mapping[str, float]]:
    """Return the frequent words by language, each with the logarithm of its frequency."""
    found: dict[str, dict[str, float]] = {}
    text = (files("holdfast_rewrite") / "word_frequencies.txt").read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            language, frequency, *words = line.split(" ")
            found.setdefault(language, {}).update(dict.fromkeys(words, float(frequency)))
    return found


@cache
def _fillers() -> Mapping[str, frozenset[str]]:
    return {
        language: frozenset(plain(word) for word, often in words.items() if often >= _FUNCTION_WORD)
        for language, words in frequencies().items()
    }
