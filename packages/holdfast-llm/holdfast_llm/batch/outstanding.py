"""What the batch lane has not done yet, for a person who asks for it by hand."""

from __future__ import annotations

from holdfast.store import Statements, Store

SQL = Statements("holdfast_llm.batch", "tasks.sql")


def count_remaining(store: Store) -> dict[str, int]:
    """The jobs that wait to be submitted: those that are due, and those whose time comes later."""
    row = store.one(SQL.count_remaining)
    return {"remaining_due": int(row["due"]), "remaining_later": int(row["later"])}


def count_outstanding(store: Store) -> dict[str, int]:
    """The batches that are at a provider, and their items."""
    row = store.one(SQL.count_outstanding)
    return {"outstanding_batches": int(row["batches"]), "outstanding_items": int(row["items"])}


def poll_now(store: Store) -> int:
    """Let the next collector ask about every batch at a provider, whenever its poll was due."""
    return store.execute(SQL.poll_now)
