"""Find batches in a listing without tags that a create without an answer may have made.

A listing such as Anthropic's shows the creation time, the number of items and, after the batch has
ended, its lines, whose custom ids identify it.
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

# The allowed clock skew when a batch is matched by its creation time.
COUNT_SKEW = timedelta(minutes=2)
# One matching line is proof. A file that cannot be read up to here proves nothing.
MOST_LINES = 20


def find_candidates(
    store: Store, batch: BatchLease, account: Account, since: datetime
) -> tuple[ProviderBatch, ...]:
    """The listed batches that may be this one and are not recorded for another batch."""
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
    # A batch without an item count may match.
    left = {one.provider_batch_id: one for one in seen if one.total in (None, items)}
    return tuple(
        one for name, one in left.items() if name not in known and _may_be_ours(one, batch, account)
    )


def _is_in_time(seen: ProviderBatch, batch: BatchLease) -> bool:
    """Whether a batch was created while this one's create was in flight."""
    if batch.creating_at is None:
        return False
    if seen.created_at is None:
        # A batch without a creation time may match.
        return True
    return batch.creating_at - COUNT_SKEW <= seen.created_at <= batch.now + COUNT_SKEW


def _may_be_ours(seen: ProviderBatch, batch: BatchLease, account: Account) -> bool:
    """Whether the lines of an ended batch have our items; a running batch may match."""
    if not seen.phase.is_over or not seen.result_files:
        return True
    ours = f"hf1_{key_of(batch.id)[:16]}_"
    with reading(account, seen.result_files) as lines:
        for _, line in zip(range(MOST_LINES), lines, strict=False):
            answer = parse_line(account.adapter, line)
            if answer is not None:
                return answer.custom_id.startswith(ours)
    return True
