"""Intending: in the caller's transaction, once, and never partially."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import psycopg
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.errors import ConfigError, Forbidden, RuleBroken
from holdfast.event import DeliveryAlert, DeliveryTrouble, Event
from holdfast.outbox.delivery import Content, Identity, State
from holdfast.outbox.failure import InvalidDelivery
from holdfast.store import Store
from tests.outbox.scripted import intend_one, letter, outbox_with, state_of
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast


def connect(url: str) -> Any:
    if url.startswith("sqlite:///"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


def count(store: Store) -> int:
    return int(look(store, "SELECT count(*) AS n FROM holdfast.delivery")[0]["n"])


@pytest.mark.req("N-05")
@pytest.mark.req("N-06")
def test_a_version_has_one_row_per_recipient(hf: Holdfast) -> None:
    outbox_with(hf)
    first, again = intend_one(hf), intend_one(hf)
    assert (first.created, again.created, again.differs) == (True, False, False)
    assert again.id == first.id
    assert count(hf.store) == 1


@pytest.mark.req("N-03")
def test_another_version_recipient_subject_or_tenant_is_another_delivery(hf: Holdfast) -> None:
    outbox_with(hf)
    made = [
        intend_one(hf),
        intend_one(hf, letter(version=2)),
        intend_one(hf, letter("bob")),
        intend_one(hf, letter(subject="review:cl-2")),
        hf.outbox.intend([letter()], org_id=OTHER_ORG)[0],
    ]
    assert all(one.created for one in made)
    rows = look(hf.store, "SELECT token FROM holdfast.delivery")
    assert len({row["token"] for row in rows}) == 5


@pytest.mark.req("N-09")
def test_a_token_is_made_of_the_identity_and_the_databases_own_key(hf: Holdfast, url: str) -> None:
    outbox_with(hf)
    one = state_of(hf, intend_one(hf))
    assert one.token == Identity(ORG, "review:cl-1", "ann", 1).token(hf.outbox.key)
    other = make_holdfast(url, FakeClock())
    assert other.outbox.key == hf.outbox.key
    other.close()


def test_one_call_may_name_the_same_delivery_twice(hf: Holdfast) -> None:
    outbox_with(hf)
    first, again = hf.outbox.intend([letter(), letter()], org_id=ORG)
    assert (first.created, again.created) == (True, False)
    assert first.id == again.id


def test_the_first_content_is_kept_and_conflicts_are_reported(hf: Holdfast) -> None:
    outbox_with(hf)
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    intend_one(hf)
    again = intend_one(hf, letter(text="Something else."))
    moved = intend_one(hf, replace(letter(), address="ann@elsewhere.example"))
    assert (again.differs, moved.differs) == (True, True)
    assert [event.what for event in heard if isinstance(event, DeliveryAlert)] == [
        DeliveryTrouble.DIFFERS
    ] * 2
    (row,) = look(hf.store, "SELECT content, address FROM holdfast.delivery")
    assert "Hello." in row["content"]
    assert row["address"] == "ann@example.com"


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_is_committed_and_rolled_back_with_the_callers_transaction(
    hf: Holdfast, url: str, commits: bool
) -> None:
    outbox_with(hf)
    hf.outbox.intend([letter("zoe")], org_id=ORG)
    with connect(url) as conn:
        made = hf.outbox.intend([letter("ann"), letter("bob")], org_id=ORG, conn=conn)
        assert [one.state for one in made] == [State.PENDING] * 2
        (conn.commit if commits else conn.rollback)()
    conn.close()
    assert count(hf.store) == (3 if commits else 1)


def test_post_brings_its_job_in_the_same_transaction(hf: Holdfast, url: str) -> None:
    channel = outbox_with(hf)
    hf.outbox.intend([letter("zoe")], org_id=ORG)
    with connect(url) as conn:
        hf.outbox.post([letter("ann")], org_id=ORG, conn=conn)
        conn.rollback()
    hf.worker().run_once()
    assert channel.sends == []
    with connect(url) as conn:
        (one,) = hf.outbox.post([letter("ann")], org_id=ORG, conn=conn)
        conn.commit()
    conn.close()
    hf.worker().run_once()
    assert state_of(hf, one).state is State.SENT


@pytest.mark.both_databases
@pytest.mark.req("N-06")
def test_two_who_intend_the_same_at_once_get_one_row(url: str) -> None:
    apps = [make_holdfast(url, FakeClock()) for _ in range(2)]
    for app in apps:
        outbox_with(app)
        _ = app.outbox.key
    # The same seed makes the same ids, and the same id is the same request.
    apps[1].ids.take(5)
    barrier = threading.Barrier(2)
    made = []

    def intend(app: Holdfast) -> None:
        barrier.wait(30)
        made.append(app.outbox.intend([letter()], org_id=ORG)[0])

    threads = [threading.Thread(target=intend, args=(app,)) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.created for one in made) == [False, True]
    assert made[0].id == made[1].id
    for app in apps:
        app.close()


def test_inside_a_job_a_message_is_sent_on_the_jobs_behalf(hf: Holdfast) -> None:
    outbox_with(hf)
    refused = []

    @hf.job("tell")
    def tell(job: Any, payload: dict[str, Any]) -> None:
        hf.outbox.intend([letter()])
        try:
            hf.outbox.intend([letter("bob")], org_id=OTHER_ORG)
        except Forbidden as exc:
            refused.append(exc)

    job = hf.enqueue("tell", {}, org_id=ORG)
    hf.worker().run_once()
    (one,) = hf.outbox.list_of_job(job)
    assert (one.org_id, one.job_id, one.recipient) == (ORG, job.id, "ann")
    assert len(refused) == 1


def test_a_handler_intends_in_its_own_transaction_and_sees_no_other_tenants(
    hf: Holdfast,
) -> None:
    outbox_with(hf)
    hf.outbox.intend([letter()], org_id=OTHER_ORG)
    made = []

    @hf.job("tell")
    def tell(job: Any, payload: dict[str, Any]) -> None:
        for _ in range(2):
            with job.transaction() as connection:
                made.extend(hf.outbox.intend([letter()], conn=connection))

    job = hf.enqueue("tell", {}, org_id=ORG)
    hf.worker().run_once()
    assert [one.created for one in made] == [True, False]
    assert [one.id for one in hf.outbox.list_of_job(job)] == [made[0].id]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"recipient": ""}, "recipient"),
    ({"recipient": "ann\nBcc: eve@example.com"}, "recipient"),
    ({"address": "ann@example.com\r\nBcc: eve@example.com"}, "address"),
    ({"subject": "x" * 501}, "subject"),
    ({"version": 0}, "version"),
    ({"version": True}, "version"),
    ({"version": 2**31}, "version"),
    ({"is_required": "no"}, "is_required"),
    ({"is_required": 1}, "is_required"),
    ({"not_before_at": "2026-01-01"}, "not_before_at"),
    ({"not_before_at": datetime(2026, 1, 6)}, "not_before_at"),  # noqa: DTZ001
    ({"not_before_at": datetime(3121, 1, 1, tzinfo=UTC)}, "not_before_at"),
    ({"content": Content("a", "b\0c")}, "content"),
    ({"content": Content("a", "b", data={"x": float("nan")})}, "content"),
    ({"content": Content("a", "b" * 1_000_001)}, "content"),
    ({"content": "Shipped"}, "content"),
    ({"content": Content("a", cast(Any, None))}, "content"),
    ({"content": Content("a", "b", data=cast(Any, ["x"]))}, "content"),
]


def test_a_wrong_delivery_is_refused_before_anything_is_written(hf: Holdfast) -> None:
    outbox_with(hf)
    for change, field in WRONG:
        with pytest.raises(InvalidDelivery) as refused:
            hf.outbox.intend([letter(), replace(letter("bob"), **change)], org_id=ORG)
        assert list(refused.value.fields) == [f"deliveries[1].{field}"]
        assert "eve" not in str(refused.value)
        assert count(hf.store) == 0


def test_what_is_no_list_of_intents_is_refused(hf: Holdfast) -> None:
    outbox_with(hf)
    several: tuple[Any, ...] = (letter(), [{"subject": "change-1"}], [letter(), None])
    for wrong in several:
        with pytest.raises(InvalidDelivery) as refused:
            hf.outbox.intend(wrong, org_id=ORG)
        assert refused.value.fields == {"deliveries": "must be a list of OutgoingMessage"}
        assert count(hf.store) == 0


def test_an_id_that_is_none_is_named(hf: Holdfast) -> None:
    outbox_with(hf)
    for act, field in (
        (lambda: hf.outbox.intend([letter()], org_id="acme"), "org_id"),
        (lambda: hf.outbox.find(["x"], org_id=ORG), "ids"),
        (lambda: hf.outbox.deliver(["x"], org_id=ORG), "ids"),
    ):
        with pytest.raises(InvalidDelivery) as refused:
            act()
        assert list(refused.value.fields) == [field]


def test_without_a_tenant_nothing_is_intended(hf: Holdfast) -> None:
    outbox_with(hf)
    with pytest.raises(ConfigError):
        hf.outbox.intend([letter()])


@pytest.mark.both_databases
def test_the_database_itself_holds_the_contract(hf: Holdfast) -> None:
    outbox_with(hf)
    one = intend_one(hf)
    for change, rule in (
        ("state = 'sent', ended_at = {now}, attempts = 1", "delivery_sent_iff_marked"),
        ("state = 'held'", "delivery_not_sent_says_why"),
        ("state = 'failed', reason = 'x'", "delivery_ended_says_when"),
        (
            "state = 'sent', notified_at = {now}, ended_at = {now}, notification_id = 'm'",
            "delivery_sent_was_tried",
        ),
        ("recipient = 'eve'", "delivery_write_once"),
        ("address = 'eve@example.com'", "delivery_write_once"),
        ("content = '{}'", "delivery_write_once"),
        ("fence = -1", "delivery_write_once"),
    ):
        with pytest.raises(RuleBroken) as broken:
            by_hand(hf.store, f"UPDATE holdfast.delivery SET {change} WHERE id = :id", id=one.id)
        assert broken.value.rule == rule
