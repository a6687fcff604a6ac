"""Divides a change into parts that fit one model call. Pure.

The same change gives the same parts, so an attempt can resume where an earlier one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from holdfast_review.patch import Change, FileChange, Hunk

# Some 16,000 tokens: models miss details in longer parts, and shorter ones lack context.
PART_CHARS = 48_000
PART_FILES = 50
# Longer lines are generated; their beginning is enough.
LONGEST_LINE = 1_000
# Overhead of a line: its number, its sign and the JSON around it.
_LINE_FORM = 16


@dataclass(frozen=True, slots=True)
class Part:
    """Hunks of one or more files, reviewed together."""

    number: int
    files: tuple[FileChange, ...]


def split_change(change: Change, part_chars: int = PART_CHARS) -> tuple[Part, ...]:
    """Return the parts of a change, in order. Files without text are skipped."""
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
    """Split a part into smaller ones; a single line is returned unchanged."""
    size = sum(_size(hunk) for file in part.files for hunk in file.hunks)
    smaller = split_change(Change(part.files), max(1, size // 2))
    return smaller if len(smaller) > 1 else (part,)


def count_unread(change: Change) -> int:
    """Count the files without reviewable text: binary, renamed, or with a changed mode."""
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
    """Split a hunk into pieces that fit, with their line numbers."""
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
