"""Candidates: which batches of a listing without names may be the one that a lost create made.

A listing such as Anthropic's shows when a batch was made, how many items it has, and once it has
ended its lines, whose custom ids say whose it is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.store import Statements, Store, Tx
from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.lease import BatchLease
from holdfast_llm.batch.read import parse_line, reading
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import ProviderBatch

SQL = Statements("holdfast_llm.batch", "submit.sql")

# How far the clocks may be off where a batch is found by its time.
COUNT_SKEW = timedelta(minutes=2)
# One line of ours says it; a file that cannot be read so far says nothing.
MOST_LINES = 20


def find_candidates(
    store: Store, batch: BatchLease, account: Account, since: datetime
) -> tuple[ProviderBatch, ...]:
    """The listed batches that may be this one and are no other batch of ours."""
    listed = account.adapter.scan(account.client, since)
    seen = [one for one in listed if _is_in_time(one, batch)]

    def work(tx: Tx) -> tuple[int, set[str]]:
        names = [{"provider_batch_id": one.provider_batch_id} for one in seen]
        known = set()
        if names:
            rows = tx.many(SQL.list_recorded, account=account.key, names=names)
            known = {row["provider_batch_id"] for row in rows}
        return tx.one(SQL.count_open, batch_id=batch.id)["items"], known

    items, known = store.read(work)
    # What does not say how many items it has may be ours.
    left = {one.provider_batch_id: one for one in seen if one.total in (None, items)}
    return tuple(
        one for name, one in left.items() if name not in known and _may_be_ours(one, batch, account)
    )


def _is_in_time(seen: ProviderBatch, batch: BatchLease) -> bool:
    """Whether a batch was made while this one's create was under way."""
    if batch.creating_at is None:
        return False
    if seen.created_at is None:
        # What does not say when it was made proves nothing.
        return True
    return batch.creating_at - COUNT_SKEW <= seen.created_at <= batch.now + COUNT_SKEW


def _may_be_ours(seen: ProviderBatch, batch: BatchLease, account: Account) -> bool:
    """Whether the lines of an ended batch name our items; one that runs may be ours."""
    if not seen.phase.is_over or not seen.result_files:
        return True
    ours = f"hf1_{key_of(batch.id)[:16]}_"
    with reading(account, seen.result_files) as lines:
        for _, line in zip(range(MOST_LINES), lines, strict=False):
            answer = parse_line(account.adapter, line)
            if answer is not None:
                return answer.custom_id.startswith(ours)
    return True
