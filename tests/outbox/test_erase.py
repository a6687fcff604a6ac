"""Retention of messages, and erasure of a recipient."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.config import RetentionSettings
from holdfast.engine.retention import prune, prune_deliveries
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.in_app import InAppChannel
from holdfast.store import Store
from tests.outbox.planted import change, plant_delivery, plant_evidence
from tests.story import ORG, OTHER_ORG, look

ACCEPTED = (("first", "accepted"),)
KEEP = RetentionSettings()


def left(store: Store, table: str = "delivery") -> int:
    found: int = look(store, f"SELECT count(*) AS n FROM holdfast.{table}")[0]["n"]
    return found


def tell(hf: Holdfast, recipient: str, org_id: str = ORG) -> None:
    hf.outbox.use(InAppChannel(lambda: hf.store, hf.ids))
    hf.outbox.notify("hello", recipient, {}, channel="in_app", org_id=org_id)
    hf.worker(queues=["q:notifications"]).run_once()


@pytest.fixture(autouse=True)
def greeting(hf: Holdfast) -> None:
    hf.outbox.template("hello", subject="Hello", text="canary words")


# -- by time


def test_what_is_over_leaves_after_its_time_with_its_tries_and_its_words(
    hf: Holdfast, clock: FakeClock
) -> None:
    old = plant_delivery(hf, "sent", tries=ACCEPTED)
    plant_evidence(hf, old, "send", "taken")
    clock.advance(timedelta(days=KEEP.keep_days - 1))
    plant_delivery(hf, "sent", tries=ACCEPTED)
    early = prune(hf.store, KEEP)["deliveries"]
    clock.advance(timedelta(days=1, seconds=1))

    done = prune(hf.store, KEEP)["deliveries"]

    assert (early, done) == (0, 1)
    assert (left(hf.store), left(hf.store, "delivery_attempt")) == (1, 1)
    assert left(hf.store, "delivery_evidence") == 0
    assert prune(hf.store, KEEP)["deliveries"] == 0


def test_what_is_not_over_stays(hf: Holdfast, clock: FakeClock) -> None:
    for state in ("pending", "held"):
        plant_delivery(hf, state)
    clock.advance(timedelta(days=KEEP.keep_days * 2))

    prune(hf.store, KEEP)

    assert left(hf.store) == 2


def test_a_delivery_stays_while_its_job_can_be_replayed(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("sheet.publish")(lambda job, payload: None)
    job = hf.enqueue("sheet.publish", {}, org_id=ORG)
    plant_delivery(hf, "sent", tries=ACCEPTED, job_id=job.id)
    clock.advance(timedelta(days=KEEP.keep_days * 2))

    assert prune_deliveries(hf.store, KEEP, limit=10) == 0
    assert left(hf.store) == 1


def test_a_feed_forgets_after_the_same_time(hf: Holdfast, clock: FakeClock) -> None:
    tell(hf, "ada")
    clock.advance(timedelta(days=KEEP.keep_days, seconds=1))

    prune_deliveries(hf.store, KEEP, limit=10)

    assert hf.outbox.feed.list("ada", org_id=ORG) == []


def test_a_turn_is_bounded(hf: Holdfast, clock: FakeClock) -> None:
    for _ in range(3):
        plant_delivery(hf, "sent", tries=ACCEPTED)
    clock.advance(timedelta(days=KEEP.keep_days, seconds=1))

    assert prune_deliveries(hf.store, KEEP, limit=2) == 2
    assert left(hf.store) == 1


# -- by person


def test_a_person_who_leaves_is_erased_from_all_deliveries(hf: Holdfast) -> None:
    tell(hf, "ada")
    tell(hf, "ben")
    tell(hf, "ada", OTHER_ORG)
    plant_delivery(hf, "pending", recipient="ada", subject="tomorrow")

    erased = hf.outbox.erase("ada", org_id=ORG, actor="user:eve")

    assert (erased.deliveries, erased.notices, erased.left_over) == (2, 1, 0)
    rows = look(hf.store, "SELECT org_id, recipient FROM holdfast.delivery ORDER BY recipient")
    assert [(str(row["org_id"]), row["recipient"]) for row in rows] == [
        (OTHER_ORG, "ada"),
        (ORG, "ben"),
    ]
    assert len(hf.outbox.feed.list("ada", org_id=OTHER_ORG)) == 1


def test_the_audit_records_an_erasure_without_the_person(hf: Holdfast) -> None:
    plant_delivery(hf, "pending", recipient="canary-person")

    hf.outbox.erase("canary-person", org_id=ORG, actor="user:eve")

    rows = look(hf.store, "SELECT * FROM holdfast.job_event WHERE name = 'delivery.erased'")
    assert [row["actor_id"] for row in rows] == ["eve"]
    assert "canary" not in json.dumps(rows, default=str)


def test_what_a_worker_is_sending_stays_until_it_is_done(hf: Holdfast, clock: FakeClock) -> None:
    sending = plant_delivery(hf, "pending", recipient="ada")
    change(hf, sending, "fence = 1, lease_owner = 'w1', lease_expires_at = {later(60000)}")

    first = hf.outbox.erase("ada", org_id=ORG)
    clock.advance(timedelta(seconds=61))
    second = hf.outbox.erase("ada", org_id=ORG)

    assert (first.deliveries, first.left_over) == (0, 1)
    assert (second.deliveries, second.left_over) == (1, 0)


def test_an_erasure_requires_a_recipient(hf: Holdfast) -> None:
    plant_delivery(hf, "pending")
    whose: tuple[tuple[Any, str], ...] = (("", ORG), (None, ORG), ("ada", "nobody"))

    for recipient, org_id in whose:
        with pytest.raises(InvalidDelivery):
            hf.outbox.erase(recipient, org_id=org_id)
        assert left(hf.store) == 1
