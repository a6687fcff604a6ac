"""The caller of a request: the operator API in its role and for its tenant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from holdfast.api.paging import Pages
from holdfast.api.problems import ProblemError
from holdfast.app import Holdfast
from holdfast.operate.access import Identity
from holdfast.operate.operator import Operator


@dataclass(slots=True)
class Caller:
    """Who makes a request, and the application that it is for."""

    hf: Holdfast
    identity: Identity
    request_id: str
    cursor_key: Callable[[], bytes]
    _operator: Operator | None = None

    @property
    def operator(self) -> Operator:
        """The operator API as this caller."""
        if self._operator is None:
            who = self.identity
            self._operator = self.hf.operate(actor=who.actor, role=who.role, org_id=who.org_id)
        return self._operator

    @property
    def org_id(self) -> str | None:
        """The tenant that the key is bound to; None for operations."""
        return self.identity.org_id

    def pages(self, name: str, /, **wanted: Any) -> Pages:
        """The pages of a listing, with this filter."""
        return Pages(self.cursor_key(), name, self.identity.org_id, wanted)

    def tenant(self, named: Any = None) -> str:
        """The tenant to act for: that of the key. Only operations may, and must, name one."""
        own = self.identity.org_id
        if own is not None:
            if named is not None and str(named) != own:
                raise ProblemError(
                    403,
                    "other_tenant",
                    "The key is bound to another tenant than the one named.",
                    "Leave org_id out: the tenant comes from the key.",
                )
            return own
        if named is None:
            raise ProblemError(
                422,
                "tenant_required",
                "An operations key requires the tenant in the request.",
                "Name the tenant: org_id.",
                errors=[("org_id", "is required with an operations key")],
            )
        return str(named)


async def caller_of(request: Request) -> Caller:
    """The authenticated caller."""
    found: Caller = request.state.caller
    return found


CallerOf = Annotated[Caller, Depends(caller_of)]
"""Annotates a parameter of a route: ``caller: CallerOf``."""
