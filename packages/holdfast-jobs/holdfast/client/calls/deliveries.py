"""Calls about deliveries. Written by tools/client_code.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from holdfast.client.calls.shared import BulkActionView, BulkPlan
from holdfast.client.models import read, read_either
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
class DeliveryItem:
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


@dataclass(frozen=True, slots=True)
class DeliveryDetail:
    """A delivery with its attempts and the evidence about them."""

    delivery: DeliveryItem
    attempts: tuple[AttemptItem, ...]
    evidence: tuple[EvidenceItem, ...]


@dataclass(frozen=True, slots=True)
class AttemptItem:
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


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """What the channel or an operator said about earlier attempts."""

    source: str
    verdict: str
    after_attempt: int
    provider_id: str | None
    code: str | None
    at: datetime


class DeliveryConditions(TypedDict, total=False):
    """Which deliveries. At least one condition is required."""

    org_id: str | None
    state: str | None
    channel: str | None
    reason: str | None
    recipient: str | None
    subject: str | None


def act_on_deliveries(
    *,
    reason: str,
    action: str,
    filter: DeliveryConditions,
    dry_run: bool | NotGiven = NOT_GIVEN,
    expected: int | NotGiven | None = NOT_GIVEN,
    tolerance: int | NotGiven = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[BulkPlan | BulkActionView]:
    """Confirm, resend or drop every held or failed delivery that matches: a dry run, then a job."""
    return Call(
        "act_on_deliveries",
        "POST",
        "/v1/deliveries/bulk",
        lambda found: read_either(BulkPlan, BulkActionView, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given(
            {
                "reason": reason,
                "dry_run": dry_run,
                "expected": expected,
                "tolerance": tolerance,
                "action": action,
                "filter": filter,
            }
        ),
    )


def list_deliveries(
    *,
    org_id: str | None = None,
    state: str | None = None,
    channel: str | None = None,
    reason: str | None = None,
    recipient: str | None = None,
    subject: str | None = None,
    job_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    with_ended: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[DeliveryItem]]:
    """List deliveries, newest first; by default only those that have not ended."""
    return Call(
        "list_deliveries",
        "GET",
        "/v1/deliveries",
        lambda found: read_page(DeliveryItem, found),
        query={
            "org_id": org_id,
            "state": state,
            "channel": channel,
            "reason": reason,
            "recipient": recipient,
            "subject": subject,
            "job_id": job_id,
            "since": since,
            "until": until,
            "with_ended": with_ended,
            "limit": limit,
            "cursor": cursor,
        },
    )


def get_delivery(delivery_id: str) -> Call[DeliveryDetail]:
    """Return a delivery with its attempts and evidence."""
    return Call(
        "get_delivery",
        "GET",
        "/v1/deliveries/{delivery_id}",
        lambda found: read(DeliveryDetail, found),
        names={"delivery_id": delivery_id},
    )


def confirm_delivery(
    delivery_id: str, *, reason: str, provider_id: str | NotGiven | None = NOT_GIVEN
) -> Call[DeliveryItem]:
    """Confirm that a delivery arrived: it is not sent again."""
    return Call(
        "confirm_delivery",
        "POST",
        "/v1/deliveries/{delivery_id}/confirm",
        lambda found: read(DeliveryItem, found),
        names={"delivery_id": delivery_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason, "provider_id": provider_id}),
    )


def resend_delivery(delivery_id: str, *, reason: str) -> Call[DeliveryItem]:
    """Send a delivery again, regardless of earlier attempts."""
    return Call(
        "resend_delivery",
        "POST",
        "/v1/deliveries/{delivery_id}/resend",
        lambda found: read(DeliveryItem, found),
        names={"delivery_id": delivery_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def drop_delivery(delivery_id: str, *, reason: str) -> Call[DeliveryItem]:
    """Do not send a delivery."""
    return Call(
        "drop_delivery",
        "POST",
        "/v1/deliveries/{delivery_id}/drop",
        lambda found: read(DeliveryItem, found),
        names={"delivery_id": delivery_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
