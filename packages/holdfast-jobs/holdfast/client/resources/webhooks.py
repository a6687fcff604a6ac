"""Methods about webhooks. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from holdfast.client.calls.webhooks import (
    NewSecret,
    Webhook,
    add_webhook,
    get_webhook,
    list_webhooks,
    pause_webhook,
    remove_webhook,
    resume_webhook,
    rotate_webhook,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Webhooks:
    """The webhooks that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(
        self, *, org_id: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Webhook]:
        """List endpoints, oldest first, without their secrets."""
        return self._call(list_webhooks(org_id=org_id, limit=limit, cursor=cursor))

    def add(
        self,
        url: str,
        *,
        reason: str,
        events: Sequence[str] | NotGiven = NOT_GIVEN,
        org_id: str | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> NewSecret:
        """Register an endpoint, and return its secret, which is not shown again."""
        return self._call(
            add_webhook(
                url, events=events, org_id=org_id, reason=reason, idempotency_key=idempotency_key
            )
        )

    def get(self, webhook_id: str) -> Webhook:
        """Return one endpoint."""
        return self._call(get_webhook(webhook_id))

    def rotate(self, webhook_id: str, *, reason: str) -> NewSecret:
        """Give an endpoint a new secret. The previous one signs as well for a while."""
        return self._call(rotate_webhook(webhook_id, reason=reason))

    def pause(self, webhook_id: str, *, reason: str) -> bool:
        """Store no more deliveries for an endpoint."""
        return self._call(pause_webhook(webhook_id, reason=reason))

    def resume(self, webhook_id: str, *, reason: str) -> bool:
        """Store deliveries of new changes again."""
        return self._call(resume_webhook(webhook_id, reason=reason))

    def remove(self, webhook_id: str, *, reason: str) -> bool:
        """Remove an endpoint with its secrets."""
        return self._call(remove_webhook(webhook_id, reason=reason))

    def every(self, *, org_id: str | None = None, limit: int | None = None) -> Iterator[Webhook]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(org_id=org_id, limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncWebhooks:
    """The webhooks that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self, *, org_id: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Webhook]:
        """List endpoints, oldest first, without their secrets."""
        return await self._call(list_webhooks(org_id=org_id, limit=limit, cursor=cursor))

    async def add(
        self,
        url: str,
        *,
        reason: str,
        events: Sequence[str] | NotGiven = NOT_GIVEN,
        org_id: str | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> NewSecret:
        """Register an endpoint, and return its secret, which is not shown again."""
        return await self._call(
            add_webhook(
                url, events=events, org_id=org_id, reason=reason, idempotency_key=idempotency_key
            )
        )

    async def get(self, webhook_id: str) -> Webhook:
        """Return one endpoint."""
        return await self._call(get_webhook(webhook_id))

    async def rotate(self, webhook_id: str, *, reason: str) -> NewSecret:
        """Give an endpoint a new secret. The previous one signs as well for a while."""
        return await self._call(rotate_webhook(webhook_id, reason=reason))

    async def pause(self, webhook_id: str, *, reason: str) -> bool:
        """Store no more deliveries for an endpoint."""
        return await self._call(pause_webhook(webhook_id, reason=reason))

    async def resume(self, webhook_id: str, *, reason: str) -> bool:
        """Store deliveries of new changes again."""
        return await self._call(resume_webhook(webhook_id, reason=reason))

    async def remove(self, webhook_id: str, *, reason: str) -> bool:
        """Remove an endpoint with its secrets."""
        return await self._call(remove_webhook(webhook_id, reason=reason))

    async def every(
        self, *, org_id: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Webhook]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(org_id=org_id, limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
