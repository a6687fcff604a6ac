"""Batches and costs over HTTP."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.page import NEWEST
from holdfast_llm.operate.batches import BatchFilter
from holdfast_llm.operate.costs import CostFilter

router = APIRouter()
batches = Resource("batches")
costs = Resource("costs")

Text = Annotated[str | None, Query(min_length=1, max_length=200)]


class Batch(Model):
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


class BatchItem(Model):
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


class BatchDetail(Model):
    """A batch, its item counts by state, and a page of items."""

    batch: Batch
    counts: dict[str, int]
    items: list[BatchItem]


class Adoption(Body):
    """Confirms that a batch exists at the provider."""

    reason: Reason
    provider_batch_id: str | None = Field(default=None, min_length=1, max_length=200)


class CostRow(Model):
    """The cost of a group of calls, in US dollars as text to keep every digit."""

    group: dict[str, str]
    calls: int
    unpriced: int
    unknown: int
    orphans: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_usd: str | None
    at_most_usd: str
    compared: int
    direct_usd: str | None
    saved_usd: str | None


class CostSummary(Model):
    """The costs of some days, the most expensive group first, and their total."""

    since: date
    until: date
    by: list[str]
    groups: list[CostRow]
    total: CostRow


@batches.read("", operation_id="list_batches")
def list_batches(
    caller: CallerOf,
    state: Text = None,
    mode: Text = None,
    with_ended: bool = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[Batch]:
    """List batches, newest first. For keys of operations."""
    pages = caller.pages("batches", state=state, mode=mode, with_ended=with_ended)
    found = caller.operator.batches.list(
        BatchFilter(state, mode),
        with_ended=with_ended,
        limit=limit,
        before=pages.start(cursor, NEWEST),
    )
    return Listing[Batch].model_validate(pages.page(found, Batch.model_validate))


@batches.read("/{batch_id}", operation_id="get_batch")
def get_batch(
    batch_id: str,
    caller: CallerOf,
    limit: Limit = 50,
    after: Annotated[int, Query(ge=-1, le=2**31 - 1, description="Index of an item.")] = -1,
) -> BatchDetail:
    """Return a batch with a page of its items."""
    return BatchDetail.model_validate(
        caller.operator.batches.show(batch_id, limit=limit, after=after)
    )


@batches.write("/{batch_id}/cancel", operation_id="cancel_batch")
def cancel_batch(batch_id: str, action: Action, caller: CallerOf) -> Batch:
    """Cancel a batch at the provider; finished items are collected."""
    return Batch.model_validate(caller.operator.batches.cancel(batch_id, reason=action.reason))


@batches.write("/{batch_id}/release", operation_id="release_batch")
def release_batch(batch_id: str, action: Action, caller: CallerOf) -> Batch:
    """Requeue the jobs of a quarantined batch that the provider does not have."""
    return Batch.model_validate(caller.operator.batches.release(batch_id, reason=action.reason))


@batches.write("/{batch_id}/adopt", operation_id="adopt_batch")
def adopt_batch(batch_id: str, adoption: Adoption, caller: CallerOf) -> Batch:
    """Collect a quarantined batch that exists at the provider."""
    found = caller.operator.batches.adopt(
        batch_id, reason=adoption.reason, provider_batch_id=adoption.provider_batch_id
    )
    return Batch.model_validate(found)


@costs.read("", operation_id="get_costs")
def get_costs(
    caller: CallerOf,
    by: Annotated[list[str] | None, Query(max_length=10)] = None,
    since: date | None = None,
    until: date | None = None,
    org_id: NamedId | None = None,
) -> CostSummary:
    """Report the cost of model calls. A key of a tenant sees its own."""
    wanted = CostFilter(since=since, until=until, org_id=org_id)
    if by is not None:
        wanted = CostFilter(tuple(by), since, until, org_id)
    return CostSummary.model_validate(caller.operator.costs.report(wanted))


router.include_router(batches)
router.include_router(costs)
