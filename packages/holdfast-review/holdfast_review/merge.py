"""Parses the findings of each part and merges them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.redact import visible
from holdfast_review.enums import Confidence, Severity
from holdfast_review.model import LONGEST_FINDING, LONGEST_PATH, LONGEST_QUOTE, Finding
from holdfast_review.patch import Change, FileChange
from holdfast_review.place import Places
from holdfast_review.refusal import RedactionFailed
from holdfast_review.secrets import redact_text

# Readers do not read more, and a model that reports more is unreliable.
MOST_FINDINGS = 200
WITHHELD = "The text of this finding was withheld because it may contain a secret."
_UNNAMED = "(no file named)"
_CUT = "…"


@dataclass(frozen=True, slots=True)
class Read:
    """The findings of one part, and how many were dropped or cut."""

    findings: tuple[Finding, ...]
    dropped: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """The findings of a whole change, the most severe first."""

    findings: tuple[Finding, ...]
    dropped: int
    # Findings above the limit.
    left_out: int
    cut: int = 0

    @property
    def summary(self) -> str:
        """Summarize number and severity."""
        return tally(self.findings)

    @property
    def unplaced(self) -> int:
        """Return how many findings name no file of the change."""
        return sum(not one.is_placed for one in self.findings)


def tally(findings: Sequence[Finding]) -> str:
    """Summarize number and severity of findings in one sentence."""
    if not findings:
        return "No findings."
    paths = len({one.file for one in findings})
    many = len(findings)
    listed = by_severity(findings)
    return f"{many} finding{'s' * (many > 1)} in {paths} file{'s' * (paths > 1)}: {listed}."


def by_severity(findings: Sequence[Finding]) -> str:
    """Return ``1 critical, 2 low``, the most severe first."""
    counts = Counter(one.severity for one in findings)
    worst_first = sorted(counts, key=lambda severity: -severity.rank)
    return ", ".join(f"{counts[severity]} {severity}" for severity in worst_first)


# -- one answer


def read_findings(data: Mapping[str, Any], shown: Sequence[FileChange]) -> Read:
    """Parse the findings of an answer that matches the schema.

    A finding without a message is dropped. One that names no file of the part is kept unchanged,
    because it may be about another part. A finding on a line that was not shown becomes a finding
    about its file.
    """
    places = Places(shown)
    lines = {file.path: file.places for file in shown}
    kept: list[Finding] = []
    dropped = cut = 0
    for one in data["findings"]:
        message, is_whole = _message(one["message"])
        if not message:
            dropped += 1
            continue
        cut += not is_whole
        # JSON Schema accepts 3.0 as an integer.
        asked = int(one["line"])
        severity, confidence = Severity(one["severity"]), Confidence(one["confidence"])
        finding = Finding(one["file"], _stored(asked), severity, message, confidence, False)
        kept.append(_placed(finding, places, lines, asked))
    return Read(tuple(kept), dropped, cut)


def _placed(
    one: Finding, places: Places, lines: Mapping[str, frozenset[int]], asked: int = 0
) -> Finding:
    """Return the finding with the file that it refers to, or sanitized if there is none."""
    found = places.find(one.file)
    if found is None:
        name, _ = _shown(one.file, LONGEST_PATH)
        return replace(one, file=name or _UNNAMED, is_placed=False)
    path = found.file.path
    # Line numbers begin with 1, whatever a patch claims.
    wanted = (asked, one.line, found.line)
    line = next((at for at in wanted if at and at > 0 and at in lines[path]), None)
    return replace(one, file=path, line=line, is_placed=True)


# The range of an integer column in both databases.
_LARGEST_LINE = 2**31 - 1


def _stored(line: int) -> int | None:
    return line if 0 < line <= _LARGEST_LINE else None


def _message(text: str) -> tuple[str, bool]:
    """Return the message as one printable line, and whether it is complete."""
    try:
        return _redacted(" ".join(text.split()), LONGEST_FINDING)
    except RedactionFailed:
        return WITHHELD, False


def _shown(text: str, longest: int) -> tuple[str, bool]:
    try:
        return _redacted(text, longest)
    except RedactionFailed:
        return "", False


def _redacted(text: str, longest: int) -> tuple[str, bool]:
    """Redact the model's words like the change: the model may repeat secrets."""
    # Redact more than is kept, so that no half of a secret remains at the end.
    is_whole = len(text) <= longest
    text = visible(redact_text(text if is_whole else text[: 2 * longest]))
    if is_whole and len(text) <= longest:
        return text, True
    return text[: longest - 1] + _CUT, False


