"""Webhooks over HTTP: register endpoints, rotate their secrets, pause and remove them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Done, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.webhooks.operator import OLDEST, WebhookSecret

router = Resource("webhooks")


class Webhook(Model):
    """An endpoint that gets the changes of a tenant. It never includes the secret."""

    id: str
    org_id: str
    url: str
    events: list[str]
    paused_at: datetime | None
    previous_secret_until: datetime | None
    created_by: str
    created_at: datetime
    updated_at: datetime


class NewSecret(Webhook):
    """An endpoint with its new secret, which is shown once, and null in a repeated answer."""

    secret: str | None


class NewWebhook(Body):
    """An endpoint to register."""

    url: str = Field(min_length=1, max_length=2_000)
    events: list[str] = Field(
        default_factory=list,
        max_length=50,
        description="Names such as job.succeeded, or beginnings such as job.*; none means all.",
    )
    org_id: NamedId | None = Field(
        default=None,
        description="The tenant; only a key of operations names one. Without it: all tenants.",
    )
    reason: Reason


@router.read("", operation_id="list_webhooks")
def list_webhooks(
    caller: CallerOf, org_id: NamedId | None = None, limit: Limit = 50, cursor: Cursor = None
) -> Listing[Webhook]:
    """List endpoints, oldest first, without their secrets."""
    pages = caller.pages("webhooks", org_id=org_id)
    after = pages.start(cursor, OLDEST)
    found = _noun(caller).list(org_id=org_id, limit=limit, after=after)
    return Listing[Webhook].model_validate(pages.page(found, Webhook.model_validate))


@router.write("", operation_id="add_webhook", status_code=201, shown_once=("secret",))
def add_webhook(new: NewWebhook, caller: CallerOf) -> NewSecret:
    """Register an endpoint, and return its secret, which is not shown again."""
    made = _noun(caller).add(new.url, events=new.events, org_id=new.org_id, reason=new.reason)
    return _with_secret(made)


@router.read("/{webhook_id}", operation_id="get_webhook")
def get_webhook(webhook_id: str, caller: CallerOf) -> Webhook:
    """Return one endpoint."""
    return Webhook.model_validate(_noun(caller).get(webhook_id))


@router.write("/{webhook_id}/rotate", operation_id="rotate_webhook", shown_once=("secret",))
def rotate_webhook(webhook_id: str, action: Action, caller: CallerOf) -> NewSecret:
    """Give an endpoint a new secret. The previous one signs as well for a while."""
    return _with_secret(_noun(caller).rotate(webhook_id, reason=action.reason))


@router.write("/{webhook_id}/pause", operation_id="pause_webhook")
def pause_webhook(webhook_id: str, action: Action, caller: CallerOf) -> Done:
    """Store no more deliveries for an endpoint."""
    return Done(changed=_noun(caller).pause(webhook_id, reason=action.reason))


@router.write("/{webhook_id}/resume", operation_id="resume_webhook")
def resume_webhook(webhook_id: str, action: Action, caller: CallerOf) -> Done:
    """Store deliveries of new changes again."""
    return Done(changed=_noun(caller).resume(webhook_id, reason=action.reason))


@router.write("/{webhook_id}/remove", operation_id="remove_webhook")
def remove_webhook(webhook_id: str, action: Action, caller: CallerOf) -> Done:
    """Remove an endpoint with its secrets."""
    return Done(changed=_noun(caller).remove(webhook_id, reason=action.reason))


def _noun(caller: Any) -> Any:
    return caller.operator.webhooks


def _with_secret(made: WebhookSecret) -> NewSecret:
    shown = Webhook.model_validate(made.endpoint).model_dump()
    return NewSecret(**shown, secret=made.secret)
