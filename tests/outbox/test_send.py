"""Sending: the attempt before the call, the mark after it, and one message in every case."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from holdfast import FakeClock, Holdfast, Settings, State
from holdfast.channel.channel import Capabilities, Lookup, OnUnknown
from holdfast.channel.message import Message
from holdfast.clock import SystemClock
from holdfast.config import ChannelSettings
from holdfast.event import DeliveryAlert, DeliveryTrouble, Event
from holdfast.outbox.attempt import RETRY
from holdfast.outbox.decide import Policy
from holdfast.outbox.delivery import State as Stands
from holdfast.outbox.intend import Intended
from tests.failpoints import OutboxPoint as Point
from tests.failpoints import install
from tests.outbox.scripted import (
    ASKABLE,
    DUMB,
    WINDOW,
    attempts_of,
    deliver,
    evidence_of,
    intend_one,
    letter,
    outbox_with,
    state_of,
)
from tests.story import ORG, by_hand, look, make_holdfast


def reasons(hf: Holdfast, one: Intended) -> list[tuple[str, str | None]]:
    return [(row["reason"], row["outcome"]) for row in attempts_of(hf, one)]


def alerts(hf: Holdfast) -> list[DeliveryTrouble]:
    heard: list[DeliveryTrouble] = []

    def hear(event: Event) -> None:
        if isinstance(event, DeliveryAlert):
            heard.append(event.what)

    hf.events.subscribe(hear)
    return heard


@pytest.mark.req("N-08")
def test_a_message_is_sent_and_then_marked_in_one_write(hf: Holdfast) -> None:
    channel = outbox_with(hf)
    one = intend_one(hf)
    stands = deliver(hf, one)
    assert stands.state is Stands.SENT
    assert stands.notification_id == f"id-{stands.token[-6:]}"
    assert stands.notified_at == hf.clock.now()
    (message,) = channel.sends
    assert (message.token, message.address) == (stands.token, "ann@example.com")
    assert (message.subject, message.text) == ("A review", "Hello.")
    assert message.data == {"findings": 2, "share": 1e22}
    assert reasons(hf, one) == [("first", "accepted")]


@pytest.mark.req("N-08")
@pytest.mark.req("N-15")
@pytest.mark.req("N-22")
def test_the_try_is_on_record_and_nothing_is_marked_while_the_channel_is_called(
    hf: Holdfast, url: str
) -> None:
    channel = outbox_with(hf)
    other = make_holdfast(url, FakeClock())
    seen: list[tuple[Any, ...]] = []

    def during(message: Message) -> None:
        stands = other.outbox.find([one.id], org_id=ORG)[0]
        # No assertions in here: an exception of a channel is not an answer, and the test does not
        # see it.
        marks = (stands.state, stands.notified_at, stands.notification_id, stands.attempts)
        seen.append((*marks, reasons(other, one)))

    channel.during_send = during
    one = intend_one(hf)
    deliver(hf, one)
    assert seen == [(Stands.PENDING, None, None, 1, [("first", None)])]
    other.close()


@pytest.mark.req("N-07")
@pytest.mark.req("N-11")
def test_what_is_marked_is_not_sent_again(hf: Holdfast) -> None:
    channel = outbox_with(hf)
    one = intend_one(hf)
    for _ in range(3):
        deliver(hf, one)
        deliver(hf, intend_one(hf))
    assert len(channel.sends) == 1


def test_a_page_is_sent_with_as_many_statements_as_one_delivery(hf: Holdfast) -> None:
    outbox_with(hf)
    counted: list[int] = []
    for size in (1, 40):
        made = hf.outbox.intend([letter(f"{size}-{number}") for number in range(size)], org_id=ORG)
        statements = 0
        tx_type = _tx_type(hf)
        fetch = tx_type._fetch

        def counting(self: Any, *args: Any, fetch: Any = fetch) -> Any:
            nonlocal statements
            statements += 1
            return fetch(self, *args)

        tx_type._fetch = counting
        try:
            tally = hf.outbox.deliver([one.id for one in made], org_id=ORG)
        finally:
            tx_type._fetch = fetch
        assert tally["sent"] == size
        counted.append(statements)
    assert counted[0] == counted[1]


def _tx_type(hf: Holdfast) -> Any:
    return hf.store.read(lambda tx: type(tx))


@pytest.mark.req("R-31")
def test_the_pause_before_the_next_try_doubles_up_to_half_an_hour(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    channel.script(*["rejected"] * 10)
    one = intend_one(hf)
    pauses: list[float] = []
    # Full jitter draws between zero and the whole delay.
    with mock.patch.object(hf.outbox.rng, "uniform", lambda least, most: most):
        for _ in range(9):
            until = deliver(hf, one).not_before_at
            assert until is not None
            pauses.append((until - clock.now()).total_seconds())
            clock.advance(seconds=pauses[-1])
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 1280]
    assert RETRY.longest == timedelta(minutes=30)


@pytest.mark.req("R-31")
def test_a_channel_without_room_gets_it_again_later_under_the_same_token(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    channel.script("throttled", "rejected")
    one = intend_one(hf)
    stands = deliver(hf, one)
    assert stands.state is Stands.PENDING
    assert stands.not_before_at is not None
    assert (stands.not_before_at - clock.now()).total_seconds() == 120
    deliver(hf, one)
    assert len(channel.sends) == 1
    clock.advance(seconds=120)
    deliver(hf, one)
    clock.advance(minutes=30)
    assert deliver(hf, one).state is Stands.SENT
    assert len({message.token for message in channel.sends}) == 1
    assert reasons(hf, one) == [
        ("first", "throttled"),
        ("proven_not_taken", "rejected"),
        ("proven_not_taken", "accepted"),
    ]


@pytest.mark.req("N-16")
def test_a_refusal_for_good_ends_it_and_says_so(hf: Holdfast) -> None:
    channel = outbox_with(hf)
    heard = alerts(hf)
    channel.script("refused")
    one = intend_one(hf)
    stands = deliver(hf, one)
    assert (stands.state, stands.reason) == (Stands.FAILED, "no_such_address")
    assert heard == [DeliveryTrouble.FAILED]
    deliver(hf, one)
    assert len(channel.sends) == 1


@pytest.mark.req("R-28")
def test_a_message_that_is_rejected_ten_times_fails(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    channel.script(*["rejected"] * 60)
    one = intend_one(hf)
    for _ in range(20):
        deliver(hf, one)
        clock.advance(hours=2)
    stands = state_of(hf, one)
    assert (stands.state, stands.reason) == (Stands.FAILED, "attempts_spent")
    assert len(channel.sends) == 10


@pytest.mark.req("N-17")
@pytest.mark.parametrize("word", ["lost_answer", "lost_message", "crash"])
def test_a_channel_that_can_be_asked_takes_one_message_whatever_it_answers(
    hf: Holdfast, clock: FakeClock, word: str
) -> None:
    channel = outbox_with(hf, ASKABLE)
    channel.script(word)
    one = intend_one(hf)
    assert deliver(hf, one).state is Stands.PENDING
    assert deliver(hf, one).state is Stands.PENDING
    clock.advance(seconds=31)
    stands = deliver(hf, one)
    assert stands.state is Stands.SENT
    assert channel.accepted[stands.token] == 1
    assert len(channel.lookups) == 1
    was_lost = word == "lost_message"
    assert evidence_of(hf, one) == [("lookup", "not_found" if was_lost else "taken")]
    assert len(channel.sends) == (2 if was_lost else 1)


def test_a_channel_with_a_window_gets_it_again_within_it_and_never_after(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, WINDOW)
    channel.script("lost_answer", "lost_answer")
    one, late = intend_one(hf), intend_one(hf, letter("late"))
    deliver(hf, one)
    deliver(hf, late)
    clock.advance(minutes=5)
    stands = deliver(hf, one)
    assert stands.state is Stands.SENT
    assert channel.accepted[stands.token] == 1
    assert reasons(hf, one)[-1] == ("idempotent_window", "accepted")
    clock.advance(minutes=60)
    held = deliver(hf, late)
    assert (held.state, held.reason) == (Stands.HELD, "unknown")
    assert len(channel.sends) == 3


@pytest.mark.parametrize(
    ("on_unknown", "state", "trouble", "sends"),
    [
        (OnUnknown.HOLD, Stands.HELD, DeliveryTrouble.HELD, 1),
        (OnUnknown.DROP, Stands.DROPPED, DeliveryTrouble.MAYBE_LOST, 1),
        (OnUnknown.RESEND, Stands.SENT, DeliveryTrouble.MAYBE_TWICE, 2),
    ],
)
def test_without_a_lookup_the_setting_on_unknown_decides_and_an_alert_is_sent(
    hf: Holdfast,
    clock: FakeClock,
    on_unknown: OnUnknown,
    state: Stands,
    trouble: DeliveryTrouble,
    sends: int,
) -> None:
    channel = outbox_with(hf, DUMB, on_unknown=on_unknown)
    heard = alerts(hf)
    channel.script("lost_answer")
    one = intend_one(hf)
    deliver(hf, one)
    clock.advance(minutes=30)
    assert deliver(hf, one).state is state
    assert heard == [trouble]
    assert len(channel.sends) == sends


@pytest.mark.req("N-10")
def test_a_delivery_marked_in_the_meantime_is_not_sent(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    channel.script("lost_message")
    other = make_holdfast(url, clock)
    one = intend_one(hf)
    deliver(hf, one)
    clock.advance(minutes=1)

    def confirm(point: Point) -> None:
        if point is Point.AFTER_LOOKUP:
            by_hand(
                other.store,
                "UPDATE holdfast.delivery SET state = 'sent', notified_at = {now},"
                " ended_at = {now}, confirmed_by = 'user:ann', fence = fence + 1 WHERE id = :id",
                id=one.id,
            )

    install(hf, Point, confirm)
    assert deliver(hf, one).confirmed_by == "user:ann"
    assert len(channel.sends) == 1
    assert evidence_of(hf, one) == []
    other.close()


def test_two_matches_are_held(hf: Holdfast, clock: FakeClock) -> None:
    fuzzy = Capabilities(lookup=Lookup.FUZZY, settle_seconds=30)
    channel = outbox_with(hf, fuzzy)
    heard = alerts(hf)
    before = intend_one(hf, letter(subject="review:cl-0"))
    deliver(hf, before)
    channel.script("lost_answer")
    one = intend_one(hf)
    deliver(hf, one)
    clock.advance(seconds=31)
    assert deliver(hf, one).reason == "several_found"
    assert heard == [DeliveryTrouble.SEVERAL_MATCHES]


def test_a_lookup_that_is_down_is_asked_again_and_nothing_is_sent_meanwhile(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    channel.script("lost_answer")
    channel.is_lookup_down = True
    one = intend_one(hf)
    deliver(hf, one)
    for _ in range(3):
        clock.advance(minutes=31)
        assert deliver(hf, one).state is Stands.PENDING
    channel.is_lookup_down = False
    clock.advance(minutes=31)
    assert deliver(hf, one).state is Stands.SENT
    assert len(channel.sends) == 1
    assert [verdict for _, verdict in evidence_of(hf, one)] == ["unreachable"] * 3 + ["taken"]


def test_two_workers_send_it_once(hf: Holdfast, url: str, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    other = make_holdfast(url, clock)
    other.outbox.use(channel)
    one = intend_one(hf)
    channel.during_send = lambda _: other.outbox.deliver([one.id], org_id=ORG)
    assert deliver(hf, one).state is Stands.SENT
    assert len(channel.sends) == 1
    other.close()


def test_an_answer_that_comes_after_the_lease_is_kept_and_marks_it_later(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    other = make_holdfast(url, clock)
    other.outbox.use(channel)
    one = intend_one(hf)

    def during(message: Message) -> None:
        # The call takes longer than the lease, and another worker takes the delivery.
        channel.during_send = None
        clock.advance(seconds=301)
        other.outbox.deliver([one.id], org_id=ORG)
        assert state_of(other, one).state is Stands.HELD

    channel.during_send = during
    stands = deliver(hf, one)
    assert stands.state is Stands.HELD
    assert evidence_of(hf, one) == [("late_answer", "taken")]
    assert reasons(hf, one) == [("first", "accepted")]
    hf.outbox.reconcile()
    stands = state_of(hf, one)
    assert (stands.state, stands.notification_id) == (Stands.SENT, f"id-{stands.token[-6:]}")
    assert len(channel.sends) == 1
    other.close()


def test_a_lease_lost_before_the_attempt_sends_nothing(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    other = make_holdfast(url, clock)
    other.outbox.use(channel)
    one = intend_one(hf)
    policy, is_late = hf.outbox.policy, False

    def stall(name: str) -> Policy:
        # It has leased and read the delivery, and is about to decide.
        nonlocal is_late
        if not is_late:
            is_late = True
            clock.advance(seconds=301)
            other.outbox.deliver([one.id], org_id=ORG)
        return policy(name)

    with mock.patch.object(hf.outbox, "policy", stall):
        tally = hf.outbox.deliver([one.id], org_id=ORG)

    assert is_late
    assert (tally["taken"], tally["tried"], tally["lost"]) == (1, 0, 1)
    assert state_of(hf, one).state is Stands.SENT
    assert reasons(hf, one) == [("first", "accepted")]
    assert len(channel.sends) == 1
    other.close()


def test_a_lease_lost_to_a_worker_that_has_not_sent_yet_sends_nothing(
    hf: Holdfast,
) -> None:
    """The delivery is pending and has no attempt: only the fence shows that it was taken."""
    channel = outbox_with(hf)
    one = intend_one(hf)
    policy, is_late = hf.outbox.policy, False

    def stall(name: str) -> Policy:
        nonlocal is_late
        if not is_late:
            is_late = True
            by_hand(hf.store, "UPDATE holdfast.delivery SET fence = fence + 1")
        return policy(name)

    with mock.patch.object(hf.outbox, "policy", stall):
        tally = hf.outbox.deliver([one.id], org_id=ORG)

    assert (tally["taken"], tally["tried"], tally["lost"]) == (1, 0, 1)
    assert (channel.sends, attempts_of(hf, one)) == ([], [])


def test_a_lost_lease_marks_nothing(hf: Holdfast, url: str, clock: FakeClock) -> None:
    channel = outbox_with(hf, Capabilities(lookup=Lookup.BY_OUR_TOKEN))
    other = make_holdfast(url, clock)
    other.outbox.use(channel)
    channel.script("refused", "throttled")
    one = intend_one(hf)

    def during(message: Message) -> None:
        channel.during_send = None
        clock.advance(seconds=301)
        other.outbox.deliver([one.id], org_id=ORG)

    channel.during_send = during
    tally = hf.outbox.deliver([one.id], org_id=ORG)
    assert (tally["lost"], tally["failed"]) == (1, 0)
    assert state_of(hf, one).state is Stands.PENDING
    assert reasons(hf, one) == [("first", "refused"), ("looked_up_not_found", "throttled")]
    clock.advance(seconds=121)
    assert deliver(hf, one).state is Stands.SENT
    assert channel.accepted.total() == 1
    other.close()


def test_a_channel_that_is_not_configured_here_keeps_it_waiting(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    heard = alerts(hf)
    channel.name = "pigeons"
    hf.outbox.use(channel)
    one = intend_one(hf, replace(letter(), channel="pigeons"))
    del hf.outbox._added["pigeons"]
    assert deliver(hf, one).state is Stands.PENDING
    assert heard == [DeliveryTrouble.CHANNEL_UNUSABLE]
    hf.outbox.use(channel)
    clock.advance(minutes=5)
    assert deliver(hf, one).state is Stands.SENT


def test_a_channel_without_its_credential_is_distinguished_from_an_undeclared_one(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = ChannelSettings(kind="slack", credential_env="TEAM_TOKEN")
    monkeypatch.delenv("TEAM_TOKEN", raising=False)
    # The process that intends declares both channels, the one that sends declares one.
    hf.settings = replace(hf.settings, channels={"team": team, "pigeons": team})
    intended = [
        intend_one(hf, replace(letter(), channel=name, address="C0123456789", version=number))
        for number, name in enumerate(("team", "pigeons"), 1)
    ]
    hf.settings = replace(hf.settings, channels={"team": team})
    heard: list[str] = []
    hf.events.subscribe(lambda one: heard.append(getattr(one, "detail", "")))
    for one in intended:
        hf.outbox.deliver([one.id], org_id=ORG)
    assert [one for one in heard if one] == ["cannot_be_opened", "not_configured"]


def test_the_job_of_a_delivery_is_repeated_until_it_is_done(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    channel.script("rejected", "lost_answer")
    (one,) = hf.outbox.post([letter()], org_id=ORG)
    for _ in range(6):
        hf.worker().run_once()
        clock.advance(minutes=1)
    assert state_of(hf, one).state is Stands.SENT
    (job,) = look(hf.store, "SELECT state, attempt_count FROM holdfast.job")
    assert (job["state"], job["attempt_count"]) == (State.COMPLETED, 0)
    assert channel.accepted.total() == 1


@pytest.mark.parametrize("is_required", [True, False])
def test_the_job_fails_if_a_required_recipient_cannot_be_reached(
    hf: Holdfast, is_required: bool
) -> None:
    channel = outbox_with(hf)
    channel.script("refused")
    hf.outbox.post([replace(letter(), is_required=is_required), letter("bob")], org_id=ORG)
    hf.worker().run_once()
    (job,) = look(hf.store, "SELECT state FROM holdfast.job")
    assert job["state"] == (State.FAILED if is_required else State.COMPLETED)
    assert len(channel.taken) == 1


class SteppingClock(SystemClock):
    """A clock whose first wait ends on request and whose second wait is recorded."""

    def __init__(self) -> None:
        self.may_go, self.has_gone = threading.Event(), threading.Event()
        self._waits = itertools.count(1)

    def wait(self, event: threading.Event, timeout: float) -> bool:
        if next(self._waits) == 1:
            self.may_go.wait(30)
            return event.is_set()
        self.has_gone.set()
        return event.wait(30)


@pytest.mark.both_databases
def test_a_lease_lasts_as_long_as_the_call_that_needs_it(url: str) -> None:
    clock = SteppingClock()
    hf, other = (Holdfast(settings=Settings(db=url), clock=clock) for _ in range(2))
    channel = outbox_with(hf)
    other.outbox.use(channel)
    one = intend_one(hf)

    def during(message: Message) -> None:
        by_hand(hf.store, "UPDATE holdfast.delivery SET lease_expires_at = {later(-1000)}")
        clock.may_go.set()
        assert clock.has_gone.wait(30)
        assert other.outbox.deliver([one.id], org_id=ORG)["taken"] == 0

    channel.during_send = during
    assert deliver(hf, one).state is Stands.SENT
    assert len(channel.sends) == 1
    hf.close()
    other.close()


@pytest.mark.both_databases
def test_what_another_worker_took_while_it_waited_for_its_turn_is_not_handed_over(url: str) -> None:
    clock = SteppingClock()
    hf = Holdfast(settings=Settings(db=url), clock=clock)
    channel = outbox_with(hf)
    together, through = threading.Barrier(4), threading.Barrier(4)

    def during(message: Message) -> None:
        if len(channel.sends) > 4:
            return
        if together.wait(30) == 0:
            # Four are in flight. Another worker takes the fifth; then the lease of all is renewed.
            sent = {f"t{number}": one.token for number, one in enumerate(channel.sends)}
            by_hand(
                hf.store,
                "UPDATE holdfast.delivery SET fence = fence + 1"
                " WHERE token NOT IN (:t0, :t1, :t2, :t3)",
                **sent,
            )
            clock.may_go.set()
            assert clock.has_gone.wait(30)
        through.wait(30)

    channel.during_send = during
    made = hf.outbox.intend([letter(f"r{number}") for number in range(5)], org_id=ORG)
    tally = hf.outbox.deliver([one.id for one in made], org_id=ORG)
    assert (tally["sent"], tally["lost"]) == (4, 1)
    assert len(channel.sends) == 4
    hf.close()


@pytest.mark.both_databases
def test_several_messages_are_handed_over_at_once(url: str) -> None:
    hf = Holdfast(settings=Settings(db=url))
    channel = outbox_with(hf)
    # Each send waits for the others: in sequence they would wait for ever.
    together = threading.Barrier(4)
    channel.during_send = lambda _: together.wait(30)
    made = hf.outbox.intend([letter(f"r{number}") for number in range(8)], org_id=ORG)
    assert hf.outbox.deliver([one.id for one in made], org_id=ORG)["sent"] == 8
    assert set(channel.accepted.values()) == {1}
    hf.close()


def test_no_word_of_a_message_is_in_the_audit_or_the_events(hf: Holdfast) -> None:
    channel = outbox_with(hf)
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    channel.script("refused", "accepted", "crash")
    for name in ("ann", "bob", "cyd"):
        deliver(hf, intend_one(hf, letter(name, text="canary-words")))
    told = repr(heard) + repr(look(hf.store, "SELECT * FROM holdfast.job_event"))
    assert "delivery.sent" in told
    for canary in ("canary-words", "example.com", "words of a message"):
        assert canary not in told
