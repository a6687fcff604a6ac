"""Calls about webhooks. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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
class Webhook:
    """An endpoint that gets the changes of a tenant. It never includes the secret."""

    id: str
    org_id: str
    url: str
    events: tuple[str, ...]
    paused_at: datetime | None
    previous_secret_until: datetime | None
    created_by: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewSecret:
    """An endpoint with its new secret, which is shown once, and null in a repeated answer."""

    id: str
    org_id: str
    url: str
    events: tuple[str, ...]
    paused_at: datetime | None
    previous_secret_until: datetime | None
    created_by: str
    created_at: datetime
    updated_at: datetime
    secret: str | None


def list_webhooks(
    *, org_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Webhook]]:
    """List endpoints, oldest first, without their secrets."""
    return Call(
        "list_webhooks",
        "GET",
        "/v1/webhooks",
        lambda found: read_page(Webhook, found),
        query={"org_id": org_id, "limit": limit, "cursor": cursor},
    )


def add_webhook(
    url: str,
    *,
    reason: str,
    events: Sequence[str] | NotGiven = NOT_GIVEN,
    org_id: str | NotGiven | None = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[NewSecret]:
    """Register an endpoint, and return its secret, which is not shown again."""
    return Call(
        "add_webhook",
        "POST",
        "/v1/webhooks",
        lambda found: read(NewSecret, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given({"url": url, "events": events, "org_id": org_id, "reason": reason}),
    )


def get_webhook(webhook_id: str) -> Call[Webhook]:
    """Return one endpoint."""
    return Call(
        "get_webhook",
        "GET",
        "/v1/webhooks/{webhook_id}",
        lambda found: read(Webhook, found),
        names={"webhook_id": webhook_id},
    )


def rotate_webhook(webhook_id: str, *, reason: str) -> Call[NewSecret]:
    """Give an endpoint a new secret. The previous one signs as well for a while."""
    return Call(
        "rotate_webhook",
        "POST",
        "/v1/webhooks/{webhook_id}/rotate",
        lambda found: read(NewSecret, found),
        names={"webhook_id": webhook_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def pause_webhook(webhook_id: str, *, reason: str) -> Call[bool]:
    """Store no more deliveries for an endpoint."""
    return Call(
        "pause_webhook",
        "POST",
        "/v1/webhooks/{webhook_id}/pause",
        lambda found: bool(found["changed"]),
        names={"webhook_id": webhook_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def resume_webhook(webhook_id: str, *, reason: str) -> Call[bool]:
    """Store deliveries of new changes again."""
    return Call(
        "resume_webhook",
        "POST",
        "/v1/webhooks/{webhook_id}/resume",
        lambda found: bool(found["changed"]),
        names={"webhook_id": webhook_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def remove_webhook(webhook_id: str, *, reason: str) -> Call[bool]:
    """Remove an endpoint with its secrets."""
    return Call(
        "remove_webhook",
        "POST",
        "/v1/webhooks/{webhook_id}/remove",
        lambda found: bool(found["changed"]),
        names={"webhook_id": webhook_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
