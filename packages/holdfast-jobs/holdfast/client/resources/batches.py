"""Methods about batches. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from holdfast.client.calls.batches import (
    Batch,
    BatchDetail,
    adopt_batch,
    cancel_batch,
    get_batch,
    list_batches,
    release_batch,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Batches:
    """The batches that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(
        self,
        *,
        state: str | None = None,
        mode: str | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Batch]:
        """List batches, newest first. For keys of operations."""
        return self._call(
            list_batches(state=state, mode=mode, with_ended=with_ended, limit=limit, cursor=cursor)
        )

    def get(
        self, batch_id: str, *, limit: int | None = None, after: int | None = None
    ) -> BatchDetail:
        """Return a batch with a page of its items."""
        return self._call(get_batch(batch_id, limit=limit, after=after))

    def cancel(self, batch_id: str, *, reason: str) -> Batch:
        """Cancel a batch at the provider; finished items are collected."""
        return self._call(cancel_batch(batch_id, reason=reason))

    def release(self, batch_id: str, *, reason: str) -> Batch:
        """Requeue the jobs of a quarantined batch that the provider does not have."""
        return self._call(release_batch(batch_id, reason=reason))

    def adopt(
        self, batch_id: str, *, reason: str, provider_batch_id: str | NotGiven | None = NOT_GIVEN
    ) -> Batch:
        """Collect a quarantined batch that exists at the provider."""
        return self._call(adopt_batch(batch_id, reason=reason, provider_batch_id=provider_batch_id))

    def every(
        self,
        *,
        state: str | None = None,
        mode: str | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[Batch]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(
                state=state, mode=mode, with_ended=with_ended, limit=limit, cursor=cursor
            )
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncBatches:
    """The batches that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self,
        *,
        state: str | None = None,
        mode: str | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Batch]:
        """List batches, newest first. For keys of operations."""
        return await self._call(
            list_batches(state=state, mode=mode, with_ended=with_ended, limit=limit, cursor=cursor)
        )

    async def get(
        self, batch_id: str, *, limit: int | None = None, after: int | None = None
    ) -> BatchDetail:
        """Return a batch with a page of its items."""
        return await self._call(get_batch(batch_id, limit=limit, after=after))

    async def cancel(self, batch_id: str, *, reason: str) -> Batch:
        """Cancel a batch at the provider; finished items are collected."""
        return await self._call(cancel_batch(batch_id, reason=reason))

    async def release(self, batch_id: str, *, reason: str) -> Batch:
        """Requeue the jobs of a quarantined batch that the provider does not have."""
        return await self._call(release_batch(batch_id, reason=reason))

    async def adopt(
        self, batch_id: str, *, reason: str, provider_batch_id: str | NotGiven | None = NOT_GIVEN
    ) -> Batch:
        """Collect a quarantined batch that exists at the provider."""
        return await self._call(
            adopt_batch(batch_id, reason=reason, provider_batch_id=provider_batch_id)
        )

    async def every(
        self,
        *,
        state: str | None = None,
        mode: str | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Batch]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                state=state, mode=mode, with_ended=with_ended, limit=limit, cursor=cursor
            )
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
