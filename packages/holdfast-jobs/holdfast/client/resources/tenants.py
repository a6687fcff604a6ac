"""Methods about tenants. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from holdfast.client.calls.tenants import (
    Tenant,
    get_tenant,
    list_tenants,
    reset_tenant,
    set_tenant_limits,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Tenants:
    """The tenants that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Tenant]:
        """List tenants that have a rule. A key of a tenant sees its own."""
        return self._call(list_tenants(limit=limit, cursor=cursor))

    def get(self, org_id: str) -> Tenant:
        """Return the rule of a tenant, the default if it has none."""
        return self._call(get_tenant(org_id))

    def set_limits(
        self,
        org_id: str,
        *,
        reason: str,
        weight: int | NotGiven | None = NOT_GIVEN,
        max_running: int | NotGiven | None = NOT_GIVEN,
    ) -> Tenant:
        """Change the weight or the cap of a tenant. For an admin of operations."""
        return self._call(
            set_tenant_limits(org_id, reason=reason, weight=weight, max_running=max_running)
        )

    def reset(self, org_id: str, *, reason: str) -> bool:
        """Let a tenant follow the settings again."""
        return self._call(reset_tenant(org_id, reason=reason))

    def every(self, *, limit: int | None = None) -> Iterator[Tenant]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncTenants:
    """The tenants that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Tenant]:
        """List tenants that have a rule. A key of a tenant sees its own."""
        return await self._call(list_tenants(limit=limit, cursor=cursor))

    async def get(self, org_id: str) -> Tenant:
        """Return the rule of a tenant, the default if it has none."""
        return await self._call(get_tenant(org_id))

    async def set_limits(
        self,
        org_id: str,
        *,
        reason: str,
        weight: int | NotGiven | None = NOT_GIVEN,
        max_running: int | NotGiven | None = NOT_GIVEN,
    ) -> Tenant:
        """Change the weight or the cap of a tenant. For an admin of operations."""
        return await self._call(
            set_tenant_limits(org_id, reason=reason, weight=weight, max_running=max_running)
        )

    async def reset(self, org_id: str, *, reason: str) -> bool:
        """Let a tenant follow the settings again."""
        return await self._call(reset_tenant(org_id, reason=reason))

    async def every(self, *, limit: int | None = None) -> AsyncIterator[Tenant]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
