# ruff: noqa: RUF001 — letters that look like others are what this module is about
"""Normalize text for comparison, and undo disguised spellings. Pure.

``normalize_text`` is safe for every text. ``disguises`` guesses only if a word shows signs of a
disguise: digits or symbols among letters, stars, stretched letters, spaced letters, look-alike
letters of another script.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

# Invisible joiners and fillers that Unicode does not classify as format characters.
_UNSEEN = {"\u034f", "\u115f", "\u1160", "\u3164", "\uffa0", "\u17b4", "\u17b5"}
_APOSTROPHES = dict.fromkeys(map(ord, "’‘‛ʼʹ`´＇′"), "'")
# The blank Braille pattern, and two ligatures of whole phrases: 1,500 of those would be 27,000
# letters.
_BLANKS = dict.fromkeys(map(ord, "\u2800\ufdfa\ufdfb"), " ")
# White letters on black squares and circles, which have no decomposition.
_ON_BLACK = {
    first + place: letter
    for first in (0x1F150, 0x1F170)
    for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")
}
# A right-to-left override displays the following text backwards, up to its end.
_OVERRIDE = re.compile("\u202e([^\u202c\u202d\n]*)[\u202c\u202d]?")
# Combining marks of any script that remain after composition.
_LOOSE_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u180b-\u180d\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f\U000e0100-\U000e01ef]"
)

# Letters without a decomposition.
_PLAIN = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ð": "d"}
)

# Letters of other scripts that look like Latin ones, after casefolding.
_LOOK_ALIKES = str.maketrans(
    {
        char: letter
        for letter, chars in {
            "a": "аαɑᴀ", "b": "вьβʙ", "c": "сϲᴄ", "d": "ԁᴅ", "e": "еєёεᴇ", "f": "ғꜰƒ", "g": "ɡԍ",
            "h": "һннհ", "i": "іїιɩɪ", "j": "јᴊյ", "k": "кκᴋ", "l": "ӏʟ", "m": "мᴍ", "n": "пηɴո",
            "o": "оοσᴏօ", "p": "рρᴘ", "q": "ԛ", "r": "гʀ", "s": "ѕꜱ", "t": "тτᴛ", "u": "υцᴜս",
            "v": "νѵᴠ", "w": "ԝωᴡ", "x": "хχ", "y": "уүγʏ", "z": "ᴢ",
        }.items()
        for char in chars
    }
)  # fmt: skip

# A word that mixes Latin with Greek, Cyrillic or Armenian letters.
_MIXED = re.compile(r"\b(?=\w{0,30}[a-z])(?=\w{0,30}[\u0370-\u058f])\w+")

_LEET = {
    "0": "o", "1": "il", "3": "e", "4": "a", "5": "s", "6": "gb", "7": "t", "8": "b", "9": "g",
    "@": "au", "$": "s", "!": "il", "|": "il", "+": "t", "€": "e", "£": "l", "(": "c", "¢": "c",
    "¡": "i", "ß": "s", "§": "s",
}  # fmt: skip
_WILD = "*#%&"
_STARS = re.compile(rf"([{_WILD}]+)")
_STARS_INSIDE = re.compile(rf"[^\W\d_][{_WILD}]+[^\W\d_]")
_STARS_AT_THE_END = re.compile(rf"^[^\W\d_]+[{_WILD}]{{2,}}$")
# Four symbols with two readings each. A text full of them must not take more than 50 ms.
_MOST_GUESSES = 16
# No disguised word is longer; bounds the time for long runs of letters.
_LONGEST_HIDDEN = 16

_CHUNK = re.compile(r"\S+")
_DASHES = re.compile(r"(?<=[^\W\d_])[-_]{2,}(?=[^\W\d_])")
_OUTER = "\"'“”„«».,;:?)]}[{…-–—~_<>/\\"
_STRETCHED = re.compile(r"([^\W\d_])\1\1")
_LONG_RUNS = re.compile(r"(.)\1{3,}")
_RUNS = re.compile(r"([^\W\d_])\1+")
_LETTER = re.compile(r"[^\W\d_]")
# Casefolding turns ß into two letters.
_SET_APART = re.compile(r"(?<![^\W_])[^\W_](?:[\W_]{1,3}(?:ss|[^\W_])(?![^\W_])){2,}")
_JOINED = re.compile(r"^[^\W_]+(?:[._\-|][^\W_]+)+$")
# A quick check for the same signs in one pass.
_SIGNS = re.compile(
    r"([^\W\d_])\1\1|[^\W_][._\-|][^\W_]|[^\W\d_][\-_]{2}|[^\W\d_][\d@$!|+€£(¢¡§*#%&]|[\d@$!|+€£(¢¡§*#%&][^\W\d_]"
    r"|(?<![^\W_])[^\W_][\W_]{1,3}[^\W_](?![^\W_])"
)


def normalize_text(text: str) -> str:
    """Return the text as a reader sees it, in one case and form, without invisible characters."""
    if not text.isascii():
        if "\u202e" in text:
            text = _OVERRIDE.sub(lambda found: found.group(1)[::-1], text)
        text = text.translate(_APOSTROPHES | _BLANKS | _ON_BLACK)
        text = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in text if not _is_unseen(char))
        text = unicodedata.normalize("NFKC", text.casefold())
        text = _LOOSE_MARKS.sub("", text)
        return _MIXED.sub(_in_one_script, text).translate(_APOSTROPHES)
    return text.lower().replace("`", "'")


def _in_one_script(word: re.Match[str]) -> str:
    """Convert a word with Latin letters to all Latin: scripts are not mixed by accident."""
    return word.group().translate(_LOOK_ALIKES)


def plain(text: str) -> str:
    """Return a normalized text without its diacritics."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFD", text.translate(_PLAIN))
    return "".join(char for char in apart if not unicodedata.combining(char))


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) == "Cf" or char in _UNSEEN or "\ufe00" <= char <= "\ufe0f"


