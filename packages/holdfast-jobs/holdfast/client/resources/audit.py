"""Methods about audit. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from holdfast.client.calls.audit import Verified, list_audit_events, verify_audit
from holdfast.client.calls.shared import AuditEvent
from holdfast.client.operations import (
    AsyncCaller,
    Caller,
    Page,
)


class Audit:
    """The audit that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(
        self,
        *,
        org_id: str | None = None,
        job_id: str | None = None,
        actor: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[AuditEvent]:
        """Search events, newest first. For operators of a tenant and admins."""
        return self._call(
            list_audit_events(
                org_id=org_id,
                job_id=job_id,
                actor=actor,
                correlation_id=correlation_id,
                request_id=request_id,
                name=name,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            )
        )

    def verify(self, *, org_id: str | None = None) -> Verified:
        """Compare the events with their seals."""
        return self._call(verify_audit(org_id=org_id))

    def every(
        self,
        *,
        org_id: str | None = None,
        job_id: str | None = None,
        actor: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditEvent]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(
                org_id=org_id,
                job_id=job_id,
                actor=actor,
                correlation_id=correlation_id,
                request_id=request_id,
                name=name,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            )
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncAudit:
    """The audit that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self,
        *,
        org_id: str | None = None,
        job_id: str | None = None,
        actor: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[AuditEvent]:
        """Search events, newest first. For operators of a tenant and admins."""
        return await self._call(
            list_audit_events(
                org_id=org_id,
                job_id=job_id,
                actor=actor,
                correlation_id=correlation_id,
                request_id=request_id,
                name=name,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            )
        )

    async def verify(self, *, org_id: str | None = None) -> Verified:
        """Compare the events with their seals."""
        return await self._call(verify_audit(org_id=org_id))

    async def every(
        self,
        *,
        org_id: str | None = None,
        job_id: str | None = None,
        actor: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[AuditEvent]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                org_id=org_id,
                job_id=job_id,
                actor=actor,
                correlation_id=correlation_id,
                request_id=request_id,
                name=name,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            )
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
