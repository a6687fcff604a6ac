"""Methods about deliveries. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from holdfast.client.calls.deliveries import (
    DeliveryConditions,
    DeliveryDetail,
    DeliveryItem,
    act_on_deliveries,
    confirm_delivery,
    drop_delivery,
    get_delivery,
    list_deliveries,
    resend_delivery,
)
from holdfast.client.calls.shared import BulkActionView, BulkPlan
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Deliveries:
    """The deliveries that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def act_on_all(
        self,
        *,
        reason: str,
        action: str,
        filter: DeliveryConditions,
        dry_run: bool | NotGiven = NOT_GIVEN,
        expected: int | NotGiven | None = NOT_GIVEN,
        tolerance: int | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> BulkPlan | BulkActionView:
        """Confirm, resend or drop every held or failed delivery that matches: a dry run, then a job."""
        return self._call(
            act_on_deliveries(
                reason=reason,
                dry_run=dry_run,
                expected=expected,
                tolerance=tolerance,
                action=action,
                filter=filter,
                idempotency_key=idempotency_key,
            )
        )

    def list(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        channel: str | None = None,
        reason: str | None = None,
        recipient: str | None = None,
        subject: str | None = None,
        job_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeliveryItem]:
        """List deliveries, newest first; by default only those that have not ended."""
        return self._call(
            list_deliveries(
                org_id=org_id,
                state=state,
                channel=channel,
                reason=reason,
                recipient=recipient,
                subject=subject,
                job_id=job_id,
                since=since,
                until=until,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
        )

    def get(self, delivery_id: str) -> DeliveryDetail:
        """Return a delivery with its attempts and evidence."""
        return self._call(get_delivery(delivery_id))

    def confirm(
        self, delivery_id: str, *, reason: str, provider_id: str | NotGiven | None = NOT_GIVEN
    ) -> DeliveryItem:
        """Confirm that a delivery arrived: it is not sent again."""
        return self._call(confirm_delivery(delivery_id, reason=reason, provider_id=provider_id))

    def resend(self, delivery_id: str, *, reason: str) -> DeliveryItem:
        """Send a delivery again, regardless of earlier attempts."""
        return self._call(resend_delivery(delivery_id, reason=reason))

    def drop(self, delivery_id: str, *, reason: str) -> DeliveryItem:
        """Do not send a delivery."""
        return self._call(drop_delivery(delivery_id, reason=reason))

    def every(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        channel: str | None = None,
        reason: str | None = None,
        recipient: str | None = None,
        subject: str | None = None,
        job_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[DeliveryItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(
                org_id=org_id,
                state=state,
                channel=channel,
                reason=reason,
                recipient=recipient,
                subject=subject,
                job_id=job_id,
                since=since,
                until=until,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncDeliveries:
    """The deliveries that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def act_on_all(
        self,
        *,
        reason: str,
        action: str,
        filter: DeliveryConditions,
        dry_run: bool | NotGiven = NOT_GIVEN,
        expected: int | NotGiven | None = NOT_GIVEN,
        tolerance: int | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> BulkPlan | BulkActionView:
        """Confirm, resend or drop every held or failed delivery that matches: a dry run, then a job."""
        return await self._call(
            act_on_deliveries(
                reason=reason,
                dry_run=dry_run,
                expected=expected,
                tolerance=tolerance,
                action=action,
                filter=filter,
                idempotency_key=idempotency_key,
            )
        )

    async def list(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        channel: str | None = None,
        reason: str | None = None,
        recipient: str | None = None,
        subject: str | None = None,
        job_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeliveryItem]:
        """List deliveries, newest first; by default only those that have not ended."""
        return await self._call(
            list_deliveries(
                org_id=org_id,
                state=state,
                channel=channel,
                reason=reason,
                recipient=recipient,
                subject=subject,
                job_id=job_id,
                since=since,
                until=until,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
        )

    async def get(self, delivery_id: str) -> DeliveryDetail:
        """Return a delivery with its attempts and evidence."""
        return await self._call(get_delivery(delivery_id))

    async def confirm(
        self, delivery_id: str, *, reason: str, provider_id: str | NotGiven | None = NOT_GIVEN
    ) -> DeliveryItem:
        """Confirm that a delivery arrived: it is not sent again."""
        return await self._call(
            confirm_delivery(delivery_id, reason=reason, provider_id=provider_id)
        )

    async def resend(self, delivery_id: str, *, reason: str) -> DeliveryItem:
        """Send a delivery again, regardless of earlier attempts."""
        return await self._call(resend_delivery(delivery_id, reason=reason))

    async def drop(self, delivery_id: str, *, reason: str) -> DeliveryItem:
        """Do not send a delivery."""
        return await self._call(drop_delivery(delivery_id, reason=reason))

    async def every(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        channel: str | None = None,
        reason: str | None = None,
        recipient: str | None = None,
        subject: str | None = None,
        job_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[DeliveryItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                org_id=org_id,
                state=state,
                channel=channel,
                reason=reason,
                recipient=recipient,
                subject=subject,
                job_id=job_id,
                since=since,
                until=until,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
