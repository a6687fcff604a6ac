"""The job of a bulk action. Every application declares its type, so that any worker runs it.

A page, its checkpoint and its progress are one transaction under the lease of the job. So an
interrupted job continues with the next page, and a worker that lost the lease writes nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.actor import Actor
from holdfast.document import canonical, decode
from holdfast.engine.context import Context
from holdfast.engine.handler import make_handler, plain_stage
from holdfast.engine.job import MAINTENANCE_QUEUE, Priority
from holdfast.engine.result import document
from holdfast.errors import AuthDenied, QueueFull, Snooze
from holdfast.store import Statements, Store, Tx

if TYPE_CHECKING:
    from holdfast.operate.bulk_action import BulkProgress
    from holdfast.operate.bulk_page import BulkPage, BulkPages
    from holdfast.operate.operated_app import OperatedApp

SQL = Statements("holdfast.engine", "job.sql")

JOB_TYPE = "operate.bulk_action"
QUEUE = MAINTENANCE_QUEUE
# A replay waits this long for a full queue.
FULL_SECONDS = 10


def declare_bulk_actions(app: OperatedApp) -> None:
    """Declare the job type of bulk actions."""
    kind = app.registry.category("general")

    def perform(job: Context, payload: Mapping[str, Any]) -> Mapping[str, int]:
        return perform_action(app, job, payload)

    stage = plain_stage(perform, category=kind, max_attempts=None, retry=None, timeout=None)
    app.registry.add(
        make_handler(
            JOB_TYPE,
            [stage],
            category=kind,
            queue=QUEUE,
            priority=Priority.HIGH,
        )
    )


def perform_action(app: OperatedApp, job: Context, payload: Mapping[str, Any]) -> Mapping[str, int]:
    """Act on page after page, in the role of the person who asked; return the counts."""
    from holdfast.operate.authorization import OperatorContext
    from holdfast.operate.bulk_action import BulkProgress, StoredAction

    if not is_signed(app.store, job.org_id, job.actor, payload):
        raise AuthDenied("The payload was not written by the operator API.")
    stored = StoredAction.from_payload(payload)
    context = OperatorContext(app, job.actor, stored.role, stored.org_id)
    pages = stored.request.pages(context, {"bulk_action": job.id})
    progress = BulkProgress(stored.start)
    while progress.cursor is not None:
        try:
            progress, page = _act(job, pages, progress, stored.ready)
        except QueueFull:
            raise Snooze(timedelta(seconds=FULL_SECONDS)) from None
        if page is not None:
            page.announce()
        job.raise_if_canceled()
    pages.finish()
    return progress.counts


def sign(store: Store, org_id: str, actor: Actor, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload with a signature of this database.

    The payload names a role, and anyone who may enqueue could write one.
    """
    return {**payload, "signature": _signature(store, org_id, actor, payload)}


def is_signed(store: Store, org_id: str, actor: Actor, payload: Mapping[str, Any]) -> bool:
    """Whether :func:`sign` wrote this payload, for this tenant and actor."""
    signed = {name: value for name, value in payload.items() if name != "signature"}
    wanted = _signature(store, org_id, actor, signed)
    return hmac.compare_digest(wanted, str(payload.get("signature")))


def _signature(store: Store, org_id: str, actor: Actor, payload: Mapping[str, Any]) -> str:
    from holdfast.operate.access import signing_key

    text = canonical([org_id, actor.type, actor.id, dict(payload)])
    return hmac.digest(signing_key(store, JOB_TYPE), text.encode(), "sha256").hex()


def _act(
    job: Context, pages: BulkPages, progress: BulkProgress, total: int
) -> tuple[BulkProgress, BulkPage | None]:
    """Act on one page in one transaction with its checkpoint."""

    def work(tx: Tx) -> tuple[BulkProgress, BulkPage | None]:
        assert progress.cursor is not None
        # An earlier attempt did this page, or this transaction, whose COMMIT got no reply.
        known = _saved(tx, job)
        if known is not None and known != progress:
            return known, None
        page = pages.act(tx, progress.cursor)
        after = progress.after(page.next, page.counts)
        says = {"done": after.done, "total": max(total, after.done), "note": pages.name}
        job.save_in(tx, checkpoint=document(after.document()), progress=document(says))
        return after, page

    return job.session.write(work)


def _saved(tx: Tx, job: Context) -> BulkProgress | None:
    from holdfast.operate.bulk_action import BulkProgress

    rows = tx.many(SQL.list_stages, jobs=[{"org_id": job.org_id, "id": job.id}])
    saved = [row["checkpoint"] for row in rows if row["checkpoint"] is not None]
    return BulkProgress.from_document(decode(saved[0])) if saved else None
