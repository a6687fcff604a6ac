"""Tenants: their weight and cap over all queues."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Done, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.tenants import TenantRule

router = Resource("tenants")


class Tenant(Model):
    """The rule of a tenant; *set_by* is null if it follows the defaults."""

    org_id: str
    weight: int
    max_running: int | None
    set_by: str | None

    @classmethod
    def from_item(cls, rule: TenantRule) -> Tenant:
        """Render a rule of the operator API."""
        return cls(
            org_id=rule.org_id,
            weight=rule.settings.weight,
            max_running=rule.settings.max_running,
            set_by=rule.set_by,
        )


class TenantChange(Body):
    """Rules to change; one that is left out stays."""

    reason: Reason
    weight: int | None = Field(default=None, ge=1, le=10)
    max_running: int | None = Field(default=None, ge=1, le=2**31 - 1)


@router.read("", operation_id="list_tenants")
def list_tenants(caller: CallerOf, limit: Limit = 50, cursor: Cursor = None) -> Listing[Tenant]:
    """List tenants that have a rule. A key of a tenant sees its own."""
    pages = caller.pages("tenants")
    found = caller.operator.tenants.list(limit=limit, after=pages.start(cursor, ""))
    return Listing[Tenant].model_validate(pages.page(found, Tenant.from_item))


@router.read("/{org_id}", operation_id="get_tenant")
def get_tenant(org_id: NamedId, caller: CallerOf) -> Tenant:
    """Return the rule of a tenant, the default if it has none."""
    return Tenant.from_item(caller.operator.tenants.get(str(org_id)))


@router.write("/{org_id}/limits", operation_id="set_tenant_limits")
def set_tenant_limits(org_id: NamedId, change: TenantChange, caller: CallerOf) -> Tenant:
    """Change the weight or the cap of a tenant. For an admin of operations."""
    given: Any = change.model_dump(exclude={"reason"}, exclude_unset=True)
    return Tenant.from_item(caller.operator.tenants.set(str(org_id), reason=change.reason, **given))


@router.write("/{org_id}/reset", operation_id="reset_tenant")
def reset_tenant(org_id: NamedId, action: Action, caller: CallerOf) -> Done:
    """Let a tenant follow the settings again."""
    return Done(changed=caller.operator.tenants.reset(str(org_id), reason=action.reason))
