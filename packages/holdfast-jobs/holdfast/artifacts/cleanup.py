"""The end of artifacts: expired, or begun and never finished. Marked first, erased after.

Every pass is bounded, may be run twice, anywhere, and by many at once. The mark is committed with
its audit before a byte is touched; erasing is tried again until the bytes are gone.
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

# Longer than any writing should take: after it, what is still being written is given up.
GRACE = timedelta(days=1)
# How long the row of a removed artifact stays, so that people can see what there was.
KEEP_ROWS = timedelta(days=90)
PAUSE = timedelta(minutes=5)

OpenBlobs = Callable[[], BlobStore]


def expire_artifacts(store: Store, blobs: OpenBlobs, *, limit: int) -> int:
    """Remove what was kept long enough, at most *limit*; say how many."""
    rows = _mark(store, SQL.expire_artifacts, "expired", limit=limit)
    erase_artifacts(store, blobs, limit=limit)
    return len(rows)


def sweep_artifacts(store: Store, blobs: OpenBlobs, *, limit: int, grace: timedelta = GRACE) -> int:
    """Give up writings that began more than *grace* ago, at most *limit*; say how many.

    Their bytes are taken away at once, and once more a grace later: a writer that was frozen may
    have gone on in between and died before it learned that its row is gone.
    """
    rows = _mark(store, SQL.sweep_artifacts, "abandoned", limit=limit, grace_ms=ms(grace))
    _discard(blobs, rows)
    return len(rows)


def erase_artifacts(store: Store, blobs: OpenBlobs, *, limit: int) -> int:
    """Take away the bytes of removed artifacts, at most *limit* of them; say how many."""
    rows = store.read(lambda tx: tx.many(SQL.list_to_erase, limit=limit))
    gone, stuck = _discard(blobs, rows)
    _say(store, gone, gone=1)
    # Out of the way of the others, which are tried at the next pass.
    _say(store, stuck, gone=0)
    return len(gone)


def prune_artifacts(store: Store, *, limit: int, keep: timedelta = KEEP_ROWS) -> int:
    """Delete rows whose bytes have been gone for *keep*, at most *limit*; say how many."""
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
    """Those whose bytes are gone, and the one that could not be reached and ended the pass."""
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