@dataclass(frozen=True, slots=True)
class Disguise:
    """A span of a normalized text that hides a word, and how to recognize it."""

    start: int
    end: int
    # Words that it may represent.
    words: tuple[str, ...] = ()
    # Spaced letters without the characters between them: words may be anywhere in it.
    run: str = ""
    # Its parts are separate words: the end of "push-it" was not hidden.
    is_joined: bool = False
    # For stars: a pattern of the word, and its possible first letters. If the pattern's group does
    # not match, only a prefix matched.
    starred: re.Pattern[str] | None = None
    firsts: str = ""


def disguises(normalized: str, letters: frozenset[str] = frozenset()) -> Iterator[Disguise]:
    """Find the spans of a normalized text that show signs of disguise.

    *letters* are the letters with diacritics that the language uses; any other is a sign.
    """
    is_plain = normalized.isascii()
    if is_plain and _SIGNS.search(normalized) is None:
        return
    for found in _SET_APART.finditer(normalized):
        # "4 5 5" is a number.
        if not _LETTER.search(found.group()):
            continue
        run = "".join(_LEET.get(char, char)[0] for char in found.group() if char.isalnum())
        yield Disguise(found.start(), found.end(), run=_alike(run))
    for found in _CHUNK.finditer(normalized):
        chunk = found.group()
        if not chunk.isalpha() or not chunk.isascii() or _STRETCHED.search(chunk):
            yield from _of_chunk(chunk, found.start(), letters)


def _of_chunk(chunk: str, at: int, letters: frozenset[str]) -> Iterator[Disguise]:
    word = chunk.strip(_OUTER).rstrip("!").lstrip("*#%&!(+")
    # Dashes stand for letters as stars do: "f---ing".
    word = _DASHES.sub(lambda found: "*" * len(found[0]), word)
    if not _LETTER.search(word):
        return
    start = at + len(chunk) - len(chunk.lstrip(_OUTER + "*#%&!(+"))
    end = start + len(word)
    seen = _alike(word, letters)
    if any(char in word for char in _WILD):
        if (starred := _starred(seen)) is not None:
            yield Disguise(start, end, starred=starred, firsts=_LEET.get(seen[0], seen[0]))
        return
    has_sign = seen != word or _STRETCHED.search(seen) or any(char in _LEET for char in seen)
    if has_sign:
        yield Disguise(start, end, tuple(dict.fromkeys(_guesses(seen))))
    if _JOINED.match(seen):
        joined = _guesses(re.sub(r"[._\-|]", "", seen))
        yield Disguise(start, end, tuple(dict.fromkeys(joined)), is_joined=True)


def _alike(word: str, letters: frozenset[str] = frozenset()) -> str:
    """Return a word in Latin letters, without diacritics that the language does not use."""
    if word.isascii():
        return word
    word = word.translate(_LOOK_ALIKES)
    return "".join(char if char.isascii() or char in letters else plain(char) for char in word)


def _guesses(word: str) -> Iterator[str]:
    """Yield the possible readings of a word with symbols and stretched letters."""
    word = _LONG_RUNS.sub(r"\1\1\1", word)
    most = 3 * _LONGEST_HIDDEN
    ends = (word,) if len(word) <= most else (word[:most], word[-most:])
    # In "ass1" or "room4" the final digit is a digit: try both with and without it.
    for form in dict.fromkeys(form for end in ends for form in (end, end.rstrip("0123456789"))):
        readings = [_LEET.get(char, char) for char in form]
        for letters in islice(product(*readings), _MOST_GUESSES):
            yield from _unstretched("".join(letters))


def _unstretched(word: str) -> Iterator[str]:
    """Yield a word with every run of a letter as one and as two."""
    if not _STRETCHED.search(word):
        yield word
        return
    parts = _RUNS.split(word)
    # split() puts repeated letters at the odd positions.
    choices = [(part, part * 2) if i % 2 else (part,) for i, part in enumerate(parts)]
    for chosen in islice(product(*choices), _MOST_GUESSES):
        yield "".join(chosen)


def _starred(word: str) -> re.Pattern[str] | None:
    """Return the pattern of a word with stars. Its group matches if the whole word does."""
    word = word[:_LONGEST_HIDDEN]
    is_inner = _STARS_INSIDE.search(word) is not None
    if not is_inner and _STARS_AT_THE_END.search(word) is None:
        return None
    *head, tail = _STARS.split(word)
    # split() puts the stars at the odd positions.
    begins = "".join(
        _wild(len(piece), is_inner) if at % 2 else _classes(piece) for at, piece in enumerate(head)
    )
    # One more letter of the tail each time: "f*cking" begins with "fuck".
    ends = "".join(f"(?:{_classes(char)}" for char in tail[:-1])
    last = f"({_classes(tail[-1])})?" if tail else "()"
    return re.compile(begins + ends + last + ")?" * len(tail[:-1]))


def _wild(stars: int, is_inner: bool) -> str:
    """Stars among letters may represent one letter more, or fewer."""
    return rf"\w{{1,{stars + 1}}}" if is_inner else rf"\w{{{stars}}}"


def _classes(text: str) -> str:
    return "".join(
        f"[{readings}]" if (readings := _LEET.get(char)) else re.escape(char) for char in text
    )
