"""Reads what a model found in a part, and puts the parts' findings together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.apps.review.model import LONGEST_FINDING, Finding
from holdfast.apps.review.patch import FileChange
from holdfast.apps.review.refusal import RedactionFailed
from holdfast.apps.review.secrets import redact_text
from holdfast.apps.review.words import Confidence, Severity
from holdfast.redact import harmless

# Nobody reads more, and a model that says more is lost.
MOST_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Read:
    """The findings of one part that can be kept, and how many cannot."""

    findings: tuple[Finding, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """The findings of a whole change, the most severe first."""

    findings: tuple[Finding, ...]
    dropped: int
    # More than anybody reads.
    left_out: int

    @property
    def summary(self) -> str:
        """How many there are, and how bad."""
        if not self.findings:
            return "No findings."
        counts = Counter(one.severity for one in self.findings)
        worst_first = sorted(counts, key=lambda severity: -severity.rank)
        listed = ", ".join(f"{counts[severity]} {severity}" for severity in worst_first)
        paths = len({one.file for one in self.findings})
        many = len(self.findings)
        return f"{many} finding{'s' * (many > 1)} in {paths} file{'s' * (paths > 1)}: {listed}."


def read_findings(data: Mapping[str, Any], shown: Sequence[FileChange]) -> Read:
    """The findings of an answer that fits the schema.

    One about a file that was not shown is dropped: it is made up. One about a line that was not
    shown is kept as one about its file.
    """
    places = {file.path: file.places for file in shown}
    kept: list[Finding] = []
    dropped = 0
    for one in data["findings"]:
        message = _message(one["message"])
        if one["file"] not in places or not message:
            dropped += 1
            continue
        # Numbers begin with 1, whatever a patch claims; to a schema 3.0 is whole, too.
        is_shown = one["line"] > 0 and one["line"] in places[one["file"]]
        line = int(one["line"]) if is_shown else None
        severity, confidence = Severity(one["severity"]), Confidence(one["confidence"])
        kept.append(Finding(one["file"], line, severity, message, confidence))
    return Read(tuple(kept), dropped)


def _message(text: str) -> str:
    """One line that can be shown anywhere; a model may repeat what it should not."""
    try:
        return harmless(redact_text(" ".join(text.split())), LONGEST_FINDING)
    except RedactionFailed:
        return ""


def merge(parts: Iterable[Read]) -> Merged:
    """One list out of the parts' lists: what is said twice once, as severe as it was said."""
    found: dict[tuple[str, int | None, str], Finding] = {}
    dropped = 0
    for part in parts:
        dropped += part.dropped
        for one in part.findings:
            key = (one.file, one.line, one.message.casefold())
            found[key] = _stronger(found[key], one) if key in found else one
    ordered = sorted(found.values(), key=lambda one: (one.order, -_sure(one)))
    return Merged(tuple(ordered[:MOST_FINDINGS]), dropped, max(0, len(ordered) - MOST_FINDINGS))


def _stronger(first: Finding, second: Finding) -> Finding:
    severity = max(first.severity, second.severity, key=lambda word: word.rank)
    confidence = max(first.confidence, second.confidence, key=list(Confidence).index)
    return replace(first, severity=severity, confidence=confidence)


def _sure(finding: Finding) -> int:
    return list(Confidence).index(finding.confidence)
