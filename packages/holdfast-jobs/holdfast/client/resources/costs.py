"""Methods about costs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from holdfast.client.calls.costs import CostSummary, get_costs
from holdfast.client.operations import (
    AsyncCaller,
    Caller,
)


class Costs:
    """The costs that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def report(
        self,
        *,
        by: Sequence[str] | None = None,
        since: date | None = None,
        until: date | None = None,
        org_id: str | None = None,
    ) -> CostSummary:
        """Report the cost of model calls. A key of a tenant sees its own."""
        return self._call(get_costs(by=by, since=since, until=until, org_id=org_id))


class AsyncCosts:
    """The costs that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def report(
        self,
        *,
        by: Sequence[str] | None = None,
        since: date | None = None,
        until: date | None = None,
        org_id: str | None = None,
    ) -> CostSummary:
        """Report the cost of model calls. A key of a tenant sees its own."""
        return await self._call(get_costs(by=by, since=since, until=until, org_id=org_id))
