"""The reviews that an operator may see, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.clock import read_instant
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import NEWEST, Page, check_limit, page_of
from holdfast_review import show


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """One review of a listing, without its text."""

    org_id: str
    review_id: str
    changelist_id: str
    review_version: int
    status: str
    finding_count: int | None
    job_id: str
    created_at: datetime
    succeeded_at: datetime | None


def list_reviews(
    context: OperatorContext, *, limit: int = 50, before: str = NEWEST
) -> Page[ReviewRow]:
    """List the reviews of the context's tenant, or of all tenants."""
    org_id = context.tenant_for(Action.LOOK, None, subject="reviews")
    params = {"org_id": org_id, "before": before, "limit": check_limit(limit) + 1}
    rows = context.store.read(lambda tx: tx.many(show.SQL.list_reviews, **params))
    found = [
        ReviewRow(
            str(row["org_id"]),
            str(row["review_id"]),
            row["changelist_id"],
            row["review_version"],
            row["status"],
            row["finding_count"],
            str(row["job_id"]),
            read_instant(row["created_at"]),
            None if row["succeeded_at"] is None else read_instant(row["succeeded_at"]),
        )
        for row in rows
    ]
    return page_of(found, limit, lambda review: review.review_id)
