"""Calls about batches. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping
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
class Batch:
    """A batch at a provider. It has no text of requests and answers."""

    id: str
    account: str
    provider: str
    adapter_kind: str
    model: str
    execution_mode: str
    state: str
    items: int
    bytes: int
    input_tokens: int
    provider_batch_id: str | None
    provider_status: str | None
    error_class: str | None
    error_code: str | None
    next_at: datetime
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    created_at: datetime
    submitted_at: datetime | None
    ended_at: datetime | None
    collected_at: datetime | None


@dataclass(frozen=True, slots=True)
class BatchDetail:
    """A batch, its item counts by state, and a page of items."""

    batch: Batch
    counts: Mapping[str, int]
    items: tuple[BatchItem, ...]


@dataclass(frozen=True, slots=True)
class BatchItem:
    """An item of a batch and its outcome."""

    batch_item_index: int
    org_id: str
    job_id: str
    job_type: str
    attempt: int
    state: str
    error_class: str | None
    error_code: str | None
    submitted_at: datetime | None
    finished_at: datetime | None
    recorded_at: datetime | None


def list_batches(
    *,
    state: str | None = None,
    mode: str | None = None,
    with_ended: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Batch]]:
    """List batches, newest first. For keys of operations."""
    return Call(
        "list_batches",
        "GET",
        "/v1/batches",
        lambda found: read_page(Batch, found),
        query={
            "state": state,
            "mode": mode,
            "with_ended": with_ended,
            "limit": limit,
            "cursor": cursor,
        },
    )


def get_batch(
    batch_id: str, *, limit: int | None = None, after: int | None = None
) -> Call[BatchDetail]:
    """Return a batch with a page of its items."""
    return Call(
        "get_batch",
        "GET",
        "/v1/batches/{batch_id}",
        lambda found: read(BatchDetail, found),
        names={"batch_id": batch_id},
        query={"limit": limit, "after": after},
    )


def cancel_batch(batch_id: str, *, reason: str) -> Call[Batch]:
    """Cancel a batch at the provider; finished items are collected."""
    return Call(
        "cancel_batch",
        "POST",
        "/v1/batches/{batch_id}/cancel",
        lambda found: read(Batch, found),
        names={"batch_id": batch_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def release_batch(batch_id: str, *, reason: str) -> Call[Batch]:
    """Requeue the jobs of a quarantined batch that the provider does not have."""
    return Call(
        "release_batch",
        "POST",
        "/v1/batches/{batch_id}/release",
        lambda found: read(Batch, found),
        names={"batch_id": batch_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def adopt_batch(
    batch_id: str, *, reason: str, provider_batch_id: str | NotGiven | None = NOT_GIVEN
) -> Call[Batch]:
    """Collect a quarantined batch that exists at the provider."""
    return Call(
        "adopt_batch",
        "POST",
        "/v1/batches/{batch_id}/adopt",
        lambda found: read(Batch, found),
        names={"batch_id": batch_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason, "provider_batch_id": provider_batch_id}),
    )