# -- all answers


def merge(parts: Iterable[Read], change: Change | None = None) -> Merged:
    """Merge the findings of all parts; duplicates keep the highest severity.

    With the *change*, findings about a file of another part are located, and each finding quotes
    its line.
    """
    found: list[Finding] = []
    dropped = cut = 0
    for part in parts:
        dropped += part.dropped
        cut += part.cut
        found += part.findings
    if change is not None:
        found = _place_rest(found, change.files)
        found = _quote_lines(found, change.files)
    ordered = sorted(_without_repeats(found), key=lambda one: (one.order, -_sure(one)))
    left_out = max(0, len(ordered) - MOST_FINDINGS)
    return Merged(tuple(ordered[:MOST_FINDINGS]), dropped, left_out, cut)


def _place_rest(findings: Sequence[Finding], files: Sequence[FileChange]) -> list[Finding]:
    if all(one.is_placed for one in findings):
        return list(findings)
    places = Places(files)
    lines = {file.path: file.places for file in files}
    return [one if one.is_placed else _placed(one, places, lines) for one in findings]


def _quote_lines(findings: Sequence[Finding], files: Sequence[FileChange]) -> list[Finding]:
    """Add to each finding the line that it refers to, from the redacted change."""
    wanted = {(one.file, one.line) for one in findings if one.is_placed and one.line}
    quotes: dict[tuple[str, int | None], str] = {}
    for file in files:
        for number, line in file.lines_in_place():
            if (file.path, number) in wanted:
                quotes.setdefault((file.path, number), _shown(line.strip(), LONGEST_QUOTE)[0])
    return [replace(one, quote=quotes.get((one.file, one.line), "")) for one in findings]


# -- duplicates

# The id of a rule or weakness: CWE-89, S608, no-eval in brackets or before a colon.
_RULE = re.compile(
    r"\b((?i:CWE|CVE|GHSA|RUSTSEC)-[0-9A-Za-z-]{1,40})\b"
    r"|^\W{0,3}([A-Z]{1,6}-?[0-9]{2,5})\W{0,2}[:\])]"
    r"|^\[([A-Za-z][\w./-]{2,60})\]"
)
_PUNCTUATION = re.compile(r"[^\w]+")


def _rule_of(message: str) -> str:
    found = _RULE.search(message)
    return next(filter(None, found.groups()), "").casefold() if found else ""


def _normalized(message: str) -> str:
    """Return the words only, without case, punctuation, quotes and character widths."""
    return _PUNCTUATION.sub(" ", unicodedata.normalize("NFKC", message).casefold()).strip()


def _without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """Drop findings at the same place that share their rule or their words."""
    kept: list[Finding] = []
    known: dict[tuple[str, int | None, str], int] = {}
    for one in findings:
        place = (one.file, one.line)
        keys = [(*place, "text " + (_normalized(one.message) or one.message))]
        if rule := _rule_of(one.message):
            keys.append((*place, "rule " + rule))
        at = next((known[key] for key in keys if key in known), None)
        if at is None:
            at = len(kept)
            kept.append(one)
        else:
            kept[at] = _stronger(kept[at], one)
        known.update((key, at) for key in keys)
    return kept


def _stronger(first: Finding, second: Finding) -> Finding:
    severity = max(first.severity, second.severity, key=lambda word: word.rank)
    confidence = max(first.confidence, second.confidence, key=list(Confidence).index)
    return replace(first, severity=severity, confidence=confidence)


def _sure(finding: Finding) -> int:
    return list(Confidence).index(finding.confidence)
