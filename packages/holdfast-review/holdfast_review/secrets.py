"""Redacts secrets from a change before a model sees it, and rejects unclean changes. Pure.

Keys, tokens, PEM blocks and logins in URLs are found by their shape. Literals under a secret name
are redacted. Code that only mentions a password is kept, because it must be reviewable. Line
numbers do not change, so findings still refer to the right line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from holdfast.redact import escapes, plain_view
from holdfast.secret import find_secret
from holdfast.sensitive import SHAPES, Finder, Span
from holdfast_review.literal import find_literals
from holdfast_review.patch import Change, FileChange, Hunk
from holdfast_review.refusal import RedactionFailed
from holdfast_review.regions import Regions
from holdfast_review.setting import (
    find_blocks,
    find_commands,
    find_pairs,
    find_parts,
    find_values,
    is_setting,
)

# A redaction may reveal the beginning of another secret.
_PASSES = 8
MARK = re.compile(r"\[(?:secret|key)\]")


def redact_change(change: Change) -> Change:
    """Return the change without its secrets. Raises RedactionFailed if that is not certain."""
    return Change(tuple(_redact_file(file) for file in change.files))


def _redact_file(file: FileChange) -> FileChange:
    return replace(
        file,
        path=redact_text(file.path),
        old_path=redact_text(file.old_path),
        hunks=tuple(_redact_hunk(hunk, is_setting(file.path)) for hunk in file.hunks),
    )


def _redact_hunk(hunk: Hunk, in_settings: bool) -> Hunk:
    """Redact a hunk as one text: a key spans lines, and the signs would hide its beginning."""
    signs = [line[0] for line in hunk.lines]
    heading, _, *lines = redact_text(text_of(hunk), in_settings=in_settings).split("\n")
    if len(lines) != len(signs):
        raise RedactionFailed(problem="lines")
    return replace(
        hunk,
        heading=heading,
        lines=tuple(sign + line for sign, line in zip(signs, lines, strict=True)),
    )


def text_of(hunk: Hunk) -> str:
    """Return the heading and the lines without their signs, with the gap between them."""
    return "\n".join((hunk.heading, "", *(line[1:] for line in hunk.lines)))


def redact_text(text: str, *, in_settings: bool = False) -> str:
    """Return the text without its secrets, with as many lines. Raises RedactionFailed."""
    try:
        for _ in range(_PASSES):
            spans = find_secrets(text, in_settings=in_settings)
            if not spans:
                # The checks of guard(), except those that just ran.
                is_clean = find_secret(text) is None
                break
            text = _struck(text, spans)
        else:
            return guard(text, in_settings=in_settings)
    except RedactionFailed:
        raise
    except Exception:
        # The exception could quote the text.
        raise RedactionFailed(problem="error") from None
    if not is_clean:
        raise RedactionFailed(problem="not_clean")
    return text


def guard(text: str, *, in_settings: bool = False) -> str:
    """Return the text if nothing in it looks like a secret. Raises RedactionFailed otherwise.

    It also applies the rules that reject payloads with secrets.
    """
    try:
        is_clean = find_secret(text) is None and not find_secrets(text, in_settings=in_settings)
    except Exception:
        raise RedactionFailed(problem="error") from None
    if not is_clean:
        raise RedactionFailed(problem="not_clean")
    return text


def find_secrets(text: str, *, in_settings: bool = False) -> list[Span]:
    """Find the secrets. In settings files, values need no quotes."""
    spans = [
        (offset + start, offset + end, kind)
        for offset, view in _views(text)
        for start, end, kind in _find_in(view, in_settings)
    ]
    # Empty values and redaction marks are not secrets.
    return [
        (start, end, kind)
        for start, end, kind in spans
        if start < end and not MARK.fullmatch(text, start, end)
    ]


def _find_in(text: str, in_settings: bool) -> Iterator[Span]:
    for finder in _FINDERS:
        yield from finder(text)
    regions = Regions(text)
    if regions.spans:
        for by_name in _BY_NAME:
            yield from by_name(regions)
        if in_settings:
            yield from find_values(regions)


# An escape can hide the beginning of a secret, in layers: JSON within JSON.
_LAYERS = 3


def _views(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text, and the lines around escapes in unescaped form, with their positions."""
    yield 0, text
    for _ in range(_LAYERS):
        plainer = plain_view(text)
        if plainer == text:
            return
        yield from ((start, plainer[start:end]) for start, end in _escaped_lines(text))
        text = plainer


def _escaped_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield groups of lines with escapes, each with the line before and after it."""
    start = end = -1
    for at in escapes(text):
        if at < end:
            continue
        begins = text.rfind("\n", 0, max(0, text.rfind("\n", 0, at))) + 1
        if begins > end:
            if end >= 0:
                yield start, end
            start = begins
        ends = text.find("\n", at)
        ends = text.find("\n", ends + 1) if ends >= 0 else -1
        end = ends if ends >= 0 else len(text)
    if end >= 0:
        yield start, end


def _struck(text: str, spans: list[Span]) -> str:
    """Replace each line of each span with its kind; the number of lines is kept."""
    kept: list[str] = []
    done = 0
    for start, end, kind in sorted(spans):
        start = max(start, done)
        if end <= start:
            continue
        gone = text[start:end].split("\n")
        kept += (text[done:start], "\n".join(f"[{kind}]" if line else "" for line in gone))
        done = end
    kept.append(text[done:])
    return "".join(kept)


# -- only in changes

# A hunk may show the middle of a key: base64 lines, and lines above its end.
_BASE64_LINE = re.compile(
    r"^[ \t\"'#/*]{0,40}([A-Za-z0-9+/]{56,}+={0,2})[\"',;\\n+ \t]{0,8}\r?$", re.M
)


def _find_key_lines(text: str) -> Iterator[Span]:
    for found in _BASE64_LINE.finditer(text):
        line = found[1]
        if line != line.lower() and line != line.upper() and any(map(str.isdigit, line)):
            yield *found.span(1), "key"
    end = text.find("-----END ")
    while end >= 0:
        yield from _above(text, end)
        end = text.find("-----END ", end + 1)


_LONGEST_KEY = 200
_KEY_LINE = re.compile(r"[ \t\"'#/*]{0,40}[A-Za-z0-9+/=]{1,100}[\"',;\\ \t]{0,8}\r?")


def _above(text: str, end: int) -> Iterator[Span]:
    """Yield the lines directly above the end of a key that may belong to it."""
    at = text.rfind("\n", 0, end)
    for _ in range(_LONGEST_KEY):
        begin = text.rfind("\n", 0, max(at, 0)) + 1
        if at <= begin or not _KEY_LINE.fullmatch(text, begin, at):
            return
        if MARK.search(text, begin, at):
            return
        yield begin, at, "key"
        at = begin - 1


# "https://"+user+":"+word+"@"+host without blanks, which the guard takes for a login.
_GLUED_LOGIN = re.compile(r"(?<=://)[^\s/:@]{1,100}+:[^\s/:@]{1,200}+(?=@)")


def _find_glued_logins(text: str) -> Iterator[Span]:
    for found in _GLUED_LOGIN.finditer(text):
        yield *found.span(), "secret"


_FINDERS: tuple[Finder, ...] = (
    *SHAPES,
    _find_key_lines,
    _find_glued_logins,
)
_BY_NAME: tuple[Callable[[Regions], Iterator[Span]], ...] = (
    find_literals,
    find_parts,
    find_pairs,
    find_blocks,
    find_commands,
)
