"""Held and failed deliveries are confirmed, resent or dropped in bulk, by a filter."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Forbidden, Holdfast
from holdfast.document import decode
from holdfast.errors import StoreError
from holdfast.operate.deliveries import Deliveries
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.refusal import InvalidAction, NothingMatches
from holdfast.operate.verify.run import verify
from holdfast.store import Store
from tests.outbox.planted import change, plant_delivery, plant_evidence
from tests.outbox.scripted import DUMB, letter, outbox_with
from tests.story import ORG, OTHER_ORG, look

UNSURE = (("first", "unsure"),)


@pytest.fixture
def admin(hf: Holdfast) -> Deliveries:
    return hf.operate(actor="user:eve", role="admin").deliveries


def held(hf: Holdfast, state: str = "held", **given: Any) -> str:
    assert isinstance(hf.clock, FakeClock)
    hf.clock.advance(seconds=1)
    return plant_delivery(hf, state, tries=UNSURE, **given)


def states(hf: Holdfast, *ids: str) -> list[str]:
    rows = look(hf.store, "SELECT id, state FROM holdfast.delivery")
    by_id = {str(row["id"]): row["state"] for row in rows}
    return [by_id[one] for one in ids]


def audited(store: Store, name: str) -> list[dict[str, Any]]:
    rows = look(
        store,
        "SELECT org_id, actor_id, CAST(detail AS text) AS detail FROM holdfast.job_event"
        " WHERE name = :name ORDER BY id",
        name=name,
    )
    found = [{**decode(row["detail"]), "actor": row["actor_id"]} for row in rows]
    return [one for one in found if "planted" not in one]


@pytest.mark.parametrize(
    ("decide", "becomes", "event"),
    [
        ("confirm_all", "sent", "delivery.confirmed"),
        ("resend_all", "pending", "delivery.resent"),
        ("drop_all", "dropped", "delivery.dropped"),
    ],
)
def test_what_matches_is_decided_and_each_has_an_audit_event(
    hf: Holdfast, admin: Deliveries, decide: str, becomes: str, event: str
) -> None:
    mine = [held(hf), held(hf, "failed"), held(hf, org_id=OTHER_ORG)]
    others = [held(hf, channel="team"), held(hf, "sent"), held(hf, "pending"), held(hf, "dropped")]
    others.append(held(hf))
    change(hf, others[-1], "reason = 'several_found'")
    before = states(hf, *others)
    wanted = DeliveryFilter(channel="mail", reason="unknown")

    looked = getattr(admin, decide)(wanted, reason="outage", is_dry_run=True)
    assert (looked.matched, looked.ready, looked.done) == (3, 3, 0)
    assert states(hf, *mine) == ["held", "failed", "held"]
    assert audited(hf.store, event) == []

    result = getattr(admin, decide)(wanted, reason="outage")

    assert (result.matched, result.done) == (3, 3)
    assert {one["id"] for one in result.named} == set(mine)
    assert states(hf, *mine) == [becomes] * 3
    assert states(hf, *others) == before
    told = audited(hf.store, event)
    assert len(told) == 3
    assert {(one["actor"], one["reason"], one["role"]) for one in told} == {
        ("eve", "outage", "admin")
    }
    assert {one["filter"] for one in told} == {"channel='mail', reason='unknown'"}
    assert sorted(one["was"] for one in told) == ["failed", "held", "held"]


def test_each_condition_narrows_what_is_decided_and_what_is_listed(
    hf: Holdfast, admin: Deliveries, clock: FakeClock
) -> None:
    begin = clock.now()
    ids = {
        "recipient": held(hf, recipient="ada@example.com"),
        "subject": held(hf, subject="review:cl-7"),
        "channel": held(hf, channel="team"),
        "state": held(hf, "failed"),
        "org_id": held(hf, org_id=OTHER_ORG),
    }
    clock.advance(hours=1)
    ids["since"] = held(hf, subject="review:cl-8")
    conditions: dict[str, Any] = {
        "recipient": "ada@example.com",
        "subject": "review:cl-7",
        "channel": "team",
        "state": "failed",
        "org_id": OTHER_ORG,
        "since": begin + timedelta(minutes=30),
    }
    for name, value in conditions.items():
        result = admin.drop_all(DeliveryFilter(**{name: value}), reason="x", is_dry_run=True)
        assert [one["id"] for one in result.named] == [ids[name]], name
        listed = admin.list(DeliveryFilter(**{name: value}))
        assert [one.id for one in listed] == [ids[name]], name
    late = DeliveryFilter(until=begin + timedelta(minutes=30))
    assert admin.drop_all(late, reason="x", is_dry_run=True).matched == 5
    assert len(admin.list(late)) == 5
    assert len(admin.list(DeliveryFilter(subject="review:*"))) == 2
    assert admin.drop_all(DeliveryFilter(subject="review:*"), reason="x").done == 2
    change(hf, ids["recipient"], "state = 'failed', reason = 'smtp_550', ended_at = {now}")
    assert [one.id for one in admin.list(DeliveryFilter(reason="smtp_550"))] == [ids["recipient"]]


def test_the_audit_names_no_recipient(hf: Holdfast, admin: Deliveries) -> None:
    held(hf, recipient="ada@example.com")
    admin.drop_all(DeliveryFilter(recipient="ada@example.com"), reason="left the company")
    (told,) = audited(hf.store, "delivery.dropped")
    assert told["filter"] == "recipient"


def test_many_are_decided_in_bounded_pages(
    hf: Holdfast, admin: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.operate.delivery_bulk.PAGE", 3)
    ids = [held(hf) for _ in range(8)]
    # These cannot be resent, and must not stop the others.
    erased = [held(hf) for _ in range(4)]
    for one in erased:
        change(hf, one, "content = NULL")
    writes: list[int] = []
    write = hf.store.write

    def counted(work: Any) -> Any:
        writes.append(1)
        return write(work)

    monkeypatch.setattr(hf.store, "write", counted)
    first = admin.resend_all(DeliveryFilter(channel="mail"), reason="outage", limit=5)
    assert (first.matched, first.ready, first.done) == (12, 8, 5)
    rest = admin.resend_all(DeliveryFilter(channel="mail"), reason="outage")
    assert (rest.matched, rest.ready, rest.done) == (7, 3, 3)
    assert states(hf, *ids) == ["pending"] * 8
    assert states(hf, *erased) == ["held"] * 4
    # Of pages, not of deliveries.
    assert len(writes) <= 8


def test_what_a_worker_is_sending_or_its_channel_has_is_left_out(
    hf: Holdfast, admin: Deliveries
) -> None:
    free, taken, leased = held(hf), held(hf), held(hf)
    plant_evidence(hf, taken, "late_answer", "taken")
    change(hf, leased, "lease_owner = 'w1', lease_expires_at = '2999-01-01T00:00:00.000Z'")

    assert admin.resend_all(DeliveryFilter(channel="mail"), reason="x", is_dry_run=True).ready == 2
    dropped = admin.drop_all(DeliveryFilter(channel="mail"), reason="x")
    assert (dropped.ready, dropped.done) == (2, 2)
    assert states(hf, free, taken, leased) == ["dropped", "dropped", "held"]


def test_a_wrong_request_changes_nothing(hf: Holdfast, admin: Deliveries) -> None:
    one = held(hf)
    with pytest.raises(InvalidAction, match="filter"):
        admin.drop_all(DeliveryFilter(), reason="x")
    with pytest.raises(InvalidAction, match="matches 1 deliveries"):
        admin.drop_all(DeliveryFilter(), reason="x", everything=True, confirm=2)
    with pytest.raises(InvalidAction, match="reason"):
        admin.drop_all(DeliveryFilter(channel="mail"), reason="")
    with pytest.raises(InvalidAction, match="state"):
        admin.resend_all(DeliveryFilter(state="sent"), reason="x")
    with pytest.raises(InvalidAction, match="since"):
        admin.drop_all(DeliveryFilter(since=datetime(2026, 1, 1)), reason="x")  # noqa: DTZ001
    with pytest.raises(InvalidAction, match="limit"):
        admin.drop_all(DeliveryFilter(channel="mail"), reason="x", limit=0)
    with pytest.raises(NothingMatches, match="No delivery fits"):
        admin.drop_all(DeliveryFilter(channel="none"), reason="x")
    assert states(hf, one) == ["held"]
    assert admin.drop_all(DeliveryFilter(), reason="x", everything=True, confirm=1).done == 1


def test_an_operator_decides_for_one_tenant_and_a_member_for_none(hf: Holdfast) -> None:
    mine, other = held(hf), held(hf, org_id=OTHER_ORG)
    wanted = DeliveryFilter(channel="mail")
    member = hf.operate(actor="user:m", role="member", org_id=ORG).deliveries
    with pytest.raises(Forbidden):
        member.drop_all(wanted, reason="x")
    everywhere = hf.operate(actor="user:o", role="operator").deliveries
    with pytest.raises(Forbidden, match="pass org_id for one tenant"):
        everywhere.drop_all(wanted, reason="x")
    operator = hf.operate(actor="user:o", role="operator", org_id=ORG).deliveries
    with pytest.raises(NothingMatches):
        operator.drop_all(DeliveryFilter(org_id=OTHER_ORG), reason="x")
    assert operator.drop_all(wanted, reason="x").done == 1
    assert states(hf, mine, other) == ["dropped", "held"]


@pytest.mark.req("J-38")
def test_confirming_many_completes_the_jobs_that_wait_for_them(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    channel.otherwise = "lost_answer"

    @hf.job("text.tell")
    def tell(job: Context, payload: Any) -> None:
        (made,) = hf.outbox.intend([letter(payload["to"])])
        hf.outbox.deliver([made.id], org_id=job.org_id)
        hf.outbox.wait_for(job, [made.id])

    for name in ("ann", "bob", "cid"):
        hf.enqueue("text.tell", {"to": name}, org_id=ORG)
    hf.worker().run_once()
    assert {row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job")} == {"queued"}
    assert len(channel.sends) == 3

    desk = hf.operate(actor="user:eve", role="operator", org_id=ORG)
    assert desk.deliveries.confirm_all(DeliveryFilter(reason="unknown"), reason="seen").done == 3
    hf.worker().run_once()

    jobs = look(hf.store, "SELECT state FROM holdfast.job")
    assert [row["state"] for row in jobs] == ["completed"] * 3
    assert len(channel.sends) == 3
    report = verify(hf.operate(actor="user:op", role="admin").context)
    assert [check.name for check in report.violated] == []


def test_a_resent_one_goes_out_once_and_a_dropped_one_never(
    hf: Holdfast, admin: Deliveries, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    channel.script("lost_message", "lost_message")
    (ann,) = hf.outbox.intend([letter("ann")], org_id=ORG)
    (bob,) = hf.outbox.intend([letter("bob")], org_id=ORG)
    hf.outbox.deliver([ann.id, bob.id], org_id=ORG)
    assert states(hf, ann.id, bob.id) == ["held", "held"]

    admin.resend_all(DeliveryFilter(recipient="ann"), reason="outage")
    admin.drop_all(DeliveryFilter(recipient="bob"), reason="too late")
    for _ in range(3):
        clock.advance(minutes=10)
        hf.outbox.reconcile()

    assert states(hf, ann.id, bob.id) == ["sent", "dropped"]
    assert [message.address for message in channel.sends[2:]] == ["ann@example.com"]


def test_a_bulk_that_fails_in_the_middle_keeps_its_finished_pages(
    hf: Holdfast, admin: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.operate.delivery_bulk.PAGE", 2)
    ids = [held(hf) for _ in range(4)]
    write, calls = hf.store.write, list[int]()

    def failing(work: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise StoreError("gone")
        return write(work)

    monkeypatch.setattr(hf.store, "write", failing)
    with pytest.raises(StoreError):
        admin.drop_all(DeliveryFilter(channel="mail"), reason="x")
    monkeypatch.setattr(hf.store, "write", write)
    assert sorted(states(hf, *ids)) == ["dropped", "dropped", "held", "held"]
    assert admin.drop_all(DeliveryFilter(channel="mail"), reason="x").done == 2
    assert len(audited(hf.store, "delivery.dropped")) == 4
