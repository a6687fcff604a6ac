"""Circuits: a refusing channel is paused, and its messages wait without counting attempts."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.channel.channel import Lookup
from holdfast.event import DeliveryAlert, DeliveryTrouble, Event
from holdfast.operate.verify.run import verify
from holdfast.outbox.circuit import Trip, pause_after
from holdfast.outbox.delivery import State as Stands
from holdfast.outbox.intend import Intended
from holdfast.outbox.reconcile import ReconcileTask
from tests.outbox.long_time import live_through
from tests.outbox.scripted import (
    ASKABLE,
    DUMB,
    ScriptedChannel,
    attempts_of,
    deliver,
    intend_one,
    letter,
    outbox_with,
    state_of,
)
from tests.story import ORG, look, make_holdfast

MINUTE = timedelta(minutes=1)


def refusing(hf: Holdfast, word: str = "unauthorized") -> ScriptedChannel:
    channel = outbox_with(hf, DUMB)
    channel.otherwise = word
    return channel


def mend(channel: ScriptedChannel, *, credential: str | None = "key-2") -> None:
    """Let the channel accept messages again, with another credential or by itself."""
    channel.otherwise = "accepted"
    if credential is not None:
        channel.fingerprint = credential


def intend_many(hf: Holdfast, count: int) -> list[Intended]:
    return hf.outbox.intend([letter(f"r{number}") for number in range(count)], org_id=ORG)


def states(hf: Holdfast) -> set[tuple[str, str | None]]:
    rows = look(hf.store, "SELECT state, reason FROM holdfast.delivery")
    return {(row["state"], row["reason"]) for row in rows}


def alerts(hf: Holdfast) -> list[tuple[DeliveryTrouble, str]]:
    heard: list[tuple[DeliveryTrouble, str]] = []

    def hear(event: Event) -> None:
        if isinstance(event, DeliveryAlert):
            heard.append((event.what, event.detail))

    hf.events.subscribe(hear)
    return heard


@pytest.mark.req("R-07")
def test_a_refused_credential_holds_the_messages_of_its_channel(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = refusing(hf)
    heard = alerts(hf)
    made = intend_many(hf, 20)

    for _ in range(3):
        hf.outbox.deliver([one.id for one in made], org_id=ORG)
        clock.advance(minutes=1)

    assert len(channel.sends) == 1
    assert states(hf) == {("pending", "circuit_open")}
    assert heard == [(DeliveryTrouble.CHANNEL_REFUSED, "status_401")]


@pytest.mark.req("R-07")
@pytest.mark.parametrize("is_changed", [True, False])
def test_after_a_change_or_a_pause_one_probe_lets_everything_continue(
    hf: Holdfast, clock: FakeClock, is_changed: bool
) -> None:
    channel = refusing(hf)
    hf.outbox.post([letter(f"r{number}") for number in range(20)], org_id=ORG)
    hf.worker().run_once()
    sent = len(channel.sends)
    if is_changed:
        mend(channel)
    else:
        clock.advance(minutes=15)
        mend(channel, credential=None)
    seen: list[int] = []
    channel.during_send = lambda _: seen.append(len(channel.taken))

    hf.outbox.reconcile()
    clock.advance(minutes=2)
    hf.worker().run_once()

    assert sent == 1
    assert states(hf) == {("sent", None)}
    # All others were sent after the first one was accepted.
    assert seen[0] == 0
    assert all(number > 0 for number in seen[1:])
    assert set(channel.accepted.values()) == {1}
    (job,) = look(hf.store, "SELECT state, attempt_count FROM holdfast.job")
    assert (job["state"], job["attempt_count"]) == (State.COMPLETED, 0)
    assert look(hf.store, "SELECT * FROM holdfast.channel_circuit") == []


@pytest.mark.req("R-07", "R-28")
def test_a_refused_message_is_tried_eight_times_and_goes_out_when_the_key_is_right(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = refusing(hf)
    (one,) = hf.outbox.post([letter()], org_id=ORG)

    live_through(hf, clock, 24 * 6)
    tried = len(channel.sends)
    mend(channel)
    live_through(hf, clock, 2)

    assert tried == 8
    assert state_of(hf, one).state is Stands.SENT
    assert len(channel.sends) == 9


@pytest.mark.req("R-28")
@pytest.mark.parametrize("word", ["unreachable", "throttled", "rejected"])
def test_nothing_is_tried_more_than_ten_times(hf: Holdfast, clock: FakeClock, word: str) -> None:
    channel = refusing(hf, word)
    (one,) = hf.outbox.post([letter()], org_id=ORG)

    live_through(hf, clock, 12)

    stands = state_of(hf, one)
    assert (stands.state, stands.reason) == (Stands.FAILED, "attempts_spent")
    assert len(channel.sends) == 10


@pytest.mark.req("R-31")
@pytest.mark.parametrize("word", ["unreachable", "throttled"])
def test_an_outage_of_two_hours_costs_no_message(hf: Holdfast, clock: FakeClock, word: str) -> None:
    channel = refusing(hf, word)
    made = hf.outbox.post([letter(f"r{number}") for number in range(12)], org_id=ORG)

    live_through(hf, clock, 2)
    tried = len(channel.sends)
    channel.otherwise = "accepted"
    live_through(hf, clock, 1)

    # One message at a time tests whether the channel is available again.
    assert tried <= 12
    assert {state_of(hf, one).state for one in made} == {Stands.SENT}
    assert set(channel.accepted.values()) == {1}


def test_a_busy_channel_is_left_alone_for_as_long_as_it_asks(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    channel.script("throttled")
    made = intend_many(hf, 10)

    hf.outbox.deliver([one.id for one in made], org_id=ORG)
    clock.advance(seconds=119)
    hf.outbox.deliver([one.id for one in made], org_id=ORG)
    before = len(channel.sends)
    clock.advance(seconds=1)
    hf.outbox.deliver([one.id for one in made], org_id=ORG)

    assert before == 1
    assert len(channel.taken) == 10


def test_one_endpoint_that_refuses_us_holds_its_own_messages_only(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    channel.script("unauthorized_here")
    here = intend_one(hf, letter("ann"))
    deliver(hf, here)

    again = intend_one(hf, letter("ann", version=2))
    there = intend_one(hf, letter("bob"))
    hf.outbox.deliver([again.id, there.id], org_id=ORG)

    assert state_of(hf, here).state is Stands.PENDING
    assert state_of(hf, again).reason == "circuit_open"
    assert state_of(hf, there).state is Stands.SENT
    assert len(channel.sends) == 2


@pytest.mark.both_databases
def test_two_workers_send_one_probe(hf: Holdfast, url: str, clock: FakeClock) -> None:
    channel = refusing(hf)
    other = make_holdfast(url, clock)
    other.outbox.use(channel)
    made = intend_many(hf, 6)
    hf.outbox.deliver([one.id for one in made[:3]], org_id=ORG)
    other.outbox.deliver([one.id for one in made[3:]], org_id=ORG)
    clock.advance(minutes=15)
    before = len(channel.sends)

    def meanwhile(_: object) -> None:
        channel.during_send = None
        other.outbox.deliver([one.id for one in made[3:]], org_id=ORG)

    channel.during_send = meanwhile
    hf.outbox.deliver([one.id for one in made[:3]], org_id=ORG)

    assert before == 1
    assert len(channel.sends) == 2
    other.close()


@pytest.mark.both_databases
def test_messages_in_flight_when_the_first_is_refused_count_no_attempt(
    url: str,
) -> None:
    hf = Holdfast(settings=make_holdfast(url).settings)
    channel = refusing(hf)
    together = threading.Barrier(4)

    def during(_: object) -> None:
        if len(channel.sends) <= 4:
            together.wait(60)

    channel.during_send = during
    made = intend_many(hf, 30)
    hf.outbox.deliver([one.id for one in made], org_id=ORG)

    outcomes = [attempt["outcome"] for one in made for attempt in attempts_of(hf, one)]
    assert len(channel.sends) == 4
    assert set(outcomes) == {"channel_refused"}
    mend(channel)
    hf.outbox.deliver([one.id for one in made], org_id=ORG)
    assert states(hf) == {("sent", None)}
    hf.close()


@pytest.mark.req("N-17")
def test_a_question_waits_for_the_circuit_as_a_message_does(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf, ASKABLE)
    channel.script("lost_answer")
    unsure = intend_one(hf, letter("ann"))
    deliver(hf, unsure)
    channel.otherwise = "unauthorized"
    deliver(hf, intend_one(hf, letter("bob")))

    clock.advance(minutes=1)
    waits = deliver(hf, unsure)
    mend(channel)
    found = deliver(hf, unsure)

    assert (waits.state, waits.reason) == (Stands.PENDING, "circuit_open")
    assert len(channel.lookups) == 1
    assert found.state is Stands.SENT
    assert channel.capabilities.lookup is Lookup.BY_OUR_TOKEN


def test_a_changed_credential_is_pending_work_for_the_reconciler(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = refusing(hf)
    deliver(hf, intend_one(hf))
    task = ReconcileTask(hf.outbox)
    budget = type("Asked", (), {"profile": hf.settings.run_of("outbox_reconciler")})()

    clock.advance(minutes=5)
    before = task.count_pending(budget)  # type: ignore[arg-type]
    mend(channel)

    assert before == 0
    assert task.count_pending(budget) == 1  # type: ignore[arg-type]


def test_a_circuit_is_written_down_in_the_audit_and_leaves_the_data_whole(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = refusing(hf)
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    live_through(hf, clock, 2)
    mend(channel)
    live_through(hf, clock, 1)

    names = [
        row["name"]
        for row in look(hf.store, "SELECT name FROM holdfast.job_event ORDER BY id")
        if row["name"].startswith("channel.")
    ]
    assert names == ["channel.circuit_opened"] * 3 + ["channel.circuit_closed"]
    assert state_of(hf, one).state is Stands.SENT
    report = verify(hf.operate(actor="user:op", role="admin").context)
    assert [check.name for check in report.violated] == []


@pytest.mark.parametrize(
    ("kind", "minutes"),
    [("refused", [15, 60, 240, 960, 1440, 1440]), ("unavailable", [1 / 12, 1 / 3, 4 / 3])],
)
def test_each_pause_is_four_times_as_long_up_to_the_longest(
    hf: Holdfast, kind: str, minutes: list[float]
) -> None:
    own = hf.settings.outbox
    found = [pause_after(times, Trip(kind, "x"), own) / MINUTE for times in range(len(minutes))]

    assert found == pytest.approx(minutes)
    asked = Trip(kind, "x", timedelta(hours=9))
    assert pause_after(0, asked, own) == max(pause_after(0, Trip(kind, "x"), own), 5 * MINUTE)


def test_a_delivery_behind_a_circuit_can_be_dropped(hf: Holdfast) -> None:
    refusing(hf)
    one = intend_one(hf, replace(letter(), is_required=False))
    deliver(hf, one)

    hf.operate(actor="user:op", role="operator").deliveries.drop(one.id, reason="not needed")

    assert state_of(hf, one).state is Stands.DROPPED
