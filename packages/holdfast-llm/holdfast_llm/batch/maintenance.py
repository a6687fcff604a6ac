"""Maintenance of batch processing: stale claims without a batch, and expired rows.

Batches are kept as long as jobs, counted from their end. Costs are kept forever. Every pass is
bounded and idempotent.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.clock import ms
from holdfast.config import RetentionSettings, Settings
from holdfast.engine.maintenance import RESCUE_LIMIT, grace_of, rescue_jobs
from holdfast.engine.retention import BITE, in_bites
from holdfast.engine.worker.settle_buffer import events_of
from holdfast.event import Events
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast_llm.batch", "maintenance.sql")


def maintain_batches(store: Store, settings: Settings, events: Events) -> None:
    """Run one pass; without work it takes one statement."""
    retention = settings.retention
    keep_ms = ms(timedelta(days=retention.keep_days))
    steps = store.one(SQL.find_maintenance, keep_ms=keep_ms)
    if steps["rescue"]:
        grace = grace_of(store, settings)
        for settled in rescue_jobs(store, limit=RESCUE_LIMIT, grace=grace, find=SQL.find_stale):
            for event in events_of(settled):
                events.emit(event)
    if steps["prune"]:
        in_bites(lambda: prune_batches(store, retention, limit=BITE))


def prune_batches(store: Store, retention: RetentionSettings, *, limit: int) -> int:
    """Delete at most *limit* items of expired batches; then the empty batches.

    A large batch is deleted in pieces. A batch with files at the provider is kept. Kept answers
    have their own retention.
    """
    keep_ms = ms(timedelta(days=retention.keep_days))

    def work(tx: Tx) -> int:
        expired = tx.affected(SQL.prune_answers, limit=limit)
        pruned = tx.affected(SQL.prune_items, keep_ms=keep_ms, limit=limit)
        tx.affected(SQL.prune_batches, keep_ms=keep_ms)
        return max(expired, pruned)

    return store.write(work)
