"""Findings: what the critic says of a change, kept with the review before anybody is told."""

from __future__ import annotations

from typing import Any

from holdfast.document import canonical
from holdfast.engine.context import Context
from holdfast.store import Statements, Tx
from holdfast_review.coverage import Coverage
from holdfast_review.model import (
    LONGEST_FINDING,
    LONGEST_PATH,
    LONGEST_QUOTE,
    LONGEST_SUMMARY,
    MOST_FINDINGS,
    Criticism,
    Finding,
    Review,
)

SQL = Statements("holdfast_review", "notify.sql")


def keep_criticism(job: Context, review: Review, said: Criticism) -> dict[str, Any]:
    """Store what was found; the stage's output comes back: counts and versions, no text.

    Whoever lost the job writes nothing, and what somebody may have been told stays as it is.
    """
    found = sorted(said.findings, key=lambda one: one.order)[:MOST_FINDINGS]
    ids = {"org_id": review.org_id, "review_id": review.review_id}
    rows = [_row(number, one) for number, one in enumerate(found, 1)]
    summary = _storable(said.summary, LONGEST_SUMMARY)
    coverage = Coverage.from_detail(said.detail).plus(left_out=len(said.findings) - len(found))
    kept = {
        "summary": summary,
        "finding_count": len(rows),
        "coverage": canonical(coverage.document),
    }

    def work(tx: Tx) -> bool:
        job.check_lease(tx)
        if not tx.affected(SQL.mark_criticised, **kept, **ids):
            return False
        tx.affected(SQL.delete_findings, **ids)
        tx.affected(SQL.delete_parts, **ids)
        if rows:
            tx.affected(SQL.insert_findings, findings=rows, **ids)
        return True

    if not job.store.write(work):
        return {"finding_count": review.finding_count or 0, "is_told": True}
    return {**said.detail, "finding_count": len(found), "left_out": coverage.left_out}


def _row(number: int, one: Finding) -> dict[str, Any]:
    return {
        "number": number,
        "file": _storable(one.file, LONGEST_PATH),
        "line": one.line,
        "severity": one.severity.value,
        "message": _storable(one.message, LONGEST_FINDING),
        "confidence": one.confidence.value,
        "is_placed": int(one.is_placed),
        "quote": _storable(one.quote, LONGEST_QUOTE),
    }


def _storable(text: str, longest: int) -> str:
    """What both databases can hold: neither zero bytes nor halves of characters."""
    sound = text.encode("utf-8", "replace").decode()
    return sound.replace("\x00", "\ufffd")[:longest]
