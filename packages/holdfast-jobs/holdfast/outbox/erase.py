"""Erase a recipient: their deliveries, pending messages, feed entries and addresses.

Pending messages are not sent. A delivery that a worker is sending right now is kept and counted;
call erase again for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.actor import Actor
from holdfast.engine.audit import record_action
from holdfast.engine.retention import record_removed
from holdfast.engine.validation import text, uuid
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.in_app import SQL as IN_APP_SQL
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.outbox", "erase.sql")


@dataclass(frozen=True, slots=True)
class Erased:
    """The number of deleted deliveries and feed entries, and of deliveries still being sent."""

    deliveries: int
    notices: int
    left_over: int


def erase_recipient(store: Store, recipient: str, *, org_id: str, actor: Actor) -> Erased:
    """Delete all messages to a recipient of a tenant. The audit does not name the recipient."""
    bad: dict[str, str] = {}
    whose = {
        "org_id": uuid("org_id", org_id, bad),
        "recipient": text("recipient", recipient, bad, longest=500),
    }
    if recipient is None:
        bad["recipient"] = "is required"
    if bad:
        raise InvalidDelivery(bad)

    def work(tx: Tx) -> Erased:
        removed = tx.many(SQL.erase_deliveries, **whose)
        record_removed(tx, removed, actor=actor, reason="erased")
        erased = Erased(
            deliveries=len(removed),
            notices=tx.affected(IN_APP_SQL.erase_in_app, **whose),
            left_over=tx.one(SQL.count_deliveries, **whose)["left_over"],
        )
        record_action(
            tx,
            actor,
            subject=f"recipients:{whose['org_id']}",
            name="delivery.erased",
            detail={"deliveries": erased.deliveries, "notices": erased.notices},
            org_id=str(whose["org_id"]),
        )
        return erased

    return store.write(work)


def erase_about(tx: Tx, subject: str, *, org_id: str, actor: Actor) -> Erased:
    """Delete all messages about *subject*, in the transaction of the caller, who also audits it."""
    told = {"org_id": org_id, "subject": subject}
    notices = tx.affected(SQL.erase_notices_about, **told)
    removed = tx.many(SQL.erase_deliveries_about, **told)
    record_removed(tx, removed, actor=actor, reason="erased")
    return Erased(
        notices=notices,
        deliveries=len(removed),
        left_over=tx.one(SQL.count_deliveries_about, **told)["left_over"],
    )
