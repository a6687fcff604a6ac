"""Cancel: unsent messages of a canceled job are dropped; possibly sent ones are looked up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, Permanent, Snooze
from holdfast.channel.channel import Capabilities, Lookup, OnUnknown
from holdfast.event import DeliveryAlert, Event
from holdfast.outbox import outbox as passes
from holdfast.outbox.delivery import Delivery, State
from holdfast.outbox.intend import Intended
from tests.failpoints import OutboxPoint as Point
from tests.failpoints import install
from tests.operate.letters import operator, replay
from tests.outbox.scripted import (
    ASKABLE,
    WINDOW,
    attempts_of,
    letter,
    outbox_with,
    state_of,
)
from tests.story import ORG, look


def cancel(hf: Holdfast, one: Delivery) -> None:
    """Cancel the job of the delivery."""
    job_id = one.deliver_job_id or one.job_id
    assert job_id is not None
    assert hf.cancel(job_id, org_id=ORG, reason="the meeting is off") == "canceled"


def come(hf: Holdfast, clock: FakeClock, times: int = 3) -> None:
    """Run every process that could send a message, several times."""
    for _ in range(times):
        clock.advance(minutes=10)
        hf.worker().run_once()
        hf.outbox.reconcile()


def stands(hf: Holdfast, one: Intended) -> tuple[State, str | None]:
    found = state_of(hf, one)
    return found.state, found.reason


CANCELED = (State.DROPPED, "canceled")


@pytest.mark.req("T-04")
def test_a_canceled_job_sends_nothing_and_no_other_process_sends_it(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    cancel(hf, state_of(hf, one))

    come(hf, clock)

    assert stands(hf, one) == CANCELED
    assert channel.sends == []
    assert not [event for event in heard if isinstance(event, DeliveryAlert)]
    told = look(
        hf.store, "SELECT name FROM holdfast.job_event WHERE name LIKE 'delivery.%' ORDER BY id"
    )
    assert [row["name"] for row in told] == ["delivery.intended", "delivery.dropped"]
    (again,) = hf.outbox.post([letter()], org_id=ORG)
    assert (again.id, again.state) == (one.id, State.DROPPED)


def test_a_delivery_for_later_is_dropped_when_its_job_is_canceled(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    hf.outbox.template("reminder", subject="Soon", text="{{ what }}")
    due = clock.now() + timedelta(days=300)
    (kept, one) = (
        hf.outbox.notify(
            "reminder", "ann", {"what": what}, channel="post", org_id=ORG, scheduled_for=due
        )
        for what in ("lunch", "meeting")
    )
    assert kept is not None
    assert one is not None
    cancel(hf, state_of(hf, one))

    clock.advance(minutes=10)
    found = hf.runs.trigger("outbox_reconciler", actor="user:ann", role="admin", reason="test")

    assert found.outcome == "done"
    assert (stands(hf, one), state_of(hf, kept).state) == (CANCELED, State.PENDING)
    assert channel.sends == []


def test_a_delivery_proven_not_accepted_is_dropped(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    channel.script("rejected")
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    hf.worker().run_once()
    cancel(hf, state_of(hf, one))

    come(hf, clock)

    assert stands(hf, one) == CANCELED
    assert len(channel.sends) == 1


@pytest.mark.parametrize("word", ["lost_answer", "lost_message"])
def test_what_may_be_out_is_asked_about_and_not_sent(
    hf: Holdfast, clock: FakeClock, word: str
) -> None:
    channel = outbox_with(hf)
    channel.script(word)
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    hf.worker().run_once()
    cancel(hf, state_of(hf, one))

    come(hf, clock)

    assert stands(hf, one) == ((State.SENT, None) if word == "lost_answer" else CANCELED)
    assert len(channel.lookups) == 1
    assert len(channel.sends) == 1


@pytest.mark.parametrize(
    ("capabilities", "policy"),
    [
        (WINDOW, OnUnknown.HOLD),
        (Capabilities(receiver_dedupes=True), OnUnknown.HOLD),
        (Capabilities(lookup=Lookup.FUZZY), OnUnknown.RESEND),
    ],
)
def test_what_may_be_out_and_cannot_be_asked_about_waits_for_a_person(
    hf: Holdfast, clock: FakeClock, capabilities: Capabilities, policy: OnUnknown
) -> None:
    channel = outbox_with(hf, capabilities, on_unknown=policy)
    channel.script("lost_message")
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    hf.worker().run_once()
    cancel(hf, state_of(hf, one))

    come(hf, clock)

    assert stands(hf, one) == (State.HELD, "unknown")
    assert len(channel.sends) == 1


def intending(hf: Holdfast, *, is_dead: bool = False) -> Any:
    """A job that intends and sends by itself, and has not ended."""

    @hf.job("order.ship", max_attempts=1)
    def ship(job: Context, payload: dict[str, Any]) -> None:
        hf.outbox.intend([letter()])
        if is_dead:
            raise Permanent("the order is gone")
        raise Snooze(600)

    job = hf.enqueue("order.ship", {}, org_id=ORG)
    hf.worker().run_once()
    return job


def test_what_a_canceled_job_intended_is_sent_by_no_name(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    (one,) = hf.outbox.list_of_job(intending(hf))
    cancel(hf, one)

    hf.outbox.deliver([one.id], org_id=ORG)

    (now,) = hf.outbox.find([one.id], org_id=ORG)
    assert (now.state, now.reason) == CANCELED
    assert channel.sends == []


def test_the_last_replay_decides_for_its_job(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    job = intending(hf, is_dead=True)
    (one,) = hf.outbox.list_of_job(job)
    replay_id = replay(operator(hf, org_id=ORG), job)
    hf.cancel(replay_id, org_id=ORG, reason="wrong order")

    hf.outbox.deliver([one.id], org_id=ORG)

    (now,) = hf.outbox.find([one.id], org_id=ORG)
    assert (now.state, now.reason) == CANCELED
    assert channel.sends == []


def test_a_job_that_posts_and_is_canceled_has_posted(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)

    @hf.job("order.ship")
    def ship(job: Context, payload: dict[str, Any]) -> None:
        hf.outbox.post([letter()])
        raise Snooze(600)

    job = hf.enqueue("order.ship", {}, org_id=ORG)
    hf.worker(queues=["q:default"]).run_once()
    hf.cancel(job.id, org_id=ORG, reason="enough")
    come(hf, clock)

    (one,) = hf.outbox.list_of_job(job)
    assert one.state is State.SENT
    assert len(channel.sends) == 1


def test_a_cancel_is_heard_up_to_the_moment_of_the_try(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    channel.script("lost_answer")
    (unclear,) = hf.outbox.post([letter("zoe")], org_id=ORG)
    hf.worker().run_once()
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    clock.advance(minutes=1)

    def reached(point: Point) -> None:
        # During the lookup of one delivery, the job of the other is canceled.
        if point is Point.AFTER_LOOKUP:
            cancel(hf, state_of(hf, one))

    install(hf, Point, reached)
    hf.outbox.deliver([unclear.id, one.id], org_id=ORG)

    assert [message.address for message in channel.sends] == ["zoe@example.com"]
    assert attempts_of(hf, one) == []


def test_a_job_of_many_stops_between_two_pages(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    monkeypatch.setattr(passes, "PAGE", 2)
    channel = outbox_with(hf)
    posted = hf.outbox.post([letter(f"r{number}") for number in range(4)], org_id=ORG)

    (job,) = look(hf.store, "SELECT id FROM holdfast.job")
    step = Context.raise_if_canceled

    def next_step(context: Context) -> None:
        # As the heartbeat of the worker reports it.
        if channel.sends:
            assert hf.cancel(job["id"], org_id=ORG) == "requested"
            context.token.set()
        step(context)

    monkeypatch.setattr(Context, "raise_if_canceled", next_step)
    hf.worker().run_once()
    come(hf, clock)

    assert len(channel.sends) == 2
    found = hf.outbox.find([one.id for one in posted], org_id=ORG)
    assert [one.state for one in found] == [State.SENT] * 2 + [State.DROPPED] * 2


def test_a_delivery_without_a_channel_in_every_process_is_dropped_too(
    hf: Holdfast, clock: FakeClock
) -> None:
    outbox_with(hf)
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    cancel(hf, state_of(hf, one))
    hf.outbox._added.clear()

    come(hf, clock, times=1)

    assert stands(hf, one) == CANCELED


@pytest.mark.parametrize("is_tried", [True, False])
def test_a_person_may_have_it_sent_after_all(
    hf: Holdfast, clock: FakeClock, is_tried: bool
) -> None:
    channel = outbox_with(hf, ASKABLE)
    channel.script(*["rejected"] * is_tried)
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    if is_tried:
        hf.worker().run_once()
    cancel(hf, state_of(hf, one))
    come(hf, clock)
    desk = hf.operate(actor="user:olga", role="operator", org_id=ORG)

    desk.deliveries.resend(one.id, reason="it takes place")
    come(hf, clock)

    assert state_of(hf, one).state is State.SENT
    assert attempts_of(hf, one)[-1]["reason"] == "operator_resend"
    assert channel.accepted.total() == 1
