"""Render the message about a review as text and as HTML. Pure and deterministic.

Findings quote untrusted code and a model that read it. So everything is rendered as inert text, in
mail readers and in headers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from holdfast.outbox.delivery import Content
from holdfast.redact import visible
from holdfast_review.coverage import Coverage, Outcome
from holdfast_review.enums import SourceKind
from holdfast_review.merge import by_severity, tally
from holdfast_review.model import Finding, Origin, Review

# A readable message that fits a delivery; the review has all findings.
MOST_SHOWN = 50
LONGEST_SHOWN = 1_000
# Slack's limit is 40,000 characters, including the subject and escapes.
LONGEST_TEXT = 30_000
LONGEST_SUBJECT = 200
# The minimum that the subject keeps of the changelist's name.
_SHORTEST_NAME = 40
_NOT_IN_CHANGE = "named by the model, not a file of this change"


def render(review: Review, summary: str, findings: Sequence[Finding]) -> Content:
    """Render the message about a review, the same for every recipient."""
    message = _Message(review, summary, findings, review.coverage or Coverage())
    shown = findings[: message.count_fitting()]
    left = len(findings) - len(shown)
    return Content(
        subject=message.subject(),
        text=message.text(shown, left),
        html=message.html(shown, left),
        data={
            "changelist_id": review.changelist_id,
            "review_version": review.review_version,
            "review_id": review.review_id,
            "outcome": message.outcome,
            "finding_count": len(findings),
            "by_severity": dict(sorted(Counter(one.severity.value for one in findings).items())),
            "coverage": message.coverage.document,
        },
    )


@dataclass(frozen=True, slots=True)
class _Message:
    review: Review
    summary: str
    findings: Sequence[Finding]
    coverage: Coverage

    @property
    def outcome(self) -> Outcome:
        return self.coverage.outcome(len(self.findings))

    # -- the subject

    def subject(self) -> str:
        """Return changelist, version, severities and gaps. The name is cut before the counts."""
        says = ", ".join([self._verdict(), *self.coverage.short()])
        head = f"Review of {visible(self.review.changelist_id)}"
        tail = f" (version {self.review.review_version}): {says}"
        tail = _cut(tail, LONGEST_SUBJECT - min(len(head), _SHORTEST_NAME))
        return head[: LONGEST_SUBJECT - len(tail)] + tail

    def _verdict(self) -> str:
        many = len(self.findings)
        match self.outcome:
            case Outcome.FINDINGS:
                return f"{many} finding{'s' * (many > 1)} ({by_severity(self.findings)})"
            case Outcome.CLEAN:
                return "clean"
            case Outcome.INCOMPLETE:
                return "no findings, incomplete"
            case Outcome.NOTHING_TO_REVIEW:
                return "nothing to review"

    # -- the body

    def text(self, shown: Sequence[Finding], left: int) -> str:
        lines = [self._title(), *(f"{name}: {value}" for name, value in self._about())]
        for paragraph in self._paragraphs(left):
            lines += ["", *paragraph]
        for number, one in enumerate(shown, 1):
            lines += _entry(number, one)
        return "\n".join(lines) + "\n"

    def html(self, shown: Sequence[Finding], left: int) -> str:
        parts = [f"<h1>{escape(self._title())}</h1>"]
        about = [f"{escape(name)}: {escape(value)}" for name, value in self._about()]
        if about:
            parts.append(f"<p>{'<br>'.join(about)}</p>")
        parts += (f"<p>{'<br>'.join(map(escape, lines))}</p>" for lines in self._paragraphs(left))
        if shown:
            parts.append(f"<ol>{''.join(map(_item, shown))}</ol>")
        body = "".join(parts)
        return f'<!doctype html><html lang="en"><meta charset="utf-8"><body>{body}</body></html>'

    def _title(self) -> str:
        name = visible(self.review.changelist_id)
        return f"Review of {name}, version {self.review.review_version}"

    def _about(self) -> Iterator[tuple[str, str]]:
        """Yield repository, commits, author and title, as far as they are known."""
        source, origin = self.review.source, self.review.origin or Origin()
        if source.kind is SourceKind.GIT:
            yield "Repository", _cut(visible(source.repository), LONGEST_SHOWN)
        elif origin.head or origin.title:
            yield "Repository", "none, a posted patch"
        if commits := self._commits(origin):
            yield "Commits", commits
        if origin.author:
            yield "Author", visible(origin.author)
        if origin.title:
            yield "Title", visible(origin.title)

    def _commits(self, origin: Origin) -> str:
        base = origin.base or self.review.source.base
        head = origin.head or self.review.source.head
        commits = visible(f"{base}..{head}" if base else head)
        return f"{commits} ({origin.commits} commits)" if origin.commits > 1 else commits

    def _paragraphs(self, left: int) -> Iterator[list[str]]:
        yield [self._tally(left)]
        if gaps := self.coverage.sentences():
            yield gaps
        # The critic's own summary, unless it only repeats the counts.
        if self.summary and self.summary != tally(self.findings):
            yield _lines(self.summary)

    def _tally(self, left: int) -> str:
        match self.outcome:
            case Outcome.FINDINGS:
                more = f" {left} more are with the review." if left else ""
                return tally(self.findings) + more
            case Outcome.CLEAN:
                return "Nothing was found."
            case Outcome.INCOMPLETE:
                return "Nothing was found, but not everything was reviewed."
            case Outcome.NOTHING_TO_REVIEW:
                return "Nothing to review: the change has no text that a model could read."

    def count_fitting(self) -> int:
        """Return how many of the first findings fit into one message."""
        room = LONGEST_TEXT - _weigh(self.text((), len(self.findings)))
        for number, one in enumerate(self.findings[:MOST_SHOWN], 1):
            room -= _weigh("\n".join(_entry(number, one)))
            if room < 0:
                return number - 1
        return min(len(self.findings), MOST_SHOWN)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _weigh(text: str) -> int:
    """Return the length of a text with tags and mentions escaped, as some channels do."""
    return len(escape(text, quote=False))


def _lines(text: str) -> list[str]:
    """Return the lines of a text as inert text, as far as they fit into a message."""
    seen = "\n".join(visible(line) for line in text.splitlines())
    cut = seen if len(seen) <= LONGEST_SHOWN else seen[:LONGEST_SHOWN] + " …"
    return cut.split("\n")


# -- one finding


def _place(one: Finding) -> str:
    file = visible(one.file)
    file = file if len(file) <= LONGEST_SHOWN else file[:LONGEST_SHOWN] + "…"
    return file if one.line is None else f"{file}:{one.line}"


def _note(one: Finding) -> str:
    note = f"(confidence {one.confidence})"
    return note if one.is_placed else f"{note} ({_NOT_IN_CHANGE})"


def _entry(number: int, one: Finding) -> list[str]:
    lines = ["", f"{number}. [{one.severity}] {_place(one)} {_note(one)}"]
    if one.quote:
        lines.append(f"   > {visible(one.quote)}")
    return lines + [f"   {line}" for line in _lines(one.message)]


def _item(one: Finding) -> str:
    quote = f"<br><code>{escape(visible(one.quote))}</code>" if one.quote else ""
    message = "<br>".join(map(escape, _lines(one.message)))
    return (
        f"<li><strong>{escape(one.severity)}</strong> <code>{escape(_place(one))}</code>"
        f" {escape(_note(one))}{quote}<br>{message}</li>"
    )
