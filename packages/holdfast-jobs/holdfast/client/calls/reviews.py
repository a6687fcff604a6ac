"""Calls about reviews. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Required, TypedDict

from holdfast.client.models import read
from holdfast.client.operations import (
    NOT_GIVEN,
    Call,
    NotGiven,
    Page,
    given,
    read_page,
)


@dataclass(frozen=True, slots=True)
class SubmittedReview:
    """The review, and whether the request created it."""

    review_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A review of a list, without its text."""

    review_id: str
    org_id: str
    changelist_id: str
    review_version: int
    status: str
    finding_count: int | None
    job_id: str
    created_at: datetime
    succeeded_at: datetime | None


@dataclass(frozen=True, slots=True)
class ReviewDocument:
    """A review with its findings and the state of its deliveries."""

    review_id: str
    changelist_id: str
    review_version: int
    status: str
    job_id: str
    job_status: str
    outcome: str | None
    created_at: str
    succeeded_at: str | None
    is_erased: bool
    summary: str
    coverage: Mapping[str, Any] | None
    findings: tuple[Mapping[str, Any], ...]
    recipients: tuple[Mapping[str, Any], ...]


class NewRecipient(TypedDict, total=False):
    """A recipient of the findings."""

    name: Required[str]
    channel: Required[str]
    address: str
    is_required: bool


def submit_review(
    changelist_id: str,
    review_version: int,
    idempotency_key: str,
    patch: str,
    *,
    recipients: Sequence[NewRecipient] | NotGiven = NOT_GIVEN,
    rerun: bool | NotGiven = NOT_GIVEN,
    org_id: str | NotGiven | None = NOT_GIVEN,
) -> Call[SubmittedReview]:
    """Submit a version of a change, or return the existing review of it, with 200."""
    return Call(
        "submit_review",
        "POST",
        "/v1/reviews",
        lambda found: read(SubmittedReview, found),
        body=given(
            {
                "changelist_id": changelist_id,
                "review_version": review_version,
                "idempotency_key": idempotency_key,
                "patch": patch,
                "recipients": recipients,
                "rerun": rerun,
                "org_id": org_id,
            }
        ),
    )


def list_reviews(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[ReviewItem]]:
    """List reviews, newest first, without text."""
    return Call(
        "list_reviews",
        "GET",
        "/v1/reviews",
        lambda found: read_page(ReviewItem, found),
        query={"limit": limit, "cursor": cursor},
    )


def get_review(review_id: str, *, org_id: str | None = None) -> Call[ReviewDocument]:
    """Return a review with its findings."""
    return Call(
        "get_review",
        "GET",
        "/v1/reviews/{review_id}",
        lambda found: read(ReviewDocument, found),
        names={"review_id": review_id},
        query={"org_id": org_id},
    )
