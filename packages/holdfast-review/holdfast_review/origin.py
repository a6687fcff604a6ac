"""The origin of a change: author, title and commits.

Author and title are tenant data. They are redacted, stored with the review and erased with it.
Stage outputs contain only ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.errors import MessageError
from email.parser import BytesHeaderParser
from email.policy import default
from typing import Any, Protocol, runtime_checkable

from holdfast.engine.context import Context
from holdfast.redact import harmless
from holdfast_review.model import Origin, Review
from holdfast_review.refusal import RedactionFailed
from holdfast_review.secrets import redact_text

LONGEST_TITLE = 200
LONGEST_AUTHOR = 120
MOST_AUTHORS = 3
# Mail headers are much shorter.
_LONGEST_HEAD = 64 * 1024


def origin_of_commits(
    commits: Sequence[tuple[str, str]], *, base: str, head: str, count: int
) -> Origin:
    """Build the origin from (author, title) pairs of commits, newest first."""
    authors = list(
        dict.fromkeys(filter(None, (clean_text(one, LONGEST_AUTHOR) for one, _ in commits)))
    )
    title = clean_text(commits[0][1], LONGEST_TITLE) if commits else ""
    return Origin(_listed(authors), title, base, head, count)


def _listed(authors: Sequence[str]) -> str:
    shown = ", ".join(authors[:MOST_AUTHORS])
    more = len(authors) - MOST_AUTHORS
    return f"{shown} and {more} more" if more > 0 else shown


_PATCH_BEGINS = re.compile(rb"^(?:diff --git |--- |Index: |@@ -)", re.M)
_COMMIT = re.compile(rb"^From ([0-9a-f]{40,64}) [A-Z][a-z]{2} ", re.M)
_TAG = re.compile(r"^(?:\s*(?:re|fwd?):\s*|\s*\[[^\]]{0,80}\]\s*)+", re.I)
_ADDRESS = re.compile(r"\s*<[^<>]*>\s*$")


def origin_of_patch(patch: bytes) -> Origin:
    """Parse the origin from the mail around a patch, as ``git format-patch`` writes it."""
    begins = _PATCH_BEGINS.search(patch)
    head = patch[: begins.start() if begins else 0][:_LONGEST_HEAD].lstrip()
    if not head:
        return Origin()
    try:
        mail = BytesHeaderParser(policy=default).parsebytes(head)
        author, title = str(mail["from"] or ""), str(mail["subject"] or "")
    except (MessageError, ValueError, LookupError, TypeError, AttributeError, IndexError):
        # Python's parser fails on some broken headers; the origin is unknown then.
        return Origin()
    commits = _COMMIT.findall(patch)
    name = _ADDRESS.sub("", author).strip(' "') or author
    return Origin(
        clean_text(name, LONGEST_AUTHOR),
        clean_text(_TAG.sub("", title), LONGEST_TITLE),
        head=commits[-1].decode() if commits else "",
        commits=len(commits),
    )


def clean_text(text: str, longest: int) -> str:
    """Return one printable line without secrets; empty if that cannot be guaranteed."""
    line = " ".join(text[: 10 * longest].split())
    try:
        return harmless(redact_text(line), longest)
    except RedactionFailed:
        return ""


@runtime_checkable
class FetchesOrigin(Protocol):
    """A fetch that also returns the origin of a change; custom fetches need not."""

    def fetch(self, job: Context, review: Review) -> tuple[Mapping[str, Any], Origin]: ...
