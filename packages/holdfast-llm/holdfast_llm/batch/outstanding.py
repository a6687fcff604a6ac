"""Pending work of batch processing, for commands."""

from __future__ import annotations

from holdfast.store import Statements, Store

SQL = Statements("holdfast_llm.batch", "tasks.sql")


def count_remaining(store: Store) -> dict[str, int]:
    """The number of jobs that wait to be submitted: due now, and due later."""
    row = store.one(SQL.count_remaining)
    return {"remaining_due": int(row["due"]), "remaining_later": int(row["later"])}


def count_outstanding(store: Store) -> dict[str, int]:
    """The number of batches at a provider, and of their items."""
    row = store.one(SQL.count_outstanding)
    return {"outstanding_batches": int(row["batches"]), "outstanding_items": int(row["items"])}


def poll_now(store: Store) -> int:
    """Make every batch at a provider due for the next collector."""
    return store.execute(SQL.poll_now)
