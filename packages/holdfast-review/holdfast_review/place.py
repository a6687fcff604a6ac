"""Finds the file of a change that a model refers to by a path. Pure.

Models write paths in many ways: with diff prefixes, absolute, quoted, with backslashes, escaped,
with a line number, or with the old name of a moved file. A path is mapped only if it matches a
single file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from holdfast_review.patch import FileChange

# A named path is compared in a few dozen forms, each at most this long.
LONGEST_NAMED = 2_000
_QUOTES = "`'\"*«»\u201c\u201d\u2018\u2019 \t\r\n,;"
# File names may contain (group) or [id], so brackets are stripped only as a second attempt.
_BRACKETS = _QUOTES + "<>()[]{}"
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s]+)\)")
_SCHEME = re.compile(r"(?:file|vscode|git)://(?:localhost(?=/))?", re.I)
_LINE = re.compile(
    r"(?::(\d{1,9})(?::\d{1,9})?(?:-\d{1,9})?|\#L(\d{1,9})(?:[-C:]L?\d{1,9})*|"
    r"[ ,]{0,4}\(?(?:line|lines|l\.)[ ]?(\d{1,9})(?:\s?[-\u2013]\s?\d{1,9})?\)?)$",
    re.I,
)
# Prefixes of diffs: a/ and b/, and those of diff.mnemonicPrefix.
_PREFIX = re.compile(r"(?:[abciow]|old|new)/")
_DRIVE = re.compile(r"[A-Za-z]:(?=/)")
_OCTALS = re.compile(r"(?:\\[0-7]{3})+")
_UNICODE = re.compile(r"\\u\{([0-9A-Fa-f]{1,6})\}|\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Place:
    """A file of the change, and the line number in the path."""

    file: FileChange
    line: int | None = None


class Places:
    """An index of the files of a change or part, by every way to name them."""

    def __init__(self, files: Sequence[FileChange]) -> None:
        self._exact: dict[str, FileChange] = {}
        for file in files:
            self._exact.setdefault(file.path, file)
        # Names before a move. A file that has the name now takes precedence.
        self._old = _unique((file.old_path, file) for file in files if file.old_path)
        by_name = [(file.path, file) for file in self._exact.values()]
        by_name += [(path, file) for path, file in self._old.items() if path not in self._exact]
        self._folded = _unique((_folded(path), file) for path, file in by_name)
        self._by_base: dict[str, list[tuple[str, FileChange]]] = {}
        for path, file in by_name:
            folded = _folded(path)
            self._by_base.setdefault(_base(folded), []).append((folded, file))

    def find(self, named: str) -> Place | None:
        """Return the file that *named* refers to; None if there is none or more than one."""
        if (file := self._exact.get(named)) is not None:
            return Place(file)
        for form, line in _forms(named[:LONGEST_NAMED]):
            for step in (self._exact.get, self._old.get):
                if (file := step(form)) is not None:
                    return Place(file, line)
        for look in (self._by_case, self._by_suffix):
            for form, line in _forms(named[:LONGEST_NAMED]):
                if (file := look(form)) is not None:
                    return Place(file, line)
        return None

    def _by_case(self, form: str) -> FileChange | None:
        return self._folded.get(_folded(form))

    def _by_suffix(self, form: str) -> FileChange | None:
        """Return the only file whose path ends with the form, or that the form ends with."""
        form = _folded(form)
        found = {
            file.path: file
            for path, file in self._by_base.get(_base(form), ())
            if path.endswith("/" + form) or form.endswith("/" + path)
        }
        if len(found) > 1:
            # /home/me/x/cart.py ends with x/cart.py and cart.py: the longest match wins.
            whole = {
                path: file for path, file in found.items() if form.endswith("/" + _folded(path))
            }
            longest = max(map(len, whole), default=0)
            found = {path: file for path, file in whole.items() if len(path) == longest}
        return next(iter(found.values())) if len(found) == 1 else None


def _unique(pairs: Iterator[tuple[str, FileChange]]) -> dict[str, FileChange]:
    """Return the names that belong to one file only."""
    found: dict[str, FileChange] = {}
    twice: set[str] = set()
    for name, file in pairs:
        if found.setdefault(name, file).path != file.path:
            twice.add(name)
    return {name: file for name, file in found.items() if name not in twice}


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _forms(named: str) -> Iterator[tuple[str, int | None]]:
    """Yield simpler forms of a path, closest first, each with its line number."""
    seen: set[str] = set()
    for bare in _unwrapped(named):
        for text, line in _without_line(bare):
            for step in _DECODERS:
                for form in _plain(step(text)):
                    if form and form not in seen:
                        seen.add(form)
                        yield form, line


def _unwrapped(text: str) -> Iterator[str]:
    """Strip quotes, Markdown marks and a URL scheme."""
    for wrappers in (_QUOTES, _BRACKETS):
        yield _SCHEME.sub("", text.strip(wrappers), count=1)
    if found := _LINK.search(text):
        yield found[2]
        yield found[1].strip(_QUOTES)


def _without_line(text: str) -> Iterator[tuple[str, int | None]]:
    yield text, None
    if found := _LINE.search(text):
        number = int(next(filter(None, found.groups())))
        yield text[: found.start()].strip(_QUOTES), number


def _plain(text: str) -> Iterator[str]:
    """Normalize slashes, dot segments, drives and prefixes."""
    text = _DRIVE.sub("", text.replace("\\", "/"), count=1)
    path = "/".join(_resolved(text.split("/")))
    yield path
    for _ in range(2):
        if not (found := _PREFIX.match(path)):
            return
        path = path[found.end() :]
        yield path


def _resolved(steps: Sequence[str]) -> list[str]:
    found: list[str] = []
    for step in steps:
        if step == ".." and found:
            found.pop()
        elif step not in ("", ".", ".."):
            found.append(step)
    return found


# -- escapes


def _as_is(text: str) -> str:
    return text


def _percent(text: str) -> str:
    return unquote(text) if "%" in text else text


def _escaped(text: str) -> str:
    """Decode git's octal quoting and the escapes of JSON and Python."""
    text = _OCTALS.sub(_octal, text)
    return _UNICODE.sub(_character, text)


def _octal(found: re.Match[str]) -> str:
    octets = bytes(int(code, 8) & 0xFF for code in found[0].split("\\")[1:])
    return octets.decode("utf-8", "replace")


def _character(found: re.Match[str]) -> str:
    code = int(next(filter(None, found.groups())), 16)
    return chr(code) if code < 0x110000 else found[0]


def _glued(text: str) -> str:
    """Remove backslashes before spaces and brackets, as shells write them."""
    return re.sub(r"\\([ ()\[\]&'\"])", r"\1", text)


_DECODERS: tuple[Callable[[str], str], ...] = (_as_is, _percent, _escaped, _glued)
