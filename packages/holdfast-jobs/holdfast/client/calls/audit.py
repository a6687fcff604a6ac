"""Calls about audit. Written by tools/client_code.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.client.calls.shared import AuditEvent
from holdfast.client.models import read
from holdfast.client.operations import (
    Call,
    Page,
    read_page,
)


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification."""

    is_sound: bool
    seals: int
    sealed: int
    unsealed: int
    problems: tuple[Tampering, ...]


@dataclass(frozen=True, slots=True)
class Tampering:
    """A difference between the events and their seals."""

    org_id: str
    seal: int | None
    seq: int | None
    problem: str


def list_audit_events(
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
) -> Call[Page[AuditEvent]]:
    """Search events, newest first. For operators of a tenant and admins."""
    return Call(
        "list_audit_events",
        "GET",
        "/v1/audit",
        lambda found: read_page(AuditEvent, found),
        query={
            "org_id": org_id,
            "job_id": job_id,
            "actor": actor,
            "correlation_id": correlation_id,
            "request_id": request_id,
            "name": name,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        },
    )


def verify_audit(*, org_id: str | None = None) -> Call[Verified]:
    """Compare the events with their seals."""
    return Call(
        "verify_audit",
        "GET",
        "/v1/audit/verify",
        lambda found: read(Verified, found),
        query={"org_id": org_id},
    )
