"""Unanswered: items of a batch that exists and is given up. They may have been run and billed."""

from __future__ import annotations

from holdfast.store import Tx
from holdfast_llm.batch.cost import CallEntry, CallKind, record_calls
from holdfast_llm.batch.intent import SQL, Intent
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.price import Prices


def record_unanswered(tx: Tx, lane: BatchLane, intent: Intent, last: int) -> None:
    """Put the open items up to *last* into the ledger, each with what it may have cost at most."""
    if intent.provider_batch_id is None:
        # Nothing is known to exist. If something does, the sweep finds it and what it cost.
        return
    entries = [
        CallEntry(
            org_id=str(row["org_id"]),
            batch_id=intent.id,
            batch_item_index=row["batch_item_index"],
            provider_batch_id=intent.provider_batch_id,
            kind=CallKind.UNKNOWN,
            account=intent.account,
            group_key=row["group_key"],
            job_id=str(row["job_id"]),
            job_type=row["job_type"],
            attempt=row["attempt"],
            at_most_pico=row["reserve_pico"],
        )
        for row in tx.many(SQL.list_unanswered, batch_id=intent.id, last=last)
    ]
    record_calls(tx, Prices(lane.settings.prices), entries)
