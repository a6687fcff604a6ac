"""Erase reviews of a changelist: findings, recipients and files.

The ids, versions, counts and times of a review remain, because deduplication and the audit need
them. A review in progress is canceled. What a worker is sending at that moment remains; erase
reports it and must be called again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.actor import Actor
from holdfast.app import Holdfast
from holdfast.engine.audit import Deed, record_action, record_actions
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.job import State
from holdfast.errors import ArtifactNotFound, JobNotFound
from holdfast.ids import read_uuid
from holdfast.outbox.erase import erase_about
from holdfast.store import Row, Statements, Tx
from holdfast_review.failure import InvalidReview, ReviewNotFound
from holdfast_review.model import LONGEST_NAME, read_name, subject_of

SQL = Statements("holdfast_review", "erase.sql")

# Files are deleted one by one, and each may be a call to a remote store.
PAGE = 100


@dataclass(frozen=True, slots=True)
class Erased:
    """Counts of an erasure, including reviews and deliveries that a worker still processes."""

    reviews: int = 0
    findings: int = 0
    recipients: int = 0
    deliveries: int = 0
    files: int = 0
    left_over: int = 0


def erase_changelist(
    hf: Holdfast, changelist_id: str, *, org_id: str, actor: Actor, reason: str
) -> Erased:
    """Erase all versions of a changelist. Audited with *reason*; it cannot be undone."""
    asked = _read(org_id, "changelist_id", changelist_id, reason)
    rows = hf.store.read(lambda tx: tx.many(SQL.list_reviews, **asked))
    if not rows:
        raise ReviewNotFound(changelist_id)
    running = 0
    for row in rows:
        if not State.read(row["status"]).is_terminal:
            with suppress(JobNotFound):
                answer = hf.cancel(
                    row["last_job_id"], org_id=asked["org_id"], actor=actor, reason="review erased"
                )
                # The job stops at its next step and may store a file before that.
                running += answer is CancelAnswer.REQUESTED
    erased = hf.store.write(lambda tx: _erase(tx, asked, rows, actor, reason))
    erased["left_over"] += running
    return Erased(**erased, files=_erase_files(hf, asked, actor))


def erase_recipient(
    hf: Holdfast, recipient: str, *, org_id: str, actor: Actor, reason: str
) -> Erased:
    """Erase a person from all reviews of a tenant: name, address and messages.

    A review in progress completes without them.
    """
    asked = _read(org_id, "recipient", recipient, reason)

    def work(tx: Tx) -> int:
        named = tx.affected(SQL.delete_recipient, **asked)
        detail = {"reviews": named, "reason": reason.strip()[:200]}
        record_action(
            tx,
            actor,
            subject=f"recipients:{asked['org_id']}",
            name="review.recipient_erased",
            detail=detail,
            org_id=asked["org_id"],
        )
        return named

    named = hf.store.write(work)
    # The recipient cannot enter the outbox any more; existing deliveries are erased too.
    told = hf.outbox.erase(recipient, org_id=asked["org_id"], actor=actor)
    return Erased(recipients=named, deliveries=told.deliveries, left_over=told.left_over)


def forget_reviews(tx: Tx, gone: Sequence[Row]) -> dict[str, int]:
    """Delete findings and recipients of these reviews, and return the counts."""
    ids = [{"org_id": row["org_id"], "review_id": row["review_id"]} for row in gone]
    counts = {"reviews": tx.affected(SQL.mark_erased, gone=ids)}
    counts["findings"] = tx.affected(SQL.delete_findings, gone=ids)
    tx.affected(SQL.delete_parts, gone=ids)
    tx.affected(SQL.delete_seals, gone=ids)
    counts["recipients"] = tx.affected(SQL.delete_recipients, gone=ids)
    return counts


def _erase(
    tx: Tx, asked: dict[str, str], rows: Sequence[Row], actor: Actor, reason: str
) -> dict[str, int]:
    counts = forget_reviews(tx, rows)
    subject = subject_of(asked["changelist_id"])
    told = erase_about(tx, subject, org_id=asked["org_id"], actor=actor)
    counts |= {"deliveries": told.deliveries, "left_over": told.left_over}
    detail: dict[str, Any] = {"reason": reason.strip()[:200], **counts}
    deeds = [
        Deed(actor, row["org_id"], f"review:{row['review_id']}", "review.erased", detail)
        for row in rows
    ]
    record_actions(tx, deeds)
    return counts


def _erase_files(hf: Holdfast, asked: dict[str, str], actor: Actor) -> int:
    taken = 0
    while True:
        page = hf.store.read(lambda tx: tx.many(SQL.list_files, limit=PAGE, **asked))
        for row in page:
            with suppress(ArtifactNotFound):
                hf.artifacts.remove(
                    row["id"],
                    org_id=asked["org_id"],
                    actor=actor,
                    reason="review erased",
                    is_operator=True,
                )
                taken += 1
        if len(page) < PAGE:
            return taken


def _read(org_id: str, name: str, value: str, reason: str) -> dict[str, str]:
    bad: dict[str, str] = {}
    try:
        tenant = read_uuid(org_id)
    except ValueError as exc:
        tenant, bad["org_id"] = "", str(exc)
    asked = {"org_id": tenant, name: read_name(name, value, bad, LONGEST_NAME)}
    if not reason.strip():
        bad["reason"] = "is required; it is recorded in the audit"
    if bad:
        raise InvalidReview(bad)
    return asked
