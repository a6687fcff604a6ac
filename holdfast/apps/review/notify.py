"""Notify: the last stage. Everybody is put into the outbox at once, then served; done is all told.

In one transaction it is fixed what is told and to whom, the message of every recipient is put into
the outbox, and their addresses are let go. What is sent is the outbox's business. Afterwards the
stage looks at how the deliveries stand: a required recipient who has not been told keeps the review
from success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.apps.review import show
from holdfast.apps.review.failure import (
    DeliveryHeld,
    DeliveryPending,
    RecipientUnreachable,
    ReviewErased,
    ReviewOvertaken,
    ReviewUnfit,
)
from holdfast.apps.review.model import Review
from holdfast.apps.review.render import render
from holdfast.apps.review.show import Told
from holdfast.engine.execute import Context
from holdfast.errors import Snooze
from holdfast.holdfast import Holdfast
from holdfast.outbox.delivery import Content, State
from holdfast.outbox.intend import Intended, Intent
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.apps.review", "notify.sql")

# Another worker is at a delivery, or it waits without saying until when.
GLANCE = timedelta(seconds=5)
# So many deliveries are named in a dead letter; the others are with the review.
MOST_NAMED = 5


def notify(hf: Holdfast, job: Context, review: Review) -> dict[str, Any]:
    """Tell every recipient of a review; the result comes back when each required one is told."""
    _intend(hf, job, review)
    before = _look(hf, review)
    waiting = [one.delivery_id for one in before if one.state == State.PENDING and one.delivery_id]
    now = hf.clock.now()
    if waiting:
        worker_id = job.job.claimed_by
        now = hf.outbox.deliver(waiting, org_id=review.org_id, worker_id=worker_id).now or now
    after = _look(hf, review)
    if show.find_review(hf.store, org_id=review.org_id, review_id=review.review_id).is_erased:
        raise ReviewErased(review_id=review.review_id)
    return conclude(review, before, after, now=now)


def _look(hf: Holdfast, review: Review) -> tuple[Told, ...]:
    return hf.store.read(lambda tx: show.read_told(tx, review))


def _intend(hf: Holdfast, job: Context, review: Review) -> None:
    """Put the message into the outbox for everybody who is not in it, and let go of addresses."""
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

    hf.outbox.tell(hf.store.write(fix))


def _intent(review: Review, row: Row, content: Content) -> Intent:
    return Intent(
        subject=review.subject,
        recipient=row["recipient"],
        version=review.review_version,
        channel=row["channel"],
        address=row["address"],
        content=content,
        is_required=bool(row["is_required"]),
    )


def conclude(
    review: Review, before: Sequence[Told], after: Sequence[Told], *, now: datetime
) -> dict[str, Any]:
    """The result of a review whose required recipients have all been told; else raises why not.

    As long as one may still be told, the others wait for that: a person is asked to step in once.
    Only a try that came to nothing costs the stage an attempt; waiting does not.
    """
    missing = [one for one in after if one.is_required and one.notified_at is None]
    waiting = [one for one in missing if one.state == State.PENDING]
    if waiting:
        _wait(waiting, {one.delivery_id: one.attempts for one in before}, now)
    if missing:
        held = [one for one in missing if one.state == State.HELD]
        failure = DeliveryHeld if held and len(held) == len(missing) else RecipientUnreachable
        named = ",".join(one.delivery_id or "" for one in missing[:MOST_NAMED])
        raise failure(review_id=review.review_id, missing=len(missing), deliveries=named)
    return {
        "review_id": review.review_id,
        "finding_count": review.finding_count,
        "recipients": len(after),
        "notified": sum(one.notified_at is not None for one in after),
    }


def _wait(waiting: Sequence[Told], tries: Mapping[str | None, int], now: datetime) -> None:
    """Raise what brings the stage back when the first of those that wait can be served."""
    tried = [one for one in waiting if one.attempts > tries.get(one.delivery_id, 0)]
    until = min((one.not_before_at for one in waiting if one.not_before_at), default=None)
    rest = GLANCE if until is None or until <= now else until - now
    if not tried:
        raise Snooze(rest)
    raise DeliveryPending(
        retry_after=None if until is None or until <= now else rest, waiting=len(waiting)
    )
