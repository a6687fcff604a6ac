"""The audit: search its events, and verify its seals."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Annotated

from fastapi import Query
from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import AuditEvent, Model, NamedId
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.audit import NEWEST, AuditFilter

router = Resource("audit")

MOST_PROBLEMS = 100
Text = Annotated[str | None, Query(min_length=1, max_length=200)]


class Tampering(Model):
    """A difference between the events and their seals."""

    org_id: str
    seal: int | None
    seq: int | None
    problem: str


class Verified(Model):
    """The result of a verification."""

    is_sound: bool
    seals: int
    sealed: int
    unsealed: int = Field(description="Events that are not sealed yet.")
    problems: list[Tampering] = Field(description="The first hundred differences.")


@router.read("", operation_id="list_audit_events")
def list_audit_events(
    caller: CallerOf,
    org_id: NamedId | None = None,
    job_id: Text = None,
    actor: Text = None,
    correlation_id: Text = None,
    request_id: Text = None,
    name: Text = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[AuditEvent]:
    """Search events, newest first. For operators of a tenant and admins."""
    tenant = None if org_id is None else str(org_id)
    wanted = AuditFilter(tenant, job_id, actor, correlation_id, request_id, name, since, until)
    pages = caller.pages("audit", wanted=wanted)
    before = int(pages.start(cursor, NEWEST))
    found = caller.operator.audit.list(wanted, limit=limit, before=before)
    return Listing[AuditEvent].model_validate(pages.page(found, AuditEvent.from_item))


@router.read("/verify", operation_id="verify_audit")
def verify_audit(caller: CallerOf, org_id: NamedId | None = None) -> Verified:
    """Compare the events with their seals."""
    tenant, audit = None if org_id is None else str(org_id), caller.operator.audit
    found = list(islice(audit.verify(org_id=tenant), MOST_PROBLEMS))
    cover = audit.cover(org_id=tenant)
    return Verified(
        is_sound=not found,
        seals=cover.seals,
        sealed=cover.sealed,
        unsealed=cover.unsealed,
        problems=[Tampering.model_validate(place) for place in found],
    )
