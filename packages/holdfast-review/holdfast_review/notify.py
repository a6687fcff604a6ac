"""The last stage: puts all messages into the outbox and waits until they are delivered.

One transaction fixes the findings and the recipients, adds a message for every recipient to the
outbox, and deletes their addresses from the review. The outbox sends the messages. The stage
snoozes, without counting attempts, until the deliveries of all required recipients are marked. It
fails only if one of them can never be delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.context import Context
from holdfast.errors import Snooze
from holdfast.outbox.delivery import Content, State
from holdfast.outbox.intend import Intended, OutgoingMessage
from holdfast.store import Row, Statements, Tx
from holdfast_review import show
from holdfast_review.failure import (
    RecipientUnreachable,
    ReviewErased,
    ReviewOvertaken,
    ReviewUnfit,
)
from holdfast_review.model import Review
from holdfast_review.render import render
from holdfast_review.show import Told

SQL = Statements("holdfast_review", "notify.sql")

# A recipient is being erased concurrently.
GLANCE = timedelta(seconds=5)
# The maximum of deliveries in a dead letter; the review lists the others.
MOST_NAMED = 5
# The delivery may still be marked.
OPEN = (State.PENDING, State.HELD)


def notify(hf: Holdfast, job: Context, review: Review) -> dict[str, Any]:
    """Notify every recipient; return the result when all required ones are notified."""
    _intend(hf, job, review)
    pending = [one.delivery_id for one in _look(hf, review) if one.state == State.PENDING]
    ids = [one for one in pending if one is not None]
    if ids:
        hf.outbox.deliver(ids, org_id=review.org_id, worker_id=job.job.claimed_by)
    if show.find_review(hf.store, org_id=review.org_id, review_id=review.review_id).is_erased:
        raise ReviewErased(review_id=review.review_id)
    _wait(hf, job, _look(hf, review))
    return finish_review(review, _look(hf, review))


def _wait(hf: Holdfast, job: Context, told: Sequence[Told]) -> None:
    """Raise Snooze while the outbox or an operator may still deliver to a required recipient."""
    open_ones = [one for one in told if one.is_required and one.state in OPEN]
    if any(one.delivery_id is None for one in open_ones):
        raise Snooze(GLANCE)
    hf.outbox.wait_for(job, [one.delivery_id for one in open_ones if one.delivery_id is not None])


def _look(hf: Holdfast, review: Review) -> tuple[Told, ...]:
    return hf.store.read(lambda tx: show.read_told(tx, review))


def _intend(hf: Holdfast, job: Context, review: Review) -> None:
    """Add messages for recipients that have none to the outbox, and delete their addresses."""
    ids = {"org_id": review.org_id, "review_id": review.review_id}

    def fix(tx: Tx) -> list[Intended]:
        job.check_lease(tx)
        tx.maybe(SQL.hold_changelist, org_id=review.org_id, changelist_id=review.changelist_id)
        if show.read_review(tx, **ids).is_overtaken:
            raise ReviewOvertaken(review_id=review.review_id)
        fixed = tx.maybe(SQL.mark_intended, **ids)
        if fixed is None:
            if show.read_review(tx, **ids).is_erased:
                raise ReviewErased(review_id=review.review_id)
            raise ReviewUnfit(review_id=review.review_id, missing="findings")
        rows = tx.many(SQL.list_addressed, **ids)
        if not rows:
            return []
        fresh = show.read_review(tx, **ids)
        content = render(fresh, fixed["summary"] or "", show.read_findings(tx, review))
        intents = [_intent(review, row, content) for row in rows]
        told = [{"recipient": row["recipient"]} for row in rows]
        tx.affected(SQL.forget_addresses, told=told, **ids)
        return hf.outbox.enlist(tx, intents, org_id=review.org_id)

    hf.outbox.emit_events(hf.store.write(fix))


def _intent(review: Review, row: Row, content: Content) -> OutgoingMessage:
    return OutgoingMessage(
        subject=review.subject,
        recipient=row["recipient"],
        version=review.review_version,
        channel=row["channel"],
        address=row["address"],
        content=content,
        is_required=bool(row["is_required"]),
    )


def finish_review(review: Review, told: Sequence[Told]) -> dict[str, Any]:
    """Return the result once all required recipients are notified; otherwise raise the reason."""
    missing = [one for one in told if one.is_required and one.notified_at is None]
    if missing:
        named = ",".join(one.delivery_id or "" for one in missing[:MOST_NAMED])
        raise RecipientUnreachable(
            review_id=review.review_id, missing=len(missing), deliveries=named
        )
    return {
        "review_id": review.review_id,
        "finding_count": review.finding_count,
        "recipients": len(told),
        "notified": sum(one.notified_at is not None for one in told),
    }
