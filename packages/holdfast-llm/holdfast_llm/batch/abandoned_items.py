"""Items of an abandoned batch that exists at the provider. They may have been billed."""

from __future__ import annotations

from holdfast.store import Statements, Tx
from holdfast_llm.batch.cost import CallEntry, CallKind, record_calls
from holdfast_llm.batch.lease import BatchLease
from holdfast_llm.batch.price import Prices

SQL = Statements("holdfast_llm.batch", "submit.sql")


def record_abandoned_items(tx: Tx, prices: Prices, batch: BatchLease, last: int) -> None:
    """Record the open items up to *last* in the ledger, each with its maximum cost."""
    if batch.provider_batch_id is None:
        # No batch is known to exist. If there is one, cancel_orphan_batches records its cost.
        return
    entries = [
        CallEntry(
            org_id=str(row["org_id"]),
            batch_id=batch.id,
            batch_item_index=row["batch_item_index"],
            provider_batch_id=batch.provider_batch_id,
            kind=CallKind.UNKNOWN,
            account=batch.account,
            group_key=row["group_key"],
            job_id=str(row["job_id"]),
            job_type=row["job_type"],
            attempt=row["attempt"],
            at_most_pico=row["reserve_pico"],
        )
        for row in tx.many(SQL.list_unanswered, batch_id=batch.id, last=last)
    ]
    record_calls(tx, prices, entries)
