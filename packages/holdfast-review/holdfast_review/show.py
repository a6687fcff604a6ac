"""The caller's view of a review: findings, recipients and delivery states."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import decode
from holdfast.engine.job import State
from holdfast.ids import read_uuid
from holdfast.store import Row, Statements, Store, Tx
from holdfast_review.coverage import Coverage
from holdfast_review.enums import Confidence, Severity, progress_of
from holdfast_review.failure import InvalidReview, ReviewNotFound
from holdfast_review.model import Finding, Origin, Review, Source, subject_of

SQL = Statements("holdfast_review", "show.sql")


@dataclass(frozen=True, slots=True)
class Told:
    """A recipient of a review and the state of the delivery; no address and no text."""

    recipient: str
    channel: str
    is_required: bool
    state: str
    reason: str | None
    attempts: int
    notified_at: datetime | None
    notification_id: str | None
    delivery_id: str | None
    not_before_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A review with its findings and recipients."""

    review: Review
    summary: str
    findings: tuple[Finding, ...]
    recipients: tuple[Told, ...]

    @property
    def document(self) -> dict[str, Any]:
        """Return the review as plain values for printing."""
        review = self.review
        return {
            "review_id": review.review_id,
            "changelist_id": review.changelist_id,
            "review_version": review.review_version,
            "status": review.word,
            "job_id": review.job_id,
            "job_status": review.state,
            "dead_letter_id": review.dead_letter_id,
            "source": review.source.document,
            "created_at": write_instant(review.created_at),
            "succeeded_at": review.succeeded_at and write_instant(review.succeeded_at),
            "is_erased": review.is_erased,
            "outcome": review.outcome,
            "coverage": None if review.coverage is None else review.coverage.document,
            "origin": None if review.origin is None else review.origin.document,
            "summary": self.summary,
            "findings": [asdict(one) for one in self.findings],
            "recipients": [asdict(one) for one in self.recipients],
        }


def find_review(store: Store, *, org_id: str, review_id: str) -> Review:
    """Return a review. Reviews of other tenants are not found."""
    ids = _ids(org_id, review_id)
    return store.read(lambda tx: read_review(tx, **ids))


def find_shown(store: Store, *, org_id: str, review_id: str) -> Shown:
    """Return a review with its findings and recipients, read in one snapshot."""
    ids = _ids(org_id, review_id)

    def work(tx: Tx) -> Shown:
        row = _row(tx, **ids)
        review = _review(row)
        findings = read_findings(tx, review)
        return Shown(review, row["summary"] or "", findings, read_told(tx, review))

    return store.read(work)


def find_version(
    store: Store, *, org_id: str, changelist_id: str, review_version: int | None = None
) -> str:
    """Return the id of the review of a version, by default the highest."""
    asked = {
        "org_id": _uuid("org_id", org_id),
        "changelist_id": changelist_id,
        "review_version": review_version,
    }
    row = store.read(lambda tx: tx.maybe(SQL.find_version, **asked))
    if row is None:
        raise ReviewNotFound(changelist_id)
    found: str = row["review_id"]
    return found


def read_review(tx: Tx, *, org_id: str, review_id: str) -> Review:
    return _review(_row(tx, org_id=org_id, review_id=review_id))


def read_findings(tx: Tx, review: Review) -> tuple[Finding, ...]:
    rows = tx.many(SQL.list_findings, org_id=review.org_id, review_id=review.review_id)
    return tuple(
        Finding(
            row["file"],
            row["line"],
            Severity(row["severity"]),
            row["message"],
            Confidence(row["confidence"]),
            bool(row["is_placed"]),
            row["quote"],
        )
        for row in rows
    )


def read_told(tx: Tx, review: Review) -> tuple[Told, ...]:
    rows = tx.many(
        SQL.list_recipients,
        org_id=review.org_id,
        review_id=review.review_id,
        subject=subject_of(review.changelist_id),
        review_version=review.review_version,
    )
    return tuple(
        Told(
            row["recipient"],
            row["channel"],
            bool(row["is_required"]),
            row["state"],
            row["reason"],
            row["attempts"] or 0,
            _instant(row["notified_at"]),
            row["notification_id"],
            row["delivery_id"],
            _instant(row["not_before_at"]),
        )
        for row in rows
    )


def _row(tx: Tx, *, org_id: str, review_id: str) -> Row:
    row = tx.maybe(SQL.find_review, org_id=org_id, review_id=review_id)
    if row is None:
        raise ReviewNotFound(review_id)
    return row


def _review(row: Row) -> Review:
    state = State.read(row["state"])
    return Review(
        review_id=row["review_id"],
        org_id=row["org_id"],
        changelist_id=row["changelist_id"],
        review_version=row["review_version"],
        job_id=row["last_job_id"],
        state=state,
        word=progress_of(state, row["attempt_count"], is_retried=bool(row["is_retried"])),
        source=Source.from_document(decode(row["source"])),
        idempotency_key=row["idempotency_key"],
        created_at=read_instant(row["created_at"]),
        succeeded_at=_instant(row["succeeded_at"]),
        dead_letter_id=row["letter_id"] if state is State.FAILED else None,
        finding_count=row["finding_count"],
        is_told=row["intended_at"] is not None,
        is_overtaken=bool(row["is_overtaken"]),
        is_erased=row["erased_at"] is not None,
        coverage=None if row["coverage"] is None else Coverage.from_detail(decode(row["coverage"])),
        origin=None if row["origin"] is None else Origin.from_document(decode(row["origin"])),
    )


def _instant(value: Any) -> datetime | None:
    return None if value is None else read_instant(value)


def _ids(org_id: str, review_id: str) -> dict[str, str]:
    return {"org_id": _uuid("org_id", org_id), "review_id": _uuid("review_id", review_id)}


def _uuid(name: str, value: str) -> str:
    try:
        return read_uuid(value)
    except ValueError as exc:
        raise InvalidReview({name: str(exc)}) from None
