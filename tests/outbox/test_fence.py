"""Every later write of a leased delivery names its tenant and its fence."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.outbox.delivery_lease import SQL
from holdfast.store import Row
from tests.engine.planting import plant
from tests.outbox.scripted import intend_one, outbox_with
from tests.story import ORG, OTHER_ORG, look

LEASE = {"lease_ms": 60_000}
MARK = {"word": "sent", "why": None, "given_id": "id-1", "is_found": 0, "delay_ms": None}

# By statement: the state in which it writes, the name and contents of its rows, and the rest.
WRITES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "hold_deliveries": ("pending", "held", {}, LEASE),
    "begin_attempts": ("pending", "tries", {"nth": 2}, LEASE),
    "mark_deliveries": ("pending", "marks", MARK, {}),
    "clear_marks": ("sent", "cleared", {}, {}),
    "keep_marks": ("sent", "kept", {"word": "seen", "delay_ms": None}, {}),
}


def stands(hf: Holdfast) -> Row:
    (row,) = look(hf.store, "SELECT * FROM holdfast.delivery")
    return row


@pytest.mark.parametrize("statement", WRITES)
def test_a_lost_delivery_or_another_tenants_cannot_be_changed(hf: Holdfast, statement: str) -> None:
    state, rows, holds, rest = WRITES[statement]
    outbox_with(hf)
    one = intend_one(hf)
    is_sent = int(state == "sent")
    plant(
        hf,
        "UPDATE holdfast.delivery SET state = :word, fence = 7, attempts = 1,"
        " lease_owner = 'w1', lease_expires_at = updated_at,"
        " notification_id = CASE WHEN :is_sent = 1 THEN 'id-0' END,"
        " notified_at = CASE WHEN :is_sent = 1 THEN updated_at END,"
        " ended_at = CASE WHEN :is_sent = 1 THEN updated_at END",
        word=state,
        is_sent=is_sent,
    )
    before = stands(hf)

    def write(org_id: str, fence: int) -> list[Row]:
        named = {"home": org_id, "delivery_id": one.id, "was": fence, **holds}
        given = {rows: [named], **rest}
        return hf.store.write(lambda tx: tx.many(getattr(SQL, statement), **given))

    assert write(ORG, 6) == []
    assert write(OTHER_ORG, 7) == []
    assert stands(hf) == before
    assert len(write(ORG, 7)) == 1
    assert stands(hf) != before
