"""Cleanup of artifacts that expired or were never finished: marked first, erased later.

Every pass is bounded, idempotent and safe to run concurrently. The mark and its audit event commit
before any byte is deleted. Erasing is retried until the bytes are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast.actor import Actor, ActorType
from holdfast.artifacts.audit import record_artifacts
from holdfast.artifacts.blob_store import BlobStore
from holdfast.clock import ms
from holdfast.errors import ArtifactStoreDown
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.query import Statement

SQL = Statements("holdfast.artifacts", "artifact.sql")

MAINTENANCE = Actor(ActorType.SYSTEM, "upkeep")

# Longer than any write should take. After it, an unfinished write is abandoned.
GRACE = timedelta(days=1)
# How long the row of a removed artifact stays readable.
KEEP_ROWS = timedelta(days=90)
PAUSE = timedelta(minutes=5)

OpenBlobs = Callable[[], BlobStore]


def expire_artifacts(store: Store, blobs: OpenBlobs, *, limit: int) -> int:
    """Remove at most *limit* artifacts past their retention; return how many."""
    rows = _mark(store, SQL.expire_artifacts, "expired", limit=limit)
    erase_artifacts(store, blobs, limit=limit)
    return len(rows)


def sweep_artifacts(store: Store, blobs: OpenBlobs, *, limit: int, grace: timedelta = GRACE) -> int:
    """Abandon at most *limit* writes that began more than *grace* ago; return how many.

    Their bytes are erased at once, and again after another *grace*: a stalled writer may have
    continued in between and crashed before it noticed that its row was removed.
    """
    rows = _mark(store, SQL.sweep_artifacts, "abandoned", limit=limit, grace_ms=ms(grace))
    _discard(blobs, rows)
    return len(rows)


def erase_artifacts(store: Store, blobs: OpenBlobs, *, limit: int) -> int:
    """Erase the bytes of at most *limit* removed artifacts; return how many."""
    rows = store.read(lambda tx: tx.many(SQL.list_to_erase, limit=limit))
    gone, stuck = _discard(blobs, rows)
    _say(store, gone, gone=1)
    # Postponed so that it does not block the others, which are retried in the next pass.
    _say(store, stuck, gone=0)
    return len(gone)


def prune_artifacts(store: Store, *, limit: int, keep: timedelta = KEEP_ROWS) -> int:
    """Delete at most *limit* rows whose bytes have been gone for *keep*; return how many."""
    return store.write_one(
        lambda tx: tx.affected(SQL.prune_artifacts, keep_ms=ms(keep), limit=limit)
    )


def _mark(store: Store, statement: Statement, reason: str, **params: int) -> list[Row]:
    def work(tx: Tx) -> list[Row]:
        rows = tx.many(statement, **params)
        about = [(row, {"reason": reason, "sha256": row["sha256"]}) for row in rows]
        record_artifacts(tx, MAINTENANCE, "artifact.removed", about)
        return rows

    return store.write(work)


def _discard(blobs: OpenBlobs, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the erased rows, and the row whose store failed and ended the pass."""
    gone: list[Row] = []
    for row in rows:
        try:
            blobs().discard(row["place"])
        except ArtifactStoreDown:
            return gone, [row]
        gone.append(row)
    return gone, []


def _say(store: Store, rows: Sequence[Row], *, gone: int) -> None:
    if rows:
        erased = [{"org_id": str(row["org_id"]), "id": str(row["id"])} for row in rows]
        store.write_one(
            lambda tx: tx.affected(SQL.mark_erased, erased=erased, gone=gone, pause_ms=ms(PAUSE))
        )
