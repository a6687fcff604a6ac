"""Misspelled days, months and numbers of a message: "tusday", "twise". Pure.

People write in haste, and a rewrite spells the word right. The correction is added to the message,
for the comparison only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from holdfast_rewrite.normalize_text import normalize_text, plain
from holdfast_rewrite.numerals import numerals
from holdfast_rewrite.sentence_language import frequencies

# Shorter words are too similar to each other.
_SHORTEST = 4
_WORD = re.compile(r"[^\W\d_]+")
_NAMES = """
    monday tuesday wednesday thursday friday saturday sunday january february april august
    september october november december tomorrow weekend twice easter christmas
    montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar oktober dezember
    wochenende ostern weihnachten zweimal dreimal
    lunes martes miercoles jueves viernes sabado domingo enero febrero agosto septiembre octubre
    noviembre diciembre navidad
    lundi mardi mercredi jeudi vendredi samedi dimanche janvier fevrier juillet septembre octobre
    novembre decembre demain paques
    lunedi martedi mercoledi giovedi venerdi sabato domenica gennaio febbraio aprile maggio giugno
    luglio settembre ottobre dicembre domani pasqua natale
    maandag dinsdag woensdag donderdag vrijdag zaterdag zondag januari februari augustus pasen
    poniedzialek wtorek sroda czwartek piatek sobota niedziela styczen kwiecien czerwiec lipiec
    sierpien wrzesien pazdziernik listopad grudzien jutro wielkanoc
    segunda terca quarta quinta sexta janeiro fevereiro junho julho setembro outubro novembro
    dezembro amanha pascoa natal
""".split()  # noqa: SIM905 — to be read


def with_spelling(message: str) -> str:
    """Return a message, followed by the right spelling of its misspelled words."""
    found = dict.fromkeys(_corrected(message))
    return f"{message} {' '.join(found)}" if found else message


def _corrected(message: str) -> Iterator[str]:
    for word in set(_WORD.findall(plain(normalize_text(message)))):
        if len(word) >= _SHORTEST and word not in _meant() and not _is_word(word):
            for form in _forms(word):
                yield from _near().get(form, ())
            yield from _sounding().get(_sound(word), ())


def _is_word(word: str) -> bool:
    return any(word in words for words in _plain_words())


def _forms(word: str) -> Iterator[str]:
    """Yield a word, and the word without each of its letters."""
    yield word
    for at in range(len(word)):
        yield word[:at] + word[at + 1 :]


@cache
def _meant() -> frozenset[str]:
    numbers = (word for one in numerals().values() for word in one.words if len(word) >= _SHORTEST)
    return frozenset((*_NAMES, *numbers))


_SOFT_C = re.compile("c(?=[eiy])")
_DOUBLE = re.compile(r"(.)\1+")
_SOUNDS = str.maketrans({"c": "k", "q": "k", "z": "s", "x": "s", "v": "b", "w": "b", "y": "i"})


def _sound(word: str) -> str:
    """Return how a word sounds, roughly: "kinse" and "quince", "sinco" and "cinco"."""
    word = _SOFT_C.sub("s", word).replace("qu", "k").replace("ll", "y").replace("ph", "f")
    return _DOUBLE.sub(r"\1", word.translate(_SOUNDS).replace("h", ""))


@cache
def _sounding() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for word in sorted(_meant()):
        found[_sound(word)] = (*found.get(_sound(word), ()), word)
    return found


@cache
def _near() -> Mapping[str, tuple[str, ...]]:
    """Return the words by their forms. Words with a common form differ by two letters at most."""
    found: dict[str, tuple[str, ...]] = {}
    for word in sorted(_meant()):
        for form in _forms(word):
            found[form] = (*found.get(form, ()), word)
    return found


@cache
def _plain_words() -> tuple[frozenset[str], ...]:
    return tuple(frozenset(map(plain, words)) for words in frequencies().values())
