"""Shared data of the tests about money: prices, items of a batch, entries of the ledger."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from holdfast.store import Store, Tx
from holdfast.store.query import Statement
from holdfast_llm.batch.cost import CallEntry, CallKind
from holdfast_llm.provider.reply import Usage
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_llm.settings import PriceSettings
from tests.story import ORG, by_hand

BATCH = "0198c0de-0000-7000-8000-0000000000b1"
JOB = "0198c0de-0000-7000-8000-0000000000c1"
ACCOUNT = "openai|openai_responses|https://api.openai.com/v1|abc123def456"
ROUTE = Route("openai", "openai_responses", "m1", source_locale="en", target_locale="es")
# A million input tokens cost a dollar by batch and two by a call; output tokens four and eight.
PRICES = tuple(
    PriceSettings(
        provider="openai",
        model="m*",
        mode=mode,
        valid_from=date(2026, 1, 1),
        input=Decimal(times),
        output=Decimal(4 * times),
    )
    for mode, times in (("batch", 1), ("async", 2))
)


def call(number: int = 0, route: Route = ROUTE, **more: Any) -> CallEntry:
    """An entry of an item with 1,000 input and 100 output tokens: 1,400 millionths of a dollar."""
    given = {
        "org_id": ORG,
        "batch_id": BATCH,
        "batch_item_index": number,
        "provider_batch_id": "batch_1" if route.execution_mode is ExecutionMode.BATCH else "",
        "kind": CallKind.ACTUAL,
        "account": ACCOUNT,
        "group_key": route.group_key,
        "usage": Usage(input=1000, output=100),
        "job_id": JOB,
        "job_type": "text.rewrite",
        "attempt": 1,
    }
    return CallEntry(**{**given, **more})


def put_open_item(store: Store, number: int, reserve_pico: int | None) -> None:
    """An item in flight, as a submitter stores it."""
    store.write(lambda tx: store_item(tx, number, reserve_pico))


def store_item(tx: Tx, number: int, reserve_pico: int | None) -> None:
    tx.many(_PUT_BATCH, batch_id=BATCH)
    tx.many(
        _PUT_ITEM,
        batch_id=BATCH,
        number=number,
        org_id=ORG,
        job_id=JOB,
        name=f"i{number}",
        reserve_pico=reserve_pico,
    )


def _put(text: str) -> Statement:
    return Statement("put", "many", "", text, frozenset())


_PUT_BATCH = _put(
    "INSERT INTO holdfast.provider_batch (id, account, provider, adapter_kind, model,"
    " execution_mode, group_key, state, items, bytes, input_tokens, next_at, created_at,"
    " updated_at)"
    " VALUES (:batch_id, 'a', 'openai', 'k', 'm1', 'batch', 'g', 'prepared', 1, 0, 0, {now},"
    " {now}, {now}) ON CONFLICT DO NOTHING RETURNING id"
)
_PUT_ITEM = _put(
    "INSERT INTO holdfast.batch_item (batch_id, batch_item_index, org_id, job_id, job_type,"
    " execution_mode, unit, attempt, lease_token, custom_id, echo, group_key, input_tokens,"
    " reserve_pico, created_at)"
    " VALUES (:batch_id, :number, :org_id, :job_id, 't', 'batch', :name, 1, 1, :name, 'e', 'g',"
    " 0, :reserve_pico, {now}) RETURNING batch_id"
)


def end_item(store: Store, number: int) -> None:
    by_hand(
        store,
        "UPDATE holdfast.batch_item SET state = 'succeeded', is_open = 0, recorded_at = {now}"
        " WHERE batch_id = :batch_id AND batch_item_index = :number RETURNING batch_id",
        batch_id=BATCH,
        number=number,
    )
