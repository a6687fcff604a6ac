"""Retention of texts: originals and rewrites have separate retention periods.

Only requests that have ended lose their original. The pass is bounded and idempotent.
"""

from __future__ import annotations

from holdfast.actor import Actor, ActorType
from holdfast.engine.audit import record_actions
from holdfast.store import Store, Tx
from holdfast_rewrite.erase import SQL, deed_of, ids_of
from holdfast_rewrite.settings import RewriteSettings

RETENTION = Actor(ActorType.SYSTEM, "rewrite_retention")
_DAY_MS = 86_400_000


def count_overdue(store: Store, settings: RewriteSettings, *, most: int) -> int:
    """Count the expired texts, up to twice *most*."""
    params = _lengths(settings)
    return int(store.read(lambda tx: tx.one(SQL.count_overdue, most=most, **params))["texts"])


def forget_once(store: Store, settings: RewriteSettings, *, limit: int) -> int:
    """Erase up to *limit* expired texts of both kinds; return how many."""
    lengths = _lengths(settings)

    def work(tx: Tx) -> int:
        originals = tx.many(
            SQL.list_overdue_originals, limit=limit, original_ms=lengths["original_ms"]
        )
        rewritten = tx.many(
            SQL.list_overdue_rewritten,
            limit=limit - len(originals),
            rewritten_ms=lengths["rewritten_ms"],
        )
        if originals:
            gone = ids_of(originals)
            tx.affected(SQL.forget_requests, gone=gone)
            tx.affected(SQL.erase_messages, gone=gone)
        if rewritten:
            tx.affected(SQL.erase_outputs, gone=ids_of(rewritten))
        told = [(row, "original") for row in originals] + [(row, "rewritten") for row in rewritten]
        record_actions(
            tx, [deed_of(row, RETENTION, "rewrite_forgotten", {"text": kind}) for row, kind in told]
        )
        return len(told)

    return store.write(work)


def _lengths(settings: RewriteSettings) -> dict[str, int]:
    return {
        "original_ms": settings.keep_original_days * _DAY_MS,
        "rewritten_ms": settings.keep_rewritten_days * _DAY_MS,
    }
