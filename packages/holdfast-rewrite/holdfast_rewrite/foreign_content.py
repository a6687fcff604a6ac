"""Find links, contact data and markup in a rewrite. Pure.

A rewrite is plain text for one person. Links and contact data that the original has are reported
too, as a warning; everything else is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby

from holdfast_rewrite.normalize_text import normalize_text, plain
from holdfast_rewrite.numerals import numerals

# -- links

# The domains that people spell out; in others, "kein punkt für" would be one.
_TLD = r"com|net|org|info|biz|app|dev|io|eu|co|me|tv|uk|us|ie|de|at|ch|fr|be|lu|it|es|pt|br|nl|pl"
# A label of two or more characters: "m.in." and "z.B." are abbreviations.
_DOMAIN = re.compile(
    r"(?<![\w@.-])((?:[^\W_](?:[^\W_]|-){1,62}\.)+)([^\W\d_]{2,24}|xn--[a-z0-9-]{2,59})(?![\w-])"
)
# "Küche.Es ist" is the end of a sentence without a space, whatever its first word.
_WRITTEN_LARGE = frozenset({"Com", "Net", "Org"})
_SHORT = re.compile(r"(?<!\w)(?:t|x|g)\.(?:me|co|com|page)\b")
_URL = re.compile(
    r"h(?:tt|xx)ps?\s?:\s?/?/?\S+|(?<![\w@.-])(?:[a-z0-9-]{2,63}\.){1,4}[a-z]{2,12}/\S+|(?<!\w)www\s?\.\s?\S+|(?<!\w)ftp://\S+"
)
# Spelled out: "flat dot com", "haus(punkt)de".
_DOT = r"(?:dot|punkt|punto|point|ponto|punt|kropka)"
_SPELLED = re.compile(
    rf"(?<![a-z0-9-])[a-z0-9-]{{2,63}}\s{{0,2}}[\[({{]\s*(?:\.|{_DOT})\s*[\])}}]\s*(?:{_TLD})(?!\w)"
    rf"|(?<![a-z0-9-])[a-z0-9-]{{2,63}}\s+{_DOT}\s+(?:com|net|org|de|fr|it|es|nl|pl|pt|eu|io|br|uk)(?!\w)"
    # "rules . com", "w w w . rules"
    r"|(?<![\w.])[a-z0-9-]{2,63}\s\.\s?(?:com|net|org)(?!\w)|(?<!\w)w\s?w\s?w\s?\.\s?\w+"
)

# -- contact data

_AT = r"(?:@|\s*[\[({]\s*(?:at|arroba|ät|a|chiocciola|arobase|małpa|malpa)\s*[\])}]\s*)"
_EMAIL = re.compile(
    rf"(?<![\w.+-])[\w.+-]{{1,64}}{_AT}[^\s@.,;]{{1,63}}(?:\.|\s?{_DOT}\s?)[a-z]{{2,}}"
)
_HANDLE = re.compile(
    r"(?<![\w@.])@[a-z0-9_][\w.-]{2,}"
    # "arroba rafa", "mon insta c'est sam.k93"
    r"|(?<!\w)(?:arroba|arobase|apenstaart\w*|klammeraffe)\s+[a-z]\w+"
    r"|(?<!\w)(?:insta(?:gram)?|ig|snap(?:chat)?|discord|telegram|tiktok|skype|venmo|revolut|twitter)"
    r"\s?(?:is|ist|es|est|c'est|e|to|:|=|-|handle)+\s+(?=\w*[\d._#])[a-z][\w.#]*[\w#]"
    # "l u c a @ gmail . com"
    r"|\w\s?@\s?[a-z0-9-]+\s?\.\s?[a-z]{2,}(?!\w)"
)
_IBAN = re.compile(r"(?<!\w)[a-z]{2}\d{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,4})?(?!\w)")
_DIGITS = re.compile(r"(?<![\w.,:])\+?\(?\d(?:[\s().\-/\u2010-\u2015]{0,3}\d){6,17}(?![\w:])")
# Runs of digits that are no telephone number: dates, times of day, amounts in thousands.
_NO_PHONE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./-]\s?\d{1,2}[./-]\s?\d{2,4}"
    r"|\d{1,2}\s?[.:]\d{2}\s?[-\u2010-\u2015/]\s?\d{1,2}\s?[.:]\d{2}|\d{1,3}(?:[., ]\d{3})+"
    r"|\d{1,2}[./]\d{1,2}\.?\s?[-\u2010-\u2015]\s?\d{1,2}[./]\d{1,2}\.?|\d{4}\s?[-\u2010-\u2015/]\s?\d{4}"
)
_FEWEST_DIGITS = 7
_NUMBER_WORD = re.compile(r"[^\W_]+")
_WORDS_IN_A_ROW = re.compile(r"(?<![^\W_])[^\W_]+(?:[\s,-]{1,3}[^\W_]+){3,}")
# Some dictate in pairs. Times and sums have fewer words, and no zero.
_FEWEST_DICTATED, _FEWEST_WITH_ZERO = 6, 4
_LONGEST_ARTICLE = 2

# -- markup

_MARKUP = re.compile(
    # HTML tags and entities; BBCode.
    r"</?[a-z][a-z0-9]{0,15}(?:\s[^<>\n]{0,80})?/?>|&(?:[a-z]{2,8}|#x?[0-9a-f]{1,6});"
    r"|\[/?(?:b|i|u|s|url|img|quote|code|color|size|list)(?:=[^\]\n]{0,80})?\]"
    # Markdown: emphasis, headings, code, links, quotes, rules, tables.
    r"|\*\*\S|__\S[^\n]{0,200}\S__|~~\S|`[^`\n]{0,200}`|```|\]\([^)\n]{1,200}\)|!\["
    r"|(?<![\w*])\*[^\s*][^*\n]{0,80}\*(?![\w*])|(?<!\w)_[^\s_][^_\n]{0,80}_(?!\w)"
    r"|(?m:^\s{0,3}(?:\#{1,6}\s|>\s|[-*+•▪\u2013]\s|-{3,}\s*$|={3,}\s*$))"
    r"|(?m:^\|.*\|\s*$)"
    # JSON, and LaTeX commands.
    r"|(?m:^\s*\{\s*\")|\"\s*:\s*[\"\[{]|\\(?:text|emph|begin|item|n\b)[a-z]*"
)
_NUMBERED = re.compile(r"(?m)^\s*(?:\d{1,2}|[a-h])[.)]\s+\S")
_PLACEHOLDER = re.compile(r"\[[^\]\n]{1,40}\]|\{[^}\n]{1,40}\}|<[^>\n]{1,40}>|_{3,}|\bx{3,}\b")


def links_in(text: str) -> Iterator[str]:
    """Yield web addresses and bare domains."""
    seen = normalize_text(text)
    # The domain of an e-mail address is contact data.
    bare = _EMAIL.sub(" ", seen)
    for found in (_URL, _SHORT, _SPELLED):
        yield from (match[0] for match in found.finditer(bare))
    yield from _domains(text)


def _domains(text: str) -> Iterator[str]:
    """Yield bare domains: a name, a dot and a top-level domain."""
    for found in _DOMAIN.finditer(unicodedata.normalize("NFKC", text)):
        tld = found[2]
        # "Sink.It" is the end of a sentence without a space.
        is_sentence = tld.istitle() and tld not in _WRITTEN_LARGE
        if tld.lower() in top_level_domains() and not is_sentence:
            yield found[0].lower()


@cache
def top_level_domains() -> frozenset[str]:
    """Return all top-level domains."""
    text = (files("holdfast_rewrite") / "top_level_domains.txt").read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return frozenset(word for line in lines for word in line.split())


def contacts_in(text: str) -> Iterator[str]:
    """Yield e-mail addresses, telephone numbers, account numbers and handles."""
    seen = normalize_text(text)
    yield from _dictated(seen)
    for found in (_EMAIL, _HANDLE, _IBAN):
        yield from (match[0] for match in found.finditer(seen))
    for match in _DIGITS.finditer(seen):
        digits = sum(map(str.isdigit, match[0]))
        if digits >= _FEWEST_DIGITS and not _NO_PHONE.fullmatch(match[0].strip()):
            yield match[0]


def _dictated(text: str) -> Iterator[str]:
    """Yield telephone numbers in words: "oh seven seven, double zero …"."""
    for found in _WORDS_IN_A_ROW.finditer(plain(text)):
        words = _NUMBER_WORD.findall(found[0])
        for is_number, run in groupby(words, key=_is_dictated):
            said = list(run)
            most = _FEWEST_DICTATED if _zeros().isdisjoint(said) else _FEWEST_WITH_ZERO
            if is_number and len(said) >= most:
                yield " ".join(said)


def _is_dictated(word: str) -> bool:
    return (word.isdigit() and len(word) == 1) or word in _zeros() or word in _number_words()


@cache
def _zeros() -> frozenset[str]:
    return frozenset(("zero", "oh", "null", "nul", "cero", "double", "doppel", "meia"))


@cache
def _number_words() -> frozenset[str]:
    """Return the number words of the eight languages, without articles."""
    known = (one.words for name, one in numerals().items() if name not in ("sv", "tr"))
    return frozenset(word for words in known for word in words if len(word) > _LONGEST_ARTICLE)


def markup_in(text: str) -> Iterator[str]:
    """Yield HTML, Markdown, lists, JSON and gaps to fill in."""
    seen = text.lower()
    for found in (_MARKUP, _PLACEHOLDER):
        yield from (match[0] for match in found.finditer(seen))
    numbered = _NUMBERED.findall(seen)
    if len(numbered) > 1:
        yield numbered[0]
