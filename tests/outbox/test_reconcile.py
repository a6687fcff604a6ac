"""Reconcile: unknown outcomes, overdue deliveries, marks without proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, Permanent
from holdfast.channel.channel import Capabilities, Lookup
from holdfast.channel.message import Message
from holdfast.event import DeliveryAlert, DeliveryTrouble, Event
from holdfast.outbox.delivery import State
from holdfast.outbox.intend import Intended
from holdfast.outbox.reconcile import SQL
from tests.outbox.planted import change, plant_delivery, plant_evidence
from tests.outbox.scripted import (
    ASKABLE,
    DUMB,
    ScriptedChannel,
    attempts_of,
    deliver,
    evidence_of,
    intend_one,
    letter,
    outbox_with,
    state_of,
)
from tests.story import ORG, by_hand, look, make_holdfast


def mark_by_hand(hf: Holdfast, one: Intended) -> None:
    """The state that a program leaves if it marks before it sends."""
    by_hand(
        hf.store,
        "UPDATE holdfast.delivery SET state = 'sent', notified_at = {now}, ended_at = {now},"
        " notification_id = 'made-up', attempts = 1 WHERE id = :id",
        id=one.id,
    )


def alerts(hf: Holdfast) -> list[tuple[DeliveryTrouble, str]]:
    heard: list[tuple[DeliveryTrouble, str]] = []

    def hear(event: Event) -> None:
        if isinstance(event, DeliveryAlert):
            heard.append((event.what, event.detail))

    hf.events.subscribe(hear)
    return heard


@pytest.mark.req("N-19")
@pytest.mark.req("N-20")
@pytest.mark.req("N-21")
@pytest.mark.req("N-23")
def test_what_is_marked_and_unknown_to_the_channel_is_cleared_alerted_and_sent(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    heard = alerts(hf)
    one = intend_one(hf)
    mark_by_hand(hf, one)
    # The channel may not list it yet.
    hf.outbox.reconcile()
    assert state_of(hf, one).state is State.SENT
    clock.advance(seconds=31)
    hf.outbox.reconcile()
    stands = state_of(hf, one)
    assert stands.state is State.PENDING
    assert (stands.notified_at, stands.notification_id) == (None, None)
    assert heard == [(DeliveryTrouble.MARKED_UNSENT, "not_found")]
    assert channel.sends == []
    clock.advance(seconds=60)
    hf.outbox.reconcile()
    assert state_of(hf, one).state is State.SENT
    assert [row["reason"] for row in attempts_of(hf, one)] == ["looked_up_not_found"]
    assert channel.accepted.total() == 1
    names = look(hf.store, "SELECT name FROM holdfast.job_event ORDER BY id")
    assert [row["name"] for row in names] == [
        "delivery.intended",
        "delivery.requeued",
        "delivery.sent",
    ]


def test_what_is_marked_and_known_to_the_channel_stays(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    one = intend_one(hf)
    channel.script("lost_answer")
    deliver(hf, one)
    by_hand(
        hf.store,
        "UPDATE holdfast.delivery SET state = 'sent', notified_at = {now}, ended_at = {now},"
        " notification_id = 'made-up' WHERE id = :id",
        id=one.id,
    )
    clock.advance(minutes=2)
    hf.outbox.reconcile()
    assert state_of(hf, one).state is State.SENT
    assert evidence_of(hf, one) == [("lookup", "taken")]
    clock.advance(minutes=10)
    hf.outbox.reconcile()
    assert len(channel.lookups) == 1


def test_a_delivery_that_another_worker_sends_is_not_reconciled(
    hf: Holdfast, clock: FakeClock, url: str
) -> None:
    """It was attempted and has no outcome, but its lease has not expired."""
    channel = outbox_with(hf)
    other = make_holdfast(url, clock)
    elsewhere = outbox_with(other)
    taken: list[int] = []

    def reconcile(message: Message) -> None:
        clock.advance(seconds=hf.settings.outbox.grace_seconds + 1)
        taken.append(other.outbox.reconcile()["taken"])

    channel.during_send = reconcile

    assert deliver(hf, intend_one(hf)).state is State.SENT

    assert taken == [0]
    assert (len(channel.sends), elsewhere.sends, elsewhere.lookups) == (1, [], [])
    other.close()


def test_what_was_sent_in_order_is_never_asked_about(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    deliver(hf, intend_one(hf))
    clock.advance(minutes=10)
    hf.outbox.reconcile()
    assert channel.lookups == []
    (row,) = look(hf.store, "SELECT proof FROM holdfast.delivery")
    assert row["proof"] == "seen"


def test_what_is_sent_while_a_reconciler_looks_is_not_taken_for_a_mark_without_proof(
    hf: Holdfast,
) -> None:
    outbox_with(hf, DUMB)
    # Marked after the reconciler has read which marks are proven, and before it takes the others.
    one = intend_one(hf)
    assert deliver(hf, one).state is State.SENT

    took = hf.store.write(
        lambda tx: tx.many(SQL.take_marked, limit=10, owner="w2", lease_ms=300_000)
    )

    assert took == []


@pytest.mark.parametrize(
    "capabilities", [DUMB, Capabilities(lookup=Lookup.FUZZY)], ids=["mute", "fuzzy"]
)
def test_an_unprovable_mark_is_reported_once_and_nothing_is_sent(
    hf: Holdfast, clock: FakeClock, capabilities: Capabilities
) -> None:
    channel = outbox_with(hf, capabilities)
    heard = alerts(hf)
    one = intend_one(hf)
    mark_by_hand(hf, one)
    for _ in range(3):
        hf.outbox.reconcile()
        clock.advance(minutes=5)
    assert state_of(hf, one).state is State.SENT
    assert heard == [(DeliveryTrouble.MARKED_UNSENT, "unknowable")]
    assert channel.sends == []


def test_a_mark_is_asked_about_again_while_the_channel_is_silent(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    channel.is_lookup_down = True
    one = intend_one(hf)
    mark_by_hand(hf, one)
    clock.advance(minutes=1)
    hf.outbox.reconcile()
    assert state_of(hf, one).state is State.SENT
    channel.is_lookup_down = False
    clock.advance(minutes=5)
    hf.outbox.reconcile()
    assert state_of(hf, one).state is State.PENDING


def test_an_abandoned_delivery_is_sent_by_the_run(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    one = intend_one(hf)
    report = hf.runs.trigger("outbox_reconciler", actor="user:ann", role="admin", reason="test")
    assert report.outcome == "skipped"
    clock.advance(minutes=1)
    report = hf.runs.trigger("outbox_reconciler", actor="user:ann", role="admin", reason="test")
    assert report.outcome == "done"
    assert state_of(hf, one).state is State.SENT
    assert channel.accepted.total() == 1


@pytest.mark.parametrize("is_through", [True, False])
def test_what_a_job_intended_is_come_for_when_the_job_is_through(
    hf: Holdfast, clock: FakeClock, is_through: bool
) -> None:
    channel = outbox_with(hf)

    @hf.job("order.ship", max_attempts=1)
    def ship(job: Context, payload: dict[str, Any]) -> None:
        hf.outbox.intend([letter()])
        if not is_through:
            raise Permanent("the order is gone")

    hf.enqueue("order.ship", {}, org_id=ORG)
    hf.worker().run_once()
    clock.advance(minutes=10)
    hf.outbox.reconcile()

    # A failed job may be replayed, and then delivers.
    assert channel.accepted.total() == (1 if is_through else 0)


def test_a_started_delivery_continues_when_its_job_is_dead(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)

    @hf.job("order.ship", max_attempts=1)
    def ship(job: Context, payload: dict[str, Any]) -> None:
        made = hf.outbox.intend([letter("ann"), replace(letter("bob"), channel="late")])
        del hf.outbox._added["late"]
        hf.outbox.deliver([one.id for one in made], org_id=job.org_id)
        raise Permanent("ann cannot be reached")

    channel.script("refused")
    late = ScriptedChannel(clock, name="late")
    hf.outbox.use(late)
    job = hf.enqueue("order.ship", {}, org_id=ORG)
    hf.worker().run_once()
    hf.outbox.use(late)
    clock.advance(minutes=10)
    hf.outbox.reconcile()

    assert [one.state for one in hf.outbox.list_of_job(job)] == [State.FAILED, State.SENT]
    assert [message.address for message in late.sends] == ["bob@example.com"]


def test_what_waits_for_a_job_that_has_not_run_is_left_to_it(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    hf.outbox.post([letter()], org_id=ORG)
    clock.advance(hours=1)
    hf.outbox.reconcile()
    assert channel.sends == []
    hf.worker().run_once()
    assert channel.accepted.total() == 1


def test_the_run_resolves_what_is_unclear(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    channel.script("lost_answer", "lost_message")
    made = [intend_one(hf), intend_one(hf, letter("bob"))]
    for one in made:
        deliver(hf, one)
    clock.advance(minutes=2)
    hf.runs.trigger("outbox_reconciler", actor="user:ann", role="admin", reason="test")
    assert [state_of(hf, one).state for one in made] == [State.SENT] * 2
    assert sorted(channel.accepted.values()) == [1, 1]


def test_what_the_channel_took_and_gave_up_is_not_sent_because_it_was_taken(hf: Holdfast) -> None:
    outbox_with(hf)
    gone = plant_delivery(hf, "failed", tries=(("first", None),))
    change(hf, gone, "reason = 'undelivered'")
    again = plant_delivery(hf, "failed", tries=(("first", None), ("operator_resend", "refused")))
    taken = plant_delivery(hf, "failed", tries=(("first", None),))
    for one in (gone, again, taken):
        plant_evidence(hf, one, "late_answer", "taken", provider_id="m-1")
    # An operator sent it again in spite of that, and it has the outcome of that attempt.
    plant_evidence(hf, again, "operator", "resend")
    hf.outbox.reconcile()
    stands = {one.id: one.state for one in hf.outbox.find([gone, again, taken], org_id=ORG)}
    assert stands == {gone: State.FAILED, again: State.FAILED, taken: State.SENT}


def test_two_reconcilers_send_nothing_twice(hf: Holdfast, url: str, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    other = make_holdfast(url, clock)
    other.outbox.use(channel)
    made = [intend_one(hf, letter(f"r{number}")) for number in range(5)]
    clock.advance(minutes=2)
    channel.during_send = lambda _: other.outbox.reconcile()
    hf.outbox.reconcile()
    assert {state_of(hf, one).state for one in made} == {State.SENT}
    assert set(channel.accepted.values()) == {1}
    other.close()


@pytest.mark.req("N-13")
@pytest.mark.parametrize("is_known", [True, False])
def test_an_id_without_a_time_is_looked_up_first(
    hf: Holdfast, clock: FakeClock, is_known: bool
) -> None:
    channel = outbox_with(hf, ASKABLE)
    one = intend_one(hf)
    if is_known:
        _plant(channel, hf, one)
    by_hand(
        hf.store,
        "UPDATE holdfast.delivery SET notification_id = 'theirs' WHERE id = :id",
        id=one.id,
    )
    clock.advance(seconds=31)
    stands = deliver(hf, one)
    assert stands.state is State.SENT
    assert channel.lookups[0].provider_id == "theirs"
    assert len(channel.sends) == (0 if is_known else 1)


def _plant(channel: ScriptedChannel, hf: Holdfast, one: Intended) -> None:
    """Let the provider have the message already, as after an import."""
    from holdfast.channel.message import Message

    token = state_of(hf, one).token
    channel.taken.append((hf.clock.now(), Message(token, "ann@example.com", "s", "t")))


def test_two_days_later_what_the_channel_accepted_is_not_sent_again(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, Capabilities(lookup=Lookup.BY_OUR_TOKEN, settle_seconds=30))
    channel.script("lost_answer")
    channel.is_lookup_down = True
    one = intend_one(hf)
    deliver(hf, one)
    clock.advance(days=2)
    channel.is_lookup_down = False
    again = hf.outbox.intend([letter()], org_id=ORG)[0]
    assert again.id == one.id
    assert deliver(hf, again).state is State.SENT
    assert len(channel.sends) == 1
