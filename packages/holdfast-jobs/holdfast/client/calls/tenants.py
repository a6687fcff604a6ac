"""Calls about tenants. Written by tools/client_code.py."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.client.models import read
from holdfast.client.operations import (
    NOT_GIVEN,
    Call,
    NotGiven,
    Page,
    given,
    new_key,
    read_page,
)


@dataclass(frozen=True, slots=True)
class Tenant:
    """The rule of a tenant; *set_by* is null if it follows the defaults."""

    org_id: str
    weight: int
    max_running: int | None
    set_by: str | None


def list_tenants(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Tenant]]:
    """List tenants that have a rule. A key of a tenant sees its own."""
    return Call(
        "list_tenants",
        "GET",
        "/v1/tenants",
        lambda found: read_page(Tenant, found),
        query={"limit": limit, "cursor": cursor},
    )


def get_tenant(org_id: str) -> Call[Tenant]:
    """Return the rule of a tenant, the default if it has none."""
    return Call(
        "get_tenant",
        "GET",
        "/v1/tenants/{org_id}",
        lambda found: read(Tenant, found),
        names={"org_id": org_id},
    )


def set_tenant_limits(
    org_id: str,
    *,
    reason: str,
    weight: int | NotGiven | None = NOT_GIVEN,
    max_running: int | NotGiven | None = NOT_GIVEN,
) -> Call[Tenant]:
    """Change the weight or the cap of a tenant. For an admin of operations."""
    return Call(
        "set_tenant_limits",
        "POST",
        "/v1/tenants/{org_id}/limits",
        lambda found: read(Tenant, found),
        names={"org_id": org_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason, "weight": weight, "max_running": max_running}),
    )


def reset_tenant(org_id: str, *, reason: str) -> Call[bool]:
    """Let a tenant follow the settings again."""
    return Call(
        "reset_tenant",
        "POST",
        "/v1/tenants/{org_id}/reset",
        lambda found: bool(found["changed"]),
        names={"org_id": org_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
