"""The review critic over HTTP: submit versions of a change, and read the findings."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Response
from pydantic import Field

from holdfast.api.caller import Caller, CallerOf
from holdfast.api.models import Body, Model
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.page import NEWEST
from holdfast_review.listing import list_reviews as reviews_of
from holdfast_review.model import Recipient, Source
from holdfast_review.reviews import Reviews

router = Resource("reviews")

Tenant = Annotated[
    UUID | None, Query(description="The tenant; only a key of operations names one.")
]


class NewRecipient(Body):
    """A recipient of the findings."""

    name: str = Field(min_length=1, max_length=200)
    channel: str = Field(min_length=1, max_length=100)
    address: str = Field(default="", max_length=500)
    is_required: bool = True


class NewReview(Body):
    """A version of a change to review: a posted patch."""

    changelist_id: str = Field(min_length=1, max_length=200)
    review_version: int = Field(ge=1, le=2**31 - 1)
    idempotency_key: str = Field(min_length=1, max_length=200)
    patch: str = Field(min_length=1, description="A unified diff.")
    recipients: list[NewRecipient] = Field(default_factory=list, max_length=100)
    rerun: bool = False
    org_id: UUID | None = Field(
        default=None, description="The tenant; only a key of operations names one."
    )


class SubmittedReview(Model):
    """The review, and whether the request created it."""

    review_id: str
    created: bool


class ReviewItem(Model):
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


class ReviewDocument(Model):
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
    coverage: dict[str, Any] | None
    findings: list[dict[str, Any]]
    recipients: list[dict[str, Any]]


@router.write("", operation_id="submit_review", status_code=202)
def submit_review(new: NewReview, caller: CallerOf, response: Response) -> SubmittedReview:
    """Submit a version of a change, or return the existing review of it, with 200."""
    made = _reviews(caller).submit(
        new.changelist_id,
        new.review_version,
        new.idempotency_key,
        org_id=caller.tenant(new.org_id),
        source=Source.posted(new.patch.encode()),
        recipients=[Recipient(**one.model_dump()) for one in new.recipients],
        rerun=new.rerun,
        actor=caller.identity.actor,
        request_id=caller.request_id,
    )
    if not made.created:
        response.status_code = 200
    return SubmittedReview(review_id=made.review.review_id, created=made.created)


@router.read("", operation_id="list_reviews")
def list_reviews(caller: CallerOf, limit: Limit = 50, cursor: Cursor = None) -> Listing[ReviewItem]:
    """List reviews, newest first, without text."""
    pages = caller.pages("reviews")
    before = pages.start(cursor, NEWEST)
    found = reviews_of(caller.operator.context, limit=limit, before=before)
    return Listing[ReviewItem].model_validate(pages.page(found, ReviewItem.model_validate))


@router.read("/{review_id}", operation_id="get_review")
def get_review(review_id: UUID, caller: CallerOf, org_id: Tenant = None) -> ReviewDocument:
    """Return a review with its findings."""
    found = _reviews(caller).find(str(review_id), org_id=caller.tenant(org_id))
    return ReviewDocument.model_validate(found.document)


def _reviews(caller: Caller) -> Reviews:
    return Reviews.for_app(caller.hf)
