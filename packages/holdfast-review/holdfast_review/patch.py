"""Patches: unified diffs, written by git or posted by users. Pure.

Only the file sections are parsed. Surrounding text, such as a mail header, is dropped. No path of a
patch is ever opened or written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.redact import visible
from holdfast_review.refusal import ChangeTooLarge, PatchInvalid

LONGEST_PATH = 1_000
# Replaces bytes that cannot be decoded.
UNREADABLE = "\ufffd"
NOWHERE = "/dev/null"


@dataclass(frozen=True, slots=True)
class Limits:
    """Size limits of a change. 4 MiB are some 70 model calls."""

    max_bytes: int = 4 * 1024 * 1024
    max_files: int = 2_000


class Status(StrEnum):
    """The kind of change to a file."""

    ADDED = "added"
    DELETED = "deleted"
    MODIFIED = "modified"
    RENAMED = "renamed"
    COPIED = "copied"


@dataclass(frozen=True, slots=True)
class Hunk:
    """Consecutive lines, each with its sign: blank, plus or minus."""

    old_start: int
    new_start: int
    lines: tuple[str, ...] = field(repr=False)
    heading: str = field(default="", repr=False)

    def numbered(self) -> Iterator[tuple[int, int, str]]:
        """Yield every line with its number before and after the change."""
        old, new = self.old_start, self.new_start
        for line in self.lines:
            yield old, new, line
            old += line[0] != "+"
            new += line[0] != "-"


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change to one file."""

    path: str
    status: Status = Status.MODIFIED
    old_path: str = ""
    is_binary: bool = False
    # The content is a commit id of another repository.
    is_submodule: bool = False
    hunks: tuple[Hunk, ...] = ()

    @property
    def is_lossy(self) -> bool:
        """Return whether some bytes are not UTF-8 and were replaced."""
        return any(UNREADABLE in line for hunk in self.hunks for line in hunk.lines)

    @property
    def places(self) -> frozenset[int]:
        """Return the line numbers that a finding may name: those after the change."""
        return frozenset(number for number, _ in self.lines_in_place())

    def lines_in_place(self) -> Iterator[tuple[int, str]]:
        """Yield those lines by number, without their signs."""
        is_deleted = self.status is Status.DELETED
        sign = "+" if is_deleted else "-"
        for hunk in self.hunks:
            for old, new, line in hunk.numbered():
                if line[0] != sign:
                    yield old if is_deleted else new, line[1:]


@dataclass(frozen=True, slots=True)
class Change:
    """A whole change, file by file, in the order of its patch."""

    files: tuple[FileChange, ...] = ()


# -- reading

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: (.*))?")
_BINARY = (b"GIT binary patch", b"Binary files ")


def parse_patch(data: bytes, limits: Limits | None = None, *, may_be_empty: bool = False) -> Change:
    """Parse a patch. Raises PatchInvalid or ChangeTooLarge."""
    limits = limits or Limits()
    if len(data) > limits.max_bytes:
        raise ChangeTooLarge(limit_bytes=limits.max_bytes)
    # UTF-16 text would hide secrets behind zero bytes.
    reader = _Reader(data.replace(b"\0", b"").removesuffix(b"\n").split(b"\n"))
    files: list[FileChange] = []
    for file in reader.files():
        files.append(file)
        if len(files) > limits.max_files:
            raise ChangeTooLarge(limit_files=limits.max_files)
    if not files and not may_be_empty:
        raise PatchInvalid(problem="no_files")
    return Change(tuple(files))


