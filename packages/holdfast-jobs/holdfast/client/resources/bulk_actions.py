"""Methods about bulk actions. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from holdfast.client.calls.bulk_actions import get_bulk_action, list_bulk_actions
from holdfast.client.calls.shared import BulkActionView
from holdfast.client.operations import (
    AsyncCaller,
    Caller,
    Page,
)


class BulkActions:
    """The bulk actions that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[BulkActionView]:
        """List bulk actions, newest first. A page may be short although there are more."""
        return self._call(list_bulk_actions(limit=limit, cursor=cursor))

    def get(self, bulk_action_id: str) -> BulkActionView:
        """Return a bulk action and its progress."""
        return self._call(get_bulk_action(bulk_action_id))

    def every(self, *, limit: int | None = None) -> Iterator[BulkActionView]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncBulkActions:
    """The bulk actions that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[BulkActionView]:
        """List bulk actions, newest first. A page may be short although there are more."""
        return await self._call(list_bulk_actions(limit=limit, cursor=cursor))

    async def get(self, bulk_action_id: str) -> BulkActionView:
        """Return a bulk action and its progress."""
        return await self._call(get_bulk_action(bulk_action_id))

    async def every(self, *, limit: int | None = None) -> AsyncIterator[BulkActionView]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
