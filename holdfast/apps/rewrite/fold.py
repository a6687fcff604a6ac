# ruff: noqa: RUF001 — letters that look like others are what this module is about
"""Make a text comparable: one form for all ways to write it, and what a disguise hides. Pure.

``fold`` is safe for every text. ``disguises`` guesses, and only where a word shows that it hides
something: digits or symbols among letters, stars, stretched letters, letters set apart, look-alike
letters of another script.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product

# What a reader does not see. Joiners and fillers that Unicode does not call format characters.
_UNSEEN = {"\u034f", "\u115f", "\u1160", "\u3164", "\uffa0", "\u17b4", "\u17b5"}
_BLANK = {"\u2800": " "}
_APOSTROPHES = dict.fromkeys(map(ord, "’‘‛ʼʹ`´＇′"), "'")
# A right-to-left override shows what follows backwards, up to its end.
_OVERRIDE = re.compile("\u202e([^\u202c\u202d\n]*)[\u202c\u202d]?")
# Marks that strike or stack over a letter, left over after composition.
_LOOSE_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]")

# Letters that no decomposition takes apart.
_PLAIN = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ð": "d"}
)

# Letters of other scripts that look like Latin ones, as they are after casefolding.
_LOOK_ALIKES = str.maketrans(
    {
        char: letter
        for letter, chars in {
            "a": "аαɑᴀ", "b": "вьβʙ", "c": "сϲᴄ", "d": "ԁᴅ", "e": "еєёεᴇ", "f": "ғ", "g": "ɡԍ",
            "h": "һнн", "i": "іїιɩɪ", "j": "јᴊ", "k": "кκᴋ", "l": "ӏʟ", "m": "мᴍ", "n": "пηɴ",
            "o": "оοσᴏ", "p": "рρᴘ", "q": "ԛ", "r": "гʀ", "s": "ѕꜱ", "t": "тτᴛ", "u": "υцᴜ",
            "v": "νѵᴠ", "w": "ԝωᴡ", "x": "хχ", "y": "уүγʏ", "z": "ᴢ",
        }.items()
        for char in chars
    }
)  # fmt: skip

_LEET = {
    "0": "o", "1": "il", "3": "e", "4": "a", "5": "s", "6": "gb", "7": "t", "8": "b", "9": "g",
    "@": "a", "$": "s", "!": "il", "|": "il", "+": "t", "€": "e", "£": "l", "(": "c", "¢": "c",
    "¡": "i", "ß": "s", "§": "s",
}  # fmt: skip
_WILD = "*#%&"
_MOST_GUESSES = 48
# No word that somebody hides is longer; a long row of letters must not cost its square.
_LONGEST_HIDDEN = 16

_CHUNK = re.compile(r"\S+")
_OUTER = "\"'“”„«».,;:?)]}[{…-–—~_<>/\\"
_STRETCHED = re.compile(r"([^\W\d_])\1\1")
_RUNS = re.compile(r"([^\W\d_])\1+")
_LETTER = re.compile(r"[^\W\d_]")
_SET_APART = re.compile(r"(?<![^\W_])[^\W_](?:[\s._\-*/|,]{1,3}[^\W_](?![^\W_])){2,}")
_JOINED = re.compile(r"^[^\W_]+(?:[._\-|][^\W_]+)+$")
# Whether it is worth to look closer at all; the same signs, in one pass.
_SIGNS = re.compile(
    r"([^\W\d_])\1\1|[^\W_][._\-|][^\W_]|[^\W\d_][\d@$!|+€£(¢¡§*#%&]|[\d@$!|+€£(¢¡§*#%&][^\W\d_]"
    r"|[^\W_][\s._\-*/|,]{1,3}[^\W_][\s._\-*/|,]"
)


def fold(text: str) -> str:
    """The text as a reader sees it, in one case and one form, without what is unseen."""
    if not text.isascii():
        if "\u202e" in text:
            text = _OVERRIDE.sub(lambda found: found.group(1)[::-1], text)
        text = text.translate(_APOSTROPHES)
        text = unicodedata.normalize("NFKC", text)
        text = "".join(_BLANK.get(char, char) for char in text if not _is_unseen(char))
        text = unicodedata.normalize("NFKC", text.casefold())
        text = _LOOSE_MARKS.sub("", text)
        return text.translate(_APOSTROPHES)
    return text.lower().replace("`", "'")


def plain(text: str) -> str:
    """A folded text without its diacritics."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFD", text.translate(_PLAIN))
    return "".join(char for char in apart if not unicodedata.combining(char))


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) == "Cf" or char in _UNSEEN or "\ufe00" <= char <= "\ufe0f"


@dataclass(frozen=True, slots=True)
class Disguise:
    """A place in a folded text that hides a word, and how to recognise which."""

    start: int
    end: int
    # Words that it may stand for.
    words: tuple[str, ...] = ()
    # With stars in it: what a word must look like, and what the beginning of one must.
    whole: re.Pattern[str] | None = None
    beginning: re.Pattern[str] | None = None