class _Reader:
    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self.at = 0

    @property
    def line(self) -> bytes:
        return self.lines[self.at] if self.at < len(self.lines) else b""

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.lines)

    def files(self) -> Iterator[FileChange]:
        while not self.is_over:
            if self.line.startswith(b"diff --git "):
                yield self._git_file()
            elif self._is_plain():
                yield self._hunks(self._names(FileChange("")))
            elif self.line.startswith((b"diff --cc ", b"diff --combined ")):
                raise self._wrong("combined")
            elif _HUNK.match(self.line):
                raise self._wrong("hunk_of_no_file")
            else:
                self.at += 1

    def _is_plain(self) -> bool:
        """Return whether two name lines and a hunk follow: prose may also begin with dashes."""
        ahead = [line.rstrip(b"\r") for line in self.lines[self.at : self.at + 3]]
        begins = (b"--- ", b"+++ ", b"@@ -")
        return len(ahead) == 3 and all(map(bytes.startswith, ahead, begins))

    def _git_file(self) -> FileChange:
        begins_at = self.at
        file = replace(FileChange(""), path=_shared_name(self.line[len(b"diff --git ") :]))
        self.at += 1
        while not self.is_over and not self.line.startswith(b"diff --git "):
            line = self.line.rstrip(b"\r")
            if line.startswith(b"--- "):
                return self._hunks(self._names(file))
            if line.startswith(_BINARY):
                file = replace(file, is_binary=True)
                self.at += 1
                break
            if (read := _extended(file, line)) is None:
                break
            file = read
            self.at += 1
        if not file.path:
            self.at = begins_at
            raise self._wrong("path")
        return self._checked(file)

    def _names(self, file: FileChange) -> FileChange:
        """Parse the names in the two lines before the first hunk."""
        old = _name(self.line[4:], b"a/")
        self.at += 1
        if not self.line.startswith(b"+++ "):
            raise self._wrong("no_second_name")
        new = _name(self.line[4:], b"b/")
        self.at += 1
        if old == NOWHERE and new != NOWHERE:
            file = replace(file, path=new, status=Status.ADDED)
        elif new == NOWHERE and old != NOWHERE:
            file = replace(file, path=old, status=Status.DELETED)
        elif file.status not in (Status.RENAMED, Status.COPIED):
            file = replace(file, path=new)
        return self._checked(file)

    def _checked(self, file: FileChange) -> FileChange:
        for path in filter(None, (file.path, file.old_path)):
            if path.startswith("/") or ".." in path.split("/") or len(path) > LONGEST_PATH:
                raise self._wrong("path")
        if not file.path:
            raise self._wrong("path")
        return file

    def _hunks(self, file: FileChange) -> FileChange:
        hunks: list[Hunk] = []
        while not self.is_over and (found := _HUNK.match(self.line.rstrip(b"\r"))):
            self.at += 1
            old, new = (1 if found[at] is None else int(found[at]) for at in (2, 4))
            lines = tuple(self._lines(old, new))
            heading = (found[5] or b"").decode("utf-8", "replace").strip()
            hunks.append(Hunk(int(found[1]), int(found[3]), lines, heading))
        if not hunks:
            raise self._wrong("no_hunk")
        if self._is_surplus():
            raise self._wrong("hunk_long")
        # The hunks of a submodule show only commit ids.
        return file if file.is_submodule else replace(file, hunks=tuple(hunks))

    def _is_surplus(self) -> bool:
        """Return whether changed lines follow that no hunk counts."""
        line = self.line.rstrip(b"\r")
        if line.startswith(b"+"):
            return True
        # The next file, or a mail signature.
        return line.startswith(b"-") and not self._is_plain() and line not in (b"--", b"-- ")

    def _lines(self, old: int, new: int) -> Iterator[str]:
        """Read as many lines as the hunk header announces."""
        while old or new:
            # Mail programs strip the blank of an empty line.
            line = self.line or b" "
            if self.is_over:
                raise self._wrong("hunk_short")
            sign = line[:1]
            if sign == b"\r":
                line, sign = b" \r", b" "
            if sign not in (b" ", b"+", b"-", b"\\"):
                raise self._wrong("hunk_short")
            self.at += 1
            if sign == b"\\":
                continue
            old -= sign != b"+"
            new -= sign != b"-"
            if old < 0 or new < 0:
                raise self._wrong("hunk_long")
            yield line.decode("utf-8", "replace")
        if self.line.startswith(b"\\"):
            self.at += 1

    def _wrong(self, problem: str) -> PatchInvalid:
        return PatchInvalid(problem=problem, line=self.at + 1)


