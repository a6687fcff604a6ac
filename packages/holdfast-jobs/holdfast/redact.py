"""Redacts secrets and personal data in text and documents, and escapes control characters.

This is the second line of defense. The first is that messages, arguments, source lines and payloads
are not passed on at all: no pattern can recognize a private sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.sensitive import FINDERS, Finder, Span, is_secret_name
from holdfast.visible import visible as visible

TEXT_LIMIT = 8_000
MAX_DEPTH = 8
MAX_NODES = 500
KEY_LIMIT = 80
LARGEST_NUMBER = 2**63

# Text scanned beyond the limit, so that no part of a secret remains at the cut.
_MARGIN = 8_000
_LAYERS = 3

_ESCAPE = re.compile(
    r"\\\0*+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[abefnrtv0\"'/\\])|%[0-9A-Fa-f]{2}"
    r"|&(?:[a-z]{2,5}|#\d{1,6}|#x[0-9a-f]{1,5});|\x1b\[[0-9;]{0,16}[A-Za-z]"
)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


def redact(text: str, limit: int = TEXT_LIMIT) -> str:
    """At most *limit* characters of *text*, with private data replaced by its kind, as in [email].

    Ids, hashes, dates, numbers and module names are kept. Time is linear in *limit*.
    """
    seen = text[: limit + _MARGIN]
    spans = find_private(seen, FINDERS)
    if not spans and len(text) <= limit:
        return text
    return _cut(_struck(seen, spans, limit), limit, len(text) > limit)


def escapes(text: str) -> Iterator[int]:
    """The positions of escapes."""
    return (found.start() for found in _ESCAPE.finditer(text))


def plain_view(text: str) -> str:
    """The text with one layer of escapes decoded, every character at its position."""
    return _ESCAPE.sub(_plain, text)


def find_private(text: str, finders: Sequence[Finder]) -> list[Span]:
    """The matches of the finders in *text*, including escaped ones."""
    spans = [span for finder in finders for span in finder(text)]
    view = text
    for _ in range(_LAYERS):
        # A letter of an escape would hide the start of a secret that follows it.
        plainer = plain_view(view)
        if plainer == view:
            break
        view = plainer
        spans += (span for finder in finders for span in finder(view))
    return spans


def _plain(found: re.Match[str]) -> str:
    """The decoded escape, padded to its length, so that positions do not change."""
    escape = found[0]
    match escape[0], escape[-1]:
        case "\\", _ if (code := escape[1:].lstrip("\0"))[0] in "ux" and len(code) > 1:
            char = chr(int(code[1:], 16))
        case "\\", last:
            char = _PLAIN.get(last, last if last in "\"'/\\" else "\0")
        case "%", _:
            char = chr(int(escape[1:], 16))
        case "&", _:
            char = html.unescape(escape)
        case _:
            char = "\0"
    if not (len(char) == 1 and char.isascii() and (char.isprintable() or char.isspace())):
        char = "\0"
    return char.rjust(len(escape), "\0")


def _struck(text: str, spans: list[Span], limit: int) -> str:
    """*text* up to *limit* with the spans replaced; overlaps get the kind of the first one."""
    kept: list[str] = []
    done = 0
    for start, end, kind in sorted(spans):
        if start >= limit:
            break
        if start >= done:
            kept += (text[done:start], f"[{kind}]")
        done = max(done, end)
    kept.append(text[done:limit])
    return "".join(kept)


def _cut(text: str, limit: int, was_longer: bool) -> str:
    return text if len(text) <= limit and not was_longer else (text[: limit - 1] + "…")[:limit]


def redact_document(value: object, limit: int = TEXT_LIMIT) -> Any:
    """*value* as plain JSON, redacted by key names and then by text, and bounded.

    ``[cut]`` replaces what exceeds the limits of depth, number of values or characters.
    """
    return _Walk(limit).visit(value, 1)


@dataclass(slots=True)
class _Walk:
    chars: int
    nodes: int = MAX_NODES

    def visit(self, value: object, depth: int) -> Any:
        self.nodes -= 1
        if self.nodes < 0 or self.chars <= 0:
            return "[cut]"
        match value:
            case None | bool():
                return value
            case int() | float():
                return self._number(value)
            case str():
                return self._text(value)
            case Mapping() | list() | tuple() if depth >= MAX_DEPTH:
                return "[cut]"
            case Mapping():
                return self._object(value, depth)
            case list() | tuple():
                return self._array(value, depth)
            case _:
                return f"[{harmless(type(value).__name__, 40)}]"

    def _object(self, value: Mapping[Any, object], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self.nodes <= 0 or self.chars <= 0:
                found["[cut]"] = len(value) - len(found)
                break
            name = key if isinstance(key, str) else type(key).__name__
            is_secret = is_secret_name(name) and item is not None and not isinstance(item, bool)
            name = self._text(name, KEY_LIMIT)
            found[name] = "[secret]" if is_secret else self.visit(item, depth + 1)
        return found

    def _array(self, value: list[object] | tuple[object, ...], depth: int) -> list[Any]:
        found: list[Any] = []
        for item in value:
            if self.nodes <= 0 or self.chars <= 0:
                found.append("[cut]")
                break
            found.append(self.visit(item, depth + 1))
        return found

    def _number(self, value: float) -> Any:
        # Written so that NaN fails it too.
        if not abs(value) < LARGEST_NUMBER:
            return "[number]"
        self.chars -= 20
        text = repr(value)
        plain = redact(text)
        return value if plain == text else plain

    def _text(self, text: str, limit: int | None = None) -> str:
        kept = harmless(redact(text, min(self.chars, limit or self.chars)), limit or self.chars)
        self.chars -= len(kept) + 1
        return kept


def harmless(text: str, limit: int = TEXT_LIMIT) -> str:
    """*text* on one line, safe to print on a terminal.

    Control, bidirectional and invisible characters and lone surrogates are shown as escapes. HTML
    output must still escape it.
    """
    return _cut(visible(text[:limit]), limit, len(text) > limit)
