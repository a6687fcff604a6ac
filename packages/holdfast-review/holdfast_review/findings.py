"""Findings: stored with the review before any recipient is notified."""

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
    """Store the findings and return the stage's output: counts and versions, no text.

    Writes nothing if the lease was lost, or if recipients may already have been notified.
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
    """Drop what the databases cannot store: zero bytes and lone surrogates."""
    sound = text.encode("utf-8", "replace").decode()
    return sound.replace("\x00", "\ufffd")[:longest]
