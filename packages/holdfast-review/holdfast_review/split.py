"""Divides a change into parts that a model can look at in one go. Pure.

The same change gives the same parts, so an attempt can go on where an earlier one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from holdfast_review.patch import Change, FileChange, Hunk

# Some 16,000 tokens: models lose track of longer ones, and shorter ones lose the context.
PART_CHARS = 48_000
PART_FILES = 50
# Longer lines are made by programs; their beginning is enough.
LONGEST_LINE = 1_000
# The number, the sign and the form around a line.
_LINE_FORM = 16


@dataclass(frozen=True, slots=True)
class Part:
    """Some hunks of some files, to be criticised together."""

    number: int
    files: tuple[FileChange, ...]


def split_change(change: Change, part_chars: int = PART_CHARS) -> tuple[Part, ...]:
    """The parts of a change, in its order. Files without text, such as binary ones, are in none."""
    parts: list[list[tuple[FileChange, Hunk]]] = []
    room = 0
    for file in change.files:
        for hunk in file.hunks:
            for piece in _pieces(hunk, part_chars):
                size = _size(piece) + len(file.path)
                if not parts or size > room or _is_full(parts[-1], file):
                    parts.append([])
                    room = part_chars
                parts[-1].append((file, piece))
                room -= size
    return tuple(Part(number, _files(part)) for number, part in enumerate(parts))


def halve(part: Part) -> tuple[Part, ...]:
    """The same in smaller parts; only itself if it is a single line."""
    size = sum(_size(hunk) for file in part.files for hunk in file.hunks)
    smaller = split_change(Change(part.files), max(1, size // 2))
    return smaller if len(smaller) > 1 else (part,)


def count_unread(change: Change) -> int:
    """How many files have no text that could be criticised: binary, renamed, or of another mode."""
    return sum(not file.hunks for file in change.files)


def _is_full(part: list[tuple[FileChange, Hunk]], file: FileChange) -> bool:
    paths = {one.path for one, _ in part}
    return file.path not in paths and len(paths) >= PART_FILES


def _files(pieces: list[tuple[FileChange, Hunk]]) -> tuple[FileChange, ...]:
    found: dict[str, FileChange] = {}
    for file, hunk in pieces:
        before = found[file.path].hunks if file.path in found else ()
        found[file.path] = replace(file, hunks=(*before, hunk))
    return tuple(found.values())


def _size(hunk: Hunk) -> int:
    return len(hunk.heading) + sum(map(_line_size, hunk.lines))


def _line_size(line: str) -> int:
    return min(len(line), LONGEST_LINE) + _LINE_FORM


def _pieces(hunk: Hunk, part_chars: int) -> Iterator[Hunk]:
    """A hunk in pieces that fit, each with the numbers that its lines have."""
    lines: list[str] = []
    room = part_chars
    start = (hunk.old_start, hunk.new_start)
    for old, new, line in hunk.numbered():
        if lines and _line_size(line) > room:
            yield replace(hunk, old_start=start[0], new_start=start[1], lines=tuple(lines))
            lines, room, start = [], part_chars, (old, new)
        lines.append(line)
        room -= _line_size(line)
    if lines:
        yield replace(hunk, old_start=start[0], new_start=start[1], lines=tuple(lines))