_STATUS = {
    b"new file mode ": Status.ADDED,
    b"deleted file mode ": Status.DELETED,
    b"rename to ": Status.RENAMED,
    b"copy to ": Status.COPIED,
}
_SAID = (
    b"index ", b"old mode ", b"new mode ", b"similarity index ", b"dissimilarity index ",
)  # fmt: skip


def _extended(file: FileChange, line: bytes) -> FileChange | None:
    """Apply a line of git's extended header to the file; None if it is no such line."""
    for begin, status in _STATUS.items():
        if line.startswith(begin):
            named = status in (Status.RENAMED, Status.COPIED)
            path = _decoded(line[len(begin) :]) if named else file.path
            is_submodule = file.is_submodule or (not named and line.endswith(b" 160000"))
            return replace(file, status=status, path=path, is_submodule=is_submodule)
    for begin in (b"rename from ", b"copy from "):
        if line.startswith(begin):
            return replace(file, old_path=_decoded(line[len(begin) :]))
    if not line.startswith(_SAID):
        return None
    return replace(file, is_submodule=True) if line.endswith(b" 160000") else file


def _shared_name(names: bytes) -> str:
    """Return the name in ``a/NAME b/NAME``; empty if the two differ."""
    names = names.rstrip(b"\r")
    half = len(names) // 2
    first, second = names[:half], names[half + 1 :]
    if first.startswith(b'"'):
        first, second = _unquoted(first), _unquoted(second)
    if first[:2] == b"a/" and second[:2] == b"b/" and first[2:] == second[2:]:
        return visible(first[2:].decode("utf-8", "backslashreplace"))
    return ""


def _name(text: bytes, prefix: bytes) -> str:
    """Parse a name before a hunk; a tab and a time may follow it."""
    text = text.rstrip(b"\r")
    if not text.startswith(b'"'):
        text = text.partition(b"\t")[0]
    name = _decoded(text)
    return name if name == NOWHERE else name.removeprefix(prefix.decode())


def _decoded(text: bytes) -> str:
    if text.startswith(b'"'):
        text = _unquoted(text)
    return visible(text.decode("utf-8", "backslashreplace"))


_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.S)
_LETTERS = {
    b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r",
}  # fmt: skip


def _unquoted(text: bytes) -> bytes:
    """Decode a name that git has quoted in C style."""
    inner = text.strip().removeprefix(b'"').removesuffix(b'"')
    return _ESCAPE.sub(_byte, inner)


def _byte(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return _LETTERS.get(code, code)


# -- writing


def write_patch(change: Change) -> bytes:
    """Serialize the change as a patch; parsing it returns the same change."""
    return "".join(_written(file) for file in change.files).encode("utf-8", "replace")


def _written(file: FileChange) -> str:
    old, new = _quoted("a/" + (file.old_path or file.path)), _quoted("b/" + file.path)
    kept = [f"diff --git {old} {new}"]
    match file.status:
        case Status.ADDED:
            kept.append("new file mode 100644")
            old = NOWHERE
        case Status.DELETED:
            kept.append("deleted file mode 100644")
            new = NOWHERE
        case Status.RENAMED | Status.COPIED:
            verb = "rename" if file.status is Status.RENAMED else "copy"
            kept.append(f"{verb} from {_quoted(file.old_path)}")
            kept.append(f"{verb} to {_quoted(file.path)}")
        case Status.MODIFIED:
            pass
    if file.is_submodule:
        kept.append("index 0000000..0000000 160000")
    if file.is_binary:
        kept.append("Binary files differ")
    if file.hunks:
        kept += (f"--- {old}", f"+++ {new}")
    for hunk in file.hunks:
        before = sum(line[0] != "+" for line in hunk.lines)
        after = sum(line[0] != "-" for line in hunk.lines)
        place = f"@@ -{hunk.old_start},{before} +{hunk.new_start},{after} @@"
        kept.append(f"{place} {hunk.heading}".rstrip())
        kept += hunk.lines
    return "\n".join(kept) + "\n"


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
