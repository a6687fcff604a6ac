"""Coverage: how much of a change was reviewed, cut, masked or left out. Pure.

Coverage holds counts only, no text. A review is clean only if it has no finding and no gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from holdfast_review.patch import Change, FileChange, Status
from holdfast_review.split import LONGEST_LINE


class Outcome(StrEnum):
    """The result of a finished review."""

    FINDINGS = "findings"
    CLEAN = "clean"
    # No finding, but the model did not see everything, or a finding was lost.
    INCOMPLETE = "incomplete"
    NOTHING_TO_REVIEW = "nothing_to_review"


class Unread(StrEnum):
    """Why a file has no text for a model to read."""

    BINARY = "binary"
    MOVED = "moved"
    MODE_ONLY = "mode_only"
    SUBMODULE = "submodule"
    EMPTY = "empty"


def why_unread(file: FileChange) -> Unread | None:
    """Return why a file is not shown to the model; None if it is shown."""
    if file.is_submodule:
        return Unread.SUBMODULE
    if file.is_binary:
        return Unread.BINARY
    if file.hunks:
        return None
    match file.status:
        case Status.RENAMED | Status.COPIED:
            return Unread.MOVED
        case Status.ADDED | Status.DELETED:
            return Unread.EMPTY
        case Status.MODIFIED:
            return Unread.MODE_ONLY


@dataclass(frozen=True, slots=True)
class Coverage:
    """The counts of one review. Each field is a key of ``coverage`` in the JSON output."""

    # None if the critic does not count files.
    files: int | None = None
    binary: int = 0
    moved: int = 0
    mode_only: int = 0
    submodule: int = 0
    empty: int = 0
    # Reviewed, with a replacement character for every byte that is not UTF-8.
    undecodable: int = 0
    cut_lines: int = 0
    masked: int = 0
    # Findings of the model that had no message, that were cut or withheld, that named no file of
    # the change, and that exceeded the limit.
    dropped: int = 0
    cut_findings: int = 0
    unplaced: int = 0
    left_out: int = 0

    @classmethod
    def from_detail(cls, detail: Mapping[str, Any]) -> Coverage:
        """Return the counts of a critic's detail or a stored row. Unknown keys are ignored."""
        counts: dict[str, int] = {}
        for one in fields(cls):
            value = detail.get(one.name)
            if type(value) is int and value >= 0:
                counts[one.name] = value
        return cls(**counts)

    @classmethod
    def of_change(cls, change: Change) -> Coverage:
        """Return the counts that are known before a model is called."""
        counts = dict.fromkeys((word.value for word in Unread), 0)
        for file in change.files:
            if (why := why_unread(file)) is not None:
                counts[why.value] += 1
        shown = [file for file in change.files if why_unread(file) is None]
        lines = [line for file in shown for hunk in file.hunks for line in hunk.lines]
        return cls(
            files=len(change.files),
            undecodable=sum(file.is_lossy for file in shown),
            # The leading sign is not part of the line.
            cut_lines=sum(len(line) - 1 > LONGEST_LINE for line in lines),
            masked=sum(line.count("[secret]") + line.count("[key]") for line in lines),
            **counts,
        )

    def plus(self, **counts: int) -> Coverage:
        return replace(self, **{name: getattr(self, name) + more for name, more in counts.items()})

    @property
    def unread(self) -> int:
        """Return how many files the model did not see."""
        return self.binary + self.moved + self.mode_only + self.submodule + self.empty

    @property
    def has_gaps(self) -> bool:
        return any(self._gap_counts().values())

    def outcome(self, finding_count: int) -> Outcome:
        if finding_count:
            return Outcome.FINDINGS
        if self.dropped or self.left_out:
            return Outcome.INCOMPLETE
        if self.files is not None and self.unread >= self.files:
            return Outcome.NOTHING_TO_REVIEW
        return Outcome.INCOMPLETE if self.has_gaps else Outcome.CLEAN

    @property
    def document(self) -> dict[str, int | None]:
        return {**asdict(self), "unread": self.unread}

    # -- in words

    def short(self) -> list[str]:
        """Return the gaps for a subject line, such as ``3 files not reviewed``."""
        found = [_many(self.unread, "file", "not reviewed")] if self.unread else []
        counts = self._gap_counts()
        return found + [
            _many(counts[name], noun, verb) for name, noun, verb in _SHORT if counts[name]
        ]

    def sentences(self) -> list[str]:
        """Return the gaps in full, one line each."""
        counts = self._gap_counts()
        unread = [_many(counts[name], noun, "") for name, noun in _UNREAD if counts[name]]
        found = [f"Not reviewed: {', '.join(unread)}."] if unread else []
        return found + [
            f"{_many(counts[name], noun, verb)}." for name, noun, verb in _LONG if counts[name]
        ]

    def _gap_counts(self) -> dict[str, int]:
        counts: dict[str, int] = asdict(self)
        del counts["files"]
        return counts


def _many(count: int, noun: str, rest: str) -> str:
    head, _, tail = noun.partition(" of ")
    plural = f"{head}s of {tail}" if tail else f"{head}s"
    return f"{count} {noun if count == 1 else plural} {rest}".rstrip()


_UNREAD = (
    ("binary", "binary file"),
    ("moved", "moved file"),
    ("mode_only", "mode change"),
    ("submodule", "submodule"),
    ("empty", "empty file"),
)
_SHORT = (
    ("undecodable", "file", "undecodable"),
    ("cut_lines", "line", "cut"),
    ("masked", "value", "masked"),
    ("dropped", "finding", "dropped"),
    ("cut_findings", "finding", "cut"),
    ("unplaced", "finding", "without a file"),
    ("left_out", "finding", "left out"),
)
_LONG = (
    ("undecodable", "file", "reviewed with unreadable bytes (not UTF-8)"),
    ("cut_lines", "long line", f"cut to {LONGEST_LINE} characters"),
    ("masked", "value", "masked because it may be a secret"),
    ("dropped", "finding", "dropped because the model gave no message"),
    ("cut_findings", "finding", "cut or withheld"),
    ("unplaced", "finding", "kept without a file: the name the model gave is not in the change"),
    ("left_out", "finding", "left out, the least severe"),
)
