"""Methods about reviews. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from holdfast.client.calls.reviews import (
    NewRecipient,
    ReviewDocument,
    ReviewItem,
    SubmittedReview,
    get_review,
    list_reviews,
    submit_review,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Reviews:
    """The reviews that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def submit(
        self,
        changelist_id: str,
        review_version: int,
        idempotency_key: str,
        patch: str,
        *,
        recipients: Sequence[NewRecipient] | NotGiven = NOT_GIVEN,
        rerun: bool | NotGiven = NOT_GIVEN,
        org_id: str | NotGiven | None = NOT_GIVEN,
    ) -> SubmittedReview:
        """Submit a version of a change, or return the existing review of it, with 200."""
        return self._call(
            submit_review(
                changelist_id,
                review_version,
                idempotency_key,
                patch,
                recipients=recipients,
                rerun=rerun,
                org_id=org_id,
            )
        )

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[ReviewItem]:
        """List reviews, newest first, without text."""
        return self._call(list_reviews(limit=limit, cursor=cursor))

    def get(self, review_id: str, *, org_id: str | None = None) -> ReviewDocument:
        """Return a review with its findings."""
        return self._call(get_review(review_id, org_id=org_id))

    def every(self, *, limit: int | None = None) -> Iterator[ReviewItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncReviews:
    """The reviews that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def submit(
        self,
        changelist_id: str,
        review_version: int,
        idempotency_key: str,
        patch: str,
        *,
        recipients: Sequence[NewRecipient] | NotGiven = NOT_GIVEN,
        rerun: bool | NotGiven = NOT_GIVEN,
        org_id: str | NotGiven | None = NOT_GIVEN,
    ) -> SubmittedReview:
        """Submit a version of a change, or return the existing review of it, with 200."""
        return await self._call(
            submit_review(
                changelist_id,
                review_version,
                idempotency_key,
                patch,
                recipients=recipients,
                rerun=rerun,
                org_id=org_id,
            )
        )

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[ReviewItem]:
        """List reviews, newest first, without text."""
        return await self._call(list_reviews(limit=limit, cursor=cursor))

    async def get(self, review_id: str, *, org_id: str | None = None) -> ReviewDocument:
        """Return a review with its findings."""
        return await self._call(get_review(review_id, org_id=org_id))

    async def every(self, *, limit: int | None = None) -> AsyncIterator[ReviewItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
