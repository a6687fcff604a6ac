"""Render: what a recipient reads of a review, as text and as HTML. Pure, and always the same.

Findings quote a change that anybody may have written, and a model that read it: everything is shown
as text and nothing acts, neither in a mail reader nor in a header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from holdfast.apps.review.model import Finding, Review
from holdfast.apps.review.words import Severity
from holdfast.outbox.delivery import Content
from holdfast.redact import visible

# A message is read by a person, and fits into a delivery; all findings are with the review.
MOST_SHOWN = 50
LONGEST_SHOWN = 1_000
# Slack takes 40,000 characters, with the subject and with its escapes.
LONGEST_TEXT = 30_000
LONGEST_SUBJECT = 150


def render(review: Review, summary: str, findings: Sequence[Finding]) -> Content:
    """The message about a review, the same for every recipient."""
    shown = findings[: _count_fitting(review, summary, findings)]
    left = len(findings) - len(shown)
    return Content(
        subject=_subject(review, findings),
        text=_text(review, summary, shown, left),
        html=_html(review, summary, shown, left),
        data={
            "changelist_id": review.changelist_id,
            "review_version": review.review_version,
            "review_id": review.review_id,
            "finding_count": len(findings),
            "by_severity": dict(sorted(_counts(findings).items())),
        },
    )


def _counts(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(one.severity.value for one in findings)


def _subject(review: Review, findings: Sequence[Finding]) -> str:
    counted = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}" if findings else "clean"
    head = f"Review of {visible(review.changelist_id)}"
    tail = f" (version {review.review_version}): {counted}"
    return head[: LONGEST_SUBJECT - len(tail)] + tail


def _title(review: Review) -> str:
    return f"Review of {visible(review.changelist_id)}, version {review.review_version}"


def _tally(findings: Sequence[Finding], left: int) -> str:
    if not findings:
        return "Nothing was found."
    counts = _counts(findings)
    parts = [f"{counts[word]} {word}" for word in reversed(Severity) if counts[word]]
    more = f"; {left} more are with the review" if left else ""
    return ", ".join(parts) + more + "."


def _place(one: Finding) -> str:
    file = visible(one.file)
    file = file if len(file) <= LONGEST_SHOWN else file[:LONGEST_SHOWN] + "…"
    return file if one.line is None else f"{file}:{one.line}"


def _lines(text: str) -> list[str]:
    """The lines of a text, with nothing in them that acts, as far as a message holds them."""
    seen = "\n".join(visible(line) for line in text.splitlines())
    cut = seen if len(seen) <= LONGEST_SHOWN else seen[:LONGEST_SHOWN] + " …"
    return cut.split("\n")


def _count_fitting(review: Review, summary: str, findings: Sequence[Finding]) -> int:
    """How many of the first findings one message holds."""
    room = LONGEST_TEXT - _weigh(_text(review, summary, (), 0))
    for number, one in enumerate(findings[:MOST_SHOWN], 1):
        room -= _weigh("\n".join(_entry(number, one)))
        if room < 0:
            return number - 1
    return min(len(findings), MOST_SHOWN)


def _weigh(text: str) -> int:
    """The length of a text where tags and mentions are escaped, as some channels do."""
    return len(escape(text, quote=False))


def _entry(number: int, one: Finding) -> list[str]:
    head = f"{number}. [{one.severity}] {_place(one)} (confidence {one.confidence})"
    return ["", head, *(f"   {line}" for line in _lines(one.message))]


def _text(review: Review, summary: str, findings: Sequence[Finding], left: int) -> str:
    lines = [_title(review), "", _tally(findings, left)]
    if summary:
        lines += ["", *_lines(summary)]
    for number, one in enumerate(findings, 1):
        lines += _entry(number, one)
    return "\n".join(lines) + "\n"


def _html(review: Review, summary: str, findings: Sequence[Finding], left: int) -> str:
    parts = [f"<h1>{escape(_title(review))}</h1>", f"<p>{escape(_tally(findings, left))}</p>"]
    if summary:
        parts.append(f"<p>{_broken(summary)}</p>")
    if findings:
        items = "".join(
            f"<li><strong>{escape(one.severity)}</strong> <code>{escape(_place(one))}</code>"
            f" (confidence {escape(one.confidence)})<br>{_broken(one.message)}</li>"
            for one in findings
        )
        parts.append(f"<ol>{items}</ol>")
    body = "".join(parts)
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><body>{body}</body></html>'


def _broken(text: str) -> str:
    return "<br>".join(escape(line) for line in _lines(text))
