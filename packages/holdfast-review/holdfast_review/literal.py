"""Finds literals that code assigns to secret names. Pure, and linear in the text.

After the name and its sign, an expression is parsed as far as all languages agree: brackets,
literals, words. Its literals are redacted: ``os.getenv("DB_PASS", "…")``, ``("…")``, ``x or "…"``.
Lookup keys are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

from holdfast.sensitive import Span
from holdfast_review.regions import Regions
from holdfast_review.secret_value import (
    is_name,
    is_reference,
    looks_made,
    may_be_secret,
)

_SIGNED = re.compile(
    r"""(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]{2,}+)\0?(["'\]]{1,2}|\[\]|[?!])?
        (?:[ \t]{0,8}(=>|[!=]==?|[:?|&+]{0,2}=|:|,|(?<![ \t])[({])
         |[ \t]{1,8}(?=["'`]))                                       # #define PASSWORD "…"
    """,
    re.VERBOSE,
)
_COMPARES = ("", "==", "===", "!=", "!==")
_OPTION = re.compile(r"--|[A-Z0-9_]+$")
_DEFINES = re.compile(r"(?<![A-Za-z0-9_])(?:def|fn|func|function) $")
_LONGEST_BEFORE = 2_000
_LONGEST_EXPRESSION = 4_000
# The maximum of secret names in one line, and the minimum of characters per name in real code.
_MOST_NAMES, _DENSEST = 128, 20
_QUOTE = re.compile("[\"'`]")


def find_literals(regions: Regions) -> Iterator[Span]:
    """Find literals under a secret name: ``password = "…"``, ``"api_key": "…"``."""
    credit = Credit()
    struck = next_quote = first = line_end = -1
    names = 0
    for found in regions.finditer(_SIGNED):
        # A name inside a redacted literal is already redacted.
        if found.start() < struck or not regions.is_secret_name(found[1]):
            continue
        if found.start() > line_end:
            first, names = found.start(), 0
            line_end = _line_end(regions.text, first)
        names += 1
        if names > _MOST_NAMES and found.start() - first < _DENSEST * names:
            # No real code has so many names; the rest of the line is redacted.
            struck = line_end
            yield found.end(), line_end, "secret"
            continue
        # An expression without a quote has no literal.
        at = found.end()
        if at > next_quote:
            ahead = _QUOTE.search(regions.text, at)
            next_quote = ahead.start() if ahead else len(regions.text)
        if next_quote - at > _LONGEST_EXPRESSION:
            continue
        credit.begin(at)
        for span in _behind(regions, found, credit):
            struck = max(struck, span[1])
            yield span


def _behind(regions: Regions, found: re.Match[str], credit: Credit) -> Iterator[Span]:
    """Yield the literals after one name and its sign."""
    text, at = regions.text, found.end()
    name, quote, sign = found[1], found[2] or "", found[3] or ""
    # A redaction mark is not a name.
    if quote.startswith("]") and name == "secret":
        return iter(())
    is_password = regions.is_password_name(name)
    before = _line_before(text, found.start())
    if sign in ("(", "{"):
        callee = name.rpartition(".")[2]
        if not (is_password or _SETTER.fullmatch(callee)) or _DEFINES.search(before):
            return iter(())
        return _Reading(text, at, is_password, within=[_shared_columns(sign, callee)]).spans(credit)
    if sign == ",":
        # ("password", "…"): only if the name is the whole quoted text.
        if quote[-1:] not in ("'", '"') or not before.endswith(quote[-1]):
            return iter(())
        # In a list of names, each element is one.
        within = [] if _OPTION.match(name) else [_Within.NAMES]
        return _Reading(text, at, False, within=within).first()
    if sign in _COMPARES:
        return _Reading(text, at, is_password and sign != "").first()
    # After a name within quotes, a quote ends them; within brackets, a comma ends a value.
    shut = '"' if not quote and before.count('"') % 2 else ""
    ends = sign == ":" or _is_open(before)
    return _Reading(text, at, is_password, sign, shut, comma_ends=ends).spans(credit)


class Credit:
    """A budget that keeps the parsing of all expressions together linear in the text.

    An expression may contain further names, each of which is parsed again. Every character before a
    name earns one unit; a token costs its length plus overhead. Where names are denser than in real
    code, only the first tokens after each are read.
    """

    MOST = 16_384
    PIECE = 4

    def __init__(self) -> None:
        self._left = self.MOST
        self._begun = self._read = 0

    def begin(self, at: int) -> None:
        self._left = min(self.MOST, self._left + at - self._begun)
        self._begun = self._read = at

    def pays(self, at: int) -> bool:
        """Return whether the budget covers the token that ended here; if so, parsing continues."""
        self._left -= at - self._read + self.PIECE
        self._read = at
        return self._left > 0


def _line_before(text: str, at: int) -> str:
    """Return the text before a position on its line; empty for an overlong line."""
    start = text.rfind("\n", max(0, at - _LONGEST_BEFORE), at) + 1
    return text[start:at] if at - start < _LONGEST_BEFORE else ""


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _is_open(before: str) -> bool:
    count = before.count
    return count("(") + count("[") + count("{") > count(")") + count("]") + count("}")


# -- parsing of an expression

_TOKEN = re.compile(
    r"""[ \t\r\0]*+(?:
        (?:[bBrRfFuUlLN]{1,2}|[@$])?(?:
            (?P<triple>\"{3}|'{3}) | "(?P<double>(?:[^"\\\n]|\\.)*+)"
          | '(?P<single>(?:[^'\\\n]|\\.|'')*+)' | `(?P<back>[^`\n]*+)`)
      | (?P<word>[A-Za-z_$@][A-Za-z0-9_$]*+) | (?P<open>[(\[{]) | (?P<close>[)\]}])
      | (?P<line>\n) | (?P<sign>=>|\|\||\?\?|\\.|.)
    )""",
    re.VERBOSE,
)
_LITERALS = ("triple", "double", "single", "back")
# Relevant expressions have fewer tokens.
_TOKENS = 64
_LONGEST_TRIPLE = 20_000

# Tokens that end an expression, that may join two words, and that continue over a line end.
_STOPS = frozenset(
    {"return", "raise", "throw", "yield", "print", "def", "class", "function", "func", "lambda"}
    | {"assert", "import", "=>", ";"}
)
_KEYWORDS = frozenset(
    {"new", "await", "or", "and", "not", "if", "else", "in", "is", "as", "unless", "then", "const"}
)
_GOES_ON = frozenset({"=", ":=", "=>", "||", "??", "?", "+", "\\", "or"})
_BEGINS_ON = re.compile(r"[ \t]*+(?:\|\||\?\?|or[ ]|[?:+][ ])")
# The first argument of these is a lookup key or is compared with the value.
_LOOKUP = re.compile(
    r"(?:get|fetch|find|look|read|load|require|prompt|ask|env|config|header|param|query|match)\w*"
    r"|pop|input|var|open|bool|int|flag|compile|fullmatch|search|sub|split|replace\w*|[lr]?strip"
    r"|(?:starts|ends)_?with|(?:last_?)?index(?:_?of)?|encode|decode|join|test|exec|regexp?",
    re.I,
)
_SETTER = re.compile(r"(?:set|with)(?:_\w+|[A-Z]\w*)")
_LABELS = frozenset(
    {"alias", "description", "doc", "encoding", "env", "help", "id", "key", "label", "message"}
    | {"name", "path", "placeholder", "title", "type", "url"}
)


class _Within(Enum):
    """The content of an open bracket."""

    GROUP = auto()
    NAMES = auto()
    CALL = auto()
    LOOKUP = auto()
    BRACE = auto()


def _shared_columns(bracket: str, callee: str) -> _Within:
    match bracket:
        case "{":
            return _Within.BRACE
        case _ if not callee:
            return _Within.GROUP
        case "(" if not _LOOKUP.fullmatch(callee):
            return _Within.CALL
        case _:
            return _Within.LOOKUP


class _Reading:
    """An expression, parsed from the sign after a secret name on."""

    def __init__(
        self,
        text: str,
        at: int,
        is_password: bool,
        last: str = "(",
        shut: str = "",
        *,
        comma_ends: bool = True,
        within: list[_Within] | None = None,
    ) -> None:
        self.text = text
        self.at = at
        self.is_password = is_password
        # The last token, and where it ended.
        self.last = last
        self.last_end = at
        self.last_is_word = False
        # The text before the last sign.
        self.label = ""
        self.shut = shut
        self.comma_ends = comma_ends
        self.has_comma = False
        self.within = within or []
        self.is_call = bool(within)

    def first(self) -> Iterator[Span]:
        """Yield only a literal directly after the sign."""
        found = _TOKEN.match(self.text, self.at)
        if found is not None and found.lastgroup in _LITERALS:
            self.at = found.end()
            yield from self._struck(found)

    def spans(self, credit: Credit) -> Iterator[Span]:
        """Yield every literal of the expression that may be the secret."""
        for number in range(_TOKENS):
            if number and not credit.pays(self.at):
                return
            found = _TOKEN.match(self.text, self.at)
            kind = found.lastgroup if found is not None else None
            if found is None or kind is None:
                return
            self.at = found.end()
            start = found.start(kind)
            if kind in _LITERALS:
                if kind == "double" and self.shut:
                    return
                if kind == "single" and self.last_is_word and start - 1 == self.last_end:
                    # An apostrophe, as in "it's".
                    self.at = start
                    continue
                yield from self._struck(found)
                self.last, self.last_is_word = found[kind], False
            elif not self._goes_on(kind, found[kind], start):
                return
            self.last_end = self.at

    def _goes_on(self, kind: str, piece: str, start: int) -> bool:
        """Return whether the expression continues with this token."""
        match kind:
            case "line":
                return self._goes_on_over_line()
            case "word":
                # Two adjacent words are prose.
                if piece in _STOPS or (self.last_is_word and not {piece, self.last} & _KEYWORDS):
                    return False
            case "open":
                is_glued = start == self.last_end and (
                    self.last_is_word or self.last in (")", "]", ">")
                )
                self.within.append(_shared_columns(piece, self.last if is_glued else ""))
            case "close":
                if not self.within:
                    return False
                self.within.pop()
                if self.is_call and not self.within:
                    return False
            case _:
                if not self._goes_on_with_sign(piece):
                    return False
        self.last, self.last_is_word = piece, kind == "word"
        return True

    def _goes_on_with_sign(self, piece: str) -> bool:
        self.label = self.last.lower() if piece in "=:" else ""
        if self.within:
            return piece != "=>"
        if piece == ",":
            self.has_comma = True
            return not self.comma_ends
        # a, password = "…", "…" continues, and password = "…", b = "…" does not.
        is_next = piece in "=:" and self.has_comma
        return not is_next and piece not in _STOPS and piece != self.shut

    def _goes_on_over_line(self) -> bool:
        # A bracket that contains an empty line was probably never closed.
        if self.text[self.at : self.at + 1] in ("", "\n", "\r") or _Within.BRACE in self.within:
            return False
        is_open = bool(self.within) or self.last in _GOES_ON
        return is_open or _BEGINS_ON.match(self.text, self.at) is not None

    def _struck(self, found: re.Match[str]) -> Iterator[Span]:
        kind = found.lastgroup or ""
        start, end = found.span(kind)
        has_lines = False
        if kind == "triple":
            start, end, has_lines = self._triple(found[kind], end)
        elif self.within and self.text[self.at : self.at + 1] == ":":
            # {"password": "…"}: a separate key.
            return
        for line in self.text[start:end].split("\n"):
            # A sentence of a longer text is not a secret just because it contains a digit.
            is_sentence = has_lines and not self.is_password and " " in line.strip()
            if not is_sentence and self._may_be_secret(line):
                yield start, start + len(line), "secret"
            start += len(line) + 1

    def _triple(self, quotes: str, start: int) -> tuple[int, int, bool]:
        """Return start and end of a triple-quoted literal, and whether it spans lines."""
        end = self.text.find(quotes, start, start + _LONGEST_TRIPLE)
        line = self.text.find("\n", start)
        line = line if line >= 0 else len(self.text)
        self.at = end + len(quotes) if end >= 0 else line
        return start, end if end >= 0 else line, not 0 <= end < line

    def _may_be_secret(self, value: str) -> bool:
        inner = self.within[-1] if self.within else _Within.GROUP
        if inner is _Within.LOOKUP and self.last in ("(", "["):
            return False
        if all(one is _Within.GROUP for one in self.within):
            is_listed = bool(self.within) and not self.is_password and is_name(value)
            return not is_listed and may_be_secret(value, is_password=self.is_password)
        if inner is _Within.NAMES:
            return not is_name(value) and may_be_secret(value)
        if self.label in _LABELS or is_reference(value) or " " in value.strip():
            return False
        return may_be_secret(value) and (self.is_password or looks_made(value))
