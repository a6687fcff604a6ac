"""Takes secrets out of a change before any model sees it, and stops what is not clean. Pure.

Keys, tokens, PEM blocks and logins in addresses go by their shape; what is filed under a secret
name goes where it is a literal. Code that only speaks of a password stays, or there would be
nothing to review. Lines stay where they are, so a finding still names the right one.
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

# What is struck may have hidden the beginning of something else.
_PASSES = 8
MARK = re.compile(r"\[(?:secret|key)\]")


def redact_change(change: Change) -> Change:
    """The change without its secrets. Raises RedactionFailed if it cannot be made sure."""
    return Change(tuple(_redact_file(file) for file in change.files))


def _redact_file(file: FileChange) -> FileChange:
    return replace(
        file,
        path=redact_text(file.path),
        old_path=redact_text(file.old_path),
        hunks=tuple(_redact_hunk(hunk, is_setting(file.path)) for hunk in file.hunks),
    )


def _redact_hunk(hunk: Hunk, in_settings: bool) -> Hunk:
    """A key goes over several lines, and a sign before a line would hide its beginning."""
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
    """The heading and the lines without their signs, and a gap between them as the file has it."""
    return "\n".join((hunk.heading, "", *(line[1:] for line in hunk.lines)))


def redact_text(text: str, *, in_settings: bool = False) -> str:
    """The text without its secrets, as many lines as before. Raises RedactionFailed."""
    try:
        for _ in range(_PASSES):
            spans = find_secrets(text, in_settings=in_settings)
            if not spans:
                # What the guard looks for, but for what was just looked for.
                is_clean = find_secret(text) is None
                break
            text = _struck(text, spans)
        else:
            return guard(text, in_settings=in_settings)
    except RedactionFailed:
        raise
    except Exception:
        # An exception would quote what it stumbled over.
        raise RedactionFailed(problem="error") from None
    if not is_clean:
        raise RedactionFailed(problem="not_clean")
    return text


def guard(text: str, *, in_settings: bool = False) -> str:
    """The same text, if nothing in it looks like a secret. Raises RedactionFailed otherwise.

    Looks with other eyes, too: those by which a payload with a secret is refused.
    """
    try:
        is_clean = find_secret(text) is None and not find_secrets(text, in_settings=in_settings)
    except Exception:
        raise RedactionFailed(problem="error") from None
    if not is_clean:
        raise RedactionFailed(problem="not_clean")
    return text


def find_secrets(text: str, *, in_settings: bool = False) -> list[Span]:
    """Where secrets are. In a file of settings, values need no quotes."""
    spans = [
        (offset + start, offset + end, kind)
        for offset, view in _views(text)
        for start, end, kind in _find_in(view, in_settings)
    ]
    # Neither nothing nor a mark of ours is a secret, whatever it is filed under.
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


# An escape hides the beginning of a secret behind its own letter, in layers: JSON within JSON.
_LAYERS = 3


def _views(text: str) -> Iterator[tuple[int, str]]:
    """The text, and the lines around its escapes as they read without them, with their place."""
    yield 0, text
    for _ in range(_LAYERS):
        plainer = plain_view(text)
        if plainer == text:
            return
        yield from ((start, plainer[start:end]) for start, end in _escaped_lines(text))
        text = plainer


def _escaped_lines(text: str) -> Iterator[tuple[int, int]]:
    """Groups of lines with escapes, each with a line before and behind it."""
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
    """The text with each line of each span replaced by its kind; no line is lost."""
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


# -- what only a change has

# A hunk may show the middle of a key: lines of base64, and what stands above the end of it.
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
    """The lines right above the end of a key that could be its own."""
    at = text.rfind("\n", 0, end)
    for _ in range(_LONGEST_KEY):
        begin = text.rfind("\n", 0, max(at, 0)) + 1
        if at <= begin or not _KEY_LINE.fullmatch(text, begin, at):
            return
        if MARK.search(text, begin, at):
            return
        yield begin, at, "key"
        at = begin - 1


# "https://"+user+":"+word+"@"+host, put together without blanks: the guard takes it for a login.
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
