"""Deliveries: list them, inspect their attempts, and decide about held and failed ones."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.page import NEWEST

router = Resource("deliveries")

Text = Annotated[str | None, Query(min_length=1, max_length=200)]


class DeliveryItem(Model):
    """A message to a recipient and its state; no address and no text."""

    id: str
    org_id: str
    subject: str
    recipient: str
    version: int
    channel: str
    is_required: bool
    state: str
    reason: str | None
    job_id: str | None
    deliver_job_id: str | None
    notification_id: str | None
    notified_at: datetime | None
    confirmed_by: str | None
    attempts: int
    first_sent_at: datetime | None
    reconciled_at: datetime | None
    not_before_at: datetime | None
    request_id: str
    correlation_id: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class AttemptItem(Model):
    """One attempt to send."""

    number: int
    reason: str
    worker_id: str
    began_at: datetime
    ended_at: datetime | None
    phase: str | None
    outcome: str | None
    code: str | None
    provider_id: str | None


class EvidenceItem(Model):
    """What the channel or an operator said about earlier attempts."""

    source: str
    verdict: str
    after_attempt: int
    provider_id: str | None
    code: str | None
    at: datetime


class DeliveryDetail(Model):
    """A delivery with its attempts and the evidence about them."""

    delivery: DeliveryItem
    attempts: list[AttemptItem]
    evidence: list[EvidenceItem]


class Confirmation(Body):
    """Confirms that a delivery arrived; *provider_id* is its id at the channel, if known."""

    reason: Reason
    provider_id: str | None = Field(default=None, min_length=1, max_length=300)


@router.read("", operation_id="list_deliveries", as_tenant=True)
def list_deliveries(
    caller: CallerOf,
    org_id: NamedId | None = None,
    state: Text = None,
    channel: Text = None,
    reason: Text = None,
    recipient: Text = None,
    subject: Text = None,
    job_id: UUID | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    with_ended: bool = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[DeliveryItem]:
    """List deliveries, newest first; by default only those that have not ended."""
    tenant, job = (None if found is None else str(found) for found in (org_id, job_id))
    wanted = DeliveryFilter(tenant, state, channel, reason, recipient, subject, job, since, until)
    pages = caller.pages("deliveries", wanted=repr(wanted), with_ended=with_ended)
    found = caller.operator.deliveries.list(
        wanted, with_ended=with_ended, limit=limit, before=pages.start(cursor, NEWEST)
    )
    return Listing[DeliveryItem].model_validate(pages.page(found, DeliveryItem.model_validate))


@router.read("/{delivery_id}", operation_id="get_delivery", as_tenant=True)
def get_delivery(delivery_id: str, caller: CallerOf) -> DeliveryDetail:
    """Return a delivery with its attempts and evidence."""
    view = caller.operator.deliveries.show(delivery_id)
    return DeliveryDetail.model_validate(
        {
            "delivery": DeliveryItem.model_validate(view.delivery),
            "attempts": [AttemptItem.model_validate(one) for one in view.attempts],
            "evidence": [EvidenceItem.model_validate(one) for one in view.evidence],
        }
    )


@router.write("/{delivery_id}/confirm", operation_id="confirm_delivery")
def confirm_delivery(delivery_id: str, decision: Confirmation, caller: CallerOf) -> DeliveryItem:
    """Confirm that a delivery arrived: it is not sent again."""
    found = caller.operator.deliveries.confirm(
        delivery_id, reason=decision.reason, provider_id=decision.provider_id
    )
    return DeliveryItem.model_validate(found)


@router.write("/{delivery_id}/resend", operation_id="resend_delivery")
def resend_delivery(delivery_id: str, action: Action, caller: CallerOf) -> DeliveryItem:
    """Send a delivery again, regardless of earlier attempts."""
    found = caller.operator.deliveries.resend(delivery_id, reason=action.reason)
    return DeliveryItem.model_validate(found)


@router.write("/{delivery_id}/drop", operation_id="drop_delivery")
def drop_delivery(delivery_id: str, action: Action, caller: CallerOf) -> DeliveryItem:
    """Do not send a delivery."""
    found = caller.operator.deliveries.drop(delivery_id, reason=action.reason)
    return DeliveryItem.model_validate(found)