def disguises(folded: str, letters: frozenset[str] = frozenset()) -> Iterator[Disguise]:
    """The places of a folded text that show signs of disguise.

    *letters* are the letters with diacritics that the language itself uses; any other is a sign.
    """
    is_plain = folded.isascii()
    if is_plain and _SIGNS.search(folded) is None:
        return
    for found in _SET_APART.finditer(folded):
        run = "".join(_LEET.get(char, char)[0] for char in found.group() if char.isalnum())
        yield Disguise(found.start(), found.end(), tuple(dict.fromkeys(_parts(_alike(run)))))
    for found in _CHUNK.finditer(folded):
        chunk = found.group()
        if not chunk.isalpha() or not chunk.isascii() or _STRETCHED.search(chunk):
            yield from _of_chunk(chunk, found.start(), letters)


def _parts(run: str) -> Iterator[str]:
    """A run of letters set apart, whole, and every four or more of it."""
    yield run
    for start in range(len(run) - 3):
        for end in range(start + 4, min(len(run), start + _LONGEST_HIDDEN) + 1):
            yield run[start:end]


def _of_chunk(chunk: str, at: int, letters: frozenset[str]) -> Iterator[Disguise]:
    word = chunk.strip(_OUTER).rstrip("!").lstrip("*#%&!(+")
    if not _LETTER.search(word):
        return
    start = at + chunk.index(word)
    end = start + len(word)
    seen = _alike(word, letters)
    if "*" in word or any(char in word for char in _WILD):
        if (starred := _starred(seen)) is not None:
            yield Disguise(start, end, (), *starred)
        return
    has_sign = seen != word or _STRETCHED.search(seen) or any(char in _LEET for char in seen)
    words: list[str] = []
    if has_sign:
        words += _guesses(seen)
    if _JOINED.match(seen):
        words += _guesses(re.sub(r"[._\-|]", "", seen))
    if words:
        yield Disguise(start, end, tuple(dict.fromkeys(words)))


def _alike(word: str, letters: frozenset[str] = frozenset()) -> str:
    """A word in Latin letters, without the diacritics that the language does not use."""
    if word.isascii():
        return word
    word = word.translate(_LOOK_ALIKES)
    return "".join(char if char.isascii() or char in letters else plain(char) for char in word)


def _guesses(word: str) -> Iterator[str]:
    """What a word with symbols and stretched letters may read."""
    # In "ass1" or "room4" the digit at the end is a digit: read both with it and without.
    for form in dict.fromkeys((word, word.rstrip("0123456789"))):
        readings = [_LEET.get(char, char) for char in form]
        for letters in islice(product(*readings), _MOST_GUESSES):
            yield from _unstretched("".join(letters))


def _unstretched(word: str) -> Iterator[str]:
    """A word with every run of a letter as one and as two."""
    if not _STRETCHED.search(word):
        yield word
        return
    parts = _RUNS.split(word)
    # split() puts what repeats at every odd place.
    choices = [(part, part * 2) if i % 2 else (part,) for i, part in enumerate(parts)]
    for chosen in islice(product(*choices), _MOST_GUESSES):
        yield "".join(chosen)


def _starred(word: str) -> tuple[re.Pattern[str], re.Pattern[str] | None] | None:
    """What a word with stars in it may be: as a whole, and as the beginning of one."""
    if len(word) > _LONGEST_HIDDEN:
        return None
    wild = f"[{re.escape(_WILD)}]"
    inner = re.search(rf"[^\W\d_]{wild}+[^\W\d_]", word)
    outer = re.search(rf"^[^\W\d_]+{wild}{{2,}}$", word)
    if inner is None and outer is None:
        return None
    last = max(i for i, char in enumerate(word) if char in _WILD) + 1
    as_one: Callable[[re.Match[str]], str] = lambda run: rf"\w{{1,{len(run.group()) + 1}}}"  # noqa: E731
    exact: Callable[[re.Match[str]], str] = lambda run: rf"\w{{{len(run.group())}}}"  # noqa: E731
    pieces = re.split(rf"({wild}+)", word[:last])
    head = "".join(
        re.sub(rf"{wild}+", as_one if inner else exact, piece)
        if piece and piece[0] in _WILD
        else _classes(piece)
        for piece in pieces
    )
    tail = word[last:]
    if not tail:
        return re.compile(head), None
    ends = "".join(f"(?:{_classes(char)}" for char in tail) + ")?" * len(tail)
    return re.compile(head + _classes(tail)), re.compile(head + ends)


def _classes(text: str) -> str:
    return "".join(
        f"[{readings}]" if (readings := _LEET.get(char)) else re.escape(char) for char in text
    )
