"""A group of deliveries: a fault of one does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.channel.channel import (
    Accepted,
    Ambiguous,
    Found,
    LookupFailed,
    LookupKey,
    OnUnknown,
    Rejected,
    Throttled,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.event import Event
from holdfast.outbox.decide import Policy
from holdfast.outbox.delivery import Content, State
from holdfast.outbox.intend import Intended, write_content
from holdfast.store import Tx
from tests.engine.planting import plant
from tests.outbox.planted import plant_evidence
from tests.outbox.scripted import (
    DUMB,
    WINDOW,
    ScriptedChannel,
    attempts_of,
    letter,
    outbox_with,
    state_of,
)
from tests.story import ORG, look, make_holdfast


def intend_two(hf: Holdfast, version: int = 1) -> tuple[Intended, Intended]:
    both = [letter(name, version=version) for name in ("ann", "bob")]
    ann, bob = hf.outbox.intend(both, org_id=ORG)
    return ann, bob


def deliver_all(hf: Holdfast, *made: Intended) -> list[State]:
    hf.outbox.deliver([one.id for one in made], org_id=ORG, worker_id="w1")
    found = {one.id: one.state for one in hf.outbox.find([one.id for one in made], org_id=ORG)}
    return [found[one.id] for one in made if one.id in found]


def answering(channel: ScriptedChannel, method: str, answer: Any) -> Any:
    """The channel answers *answer* for ann, and normally for all others."""
    usual: Callable[[Any], Any] = getattr(channel, method)

    def odd(about: Message | LookupKey) -> Any:
        return answer if about.address.startswith("ann") else usual(about)

    return mock.patch.object(channel, method, odd)


# -- a broken delivery


def test_an_unreadable_content_fails_alone(hf: Holdfast) -> None:
    channel = outbox_with(hf, DUMB)
    contents = ("NULL", "'{\"subject\"'", "'[]'", "'{\"nobody\": 1}'")
    for version, content in enumerate(contents, 1):
        ann, bob = intend_two(hf, version)
        plant(hf, f"UPDATE holdfast.delivery SET content = {content} WHERE id = :id", id=ann.id)
        assert deliver_all(hf, ann, bob) == [State.FAILED, State.SENT], content
    assert [message.address for message in channel.sends] == ["bob@example.com"] * len(contents)


def test_content_that_was_changed_after_the_intent_is_not_sent(hf: Holdfast) -> None:
    """It can be read, but differs from the frozen message."""
    channel = outbox_with(hf, DUMB)
    ann, bob = intend_two(hf)
    edited = write_content(Content("A review", "Send me money.", None, {}))
    plant(hf, "UPDATE holdfast.delivery SET content = :new WHERE id = :id", new=edited, id=ann.id)

    assert deliver_all(hf, ann, bob) == [State.FAILED, State.SENT]

    assert [message.address for message in channel.sends] == ["bob@example.com"]
    assert [row["code"] for row in attempts_of(hf, ann)] == ["content_gone"]


ANSWERS: list[tuple[Any, State]] = [
    (None, State.HELD),
    ("accepted", State.HELD),
    (Throttled("busy", float("nan")), State.HELD),
    (Rejected(None, is_permanent=True), State.FAILED),  # type: ignore[arg-type]
    (Rejected("no\0such", is_permanent=True), State.FAILED),
    (Unsure("time\0out", "m\0"), State.HELD),
    (Accepted(None), State.SENT),  # type: ignore[arg-type]
    (Accepted("m\0"), State.SENT),
    (Accepted("m" * 100_000), State.SENT),
    # The last one, because its address is not used afterwards.
    (Throttled("busy", float("inf")), State.PENDING),
]


def test_an_unstorable_answer_affects_no_other_delivery(hf: Holdfast) -> None:
    channel = outbox_with(hf, replace(DUMB, is_per_endpoint=True))
    for version, (answer, stands) in enumerate(ANSWERS, 1):
        ann, bob = intend_two(hf, version)
        with answering(channel, "send", answer):
            assert deliver_all(hf, ann, bob) == [stands, State.SENT], version
        if stands is State.SENT:
            # It is accepted, with no other id than our own.
            assert state_of(hf, ann).notification_id == state_of(hf, ann).token


LOOKS: list[tuple[Any, State]] = [
    (None, State.PENDING),
    (LookupFailed("down\0"), State.PENDING),
    (Ambiguous("two\0"), State.HELD),  # type: ignore[arg-type]
    (Found("m\0"), State.SENT),
]


def test_an_unreadable_lookup_affects_no_other_delivery(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf)
    for version, (answer, stands) in enumerate(LOOKS, 1):
        channel.script("lost_answer", "lost_answer")
        ann, bob = intend_two(hf, version)
        assert deliver_all(hf, ann, bob) == [State.PENDING, State.PENDING]
        clock.advance(seconds=100)
        with answering(channel, "lookup", answer):
            assert deliver_all(hf, ann, bob) == [stands, State.SENT], version
        assert len(channel.sends) == 2 * version


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("send", Rejected("ann@example.com has no box", is_permanent=True)),
        ("send", Unsure("could not say: canary-words")),
        ("lookup", LookupFailed("nothing for ann@example.com: canary-words")),
    ],
)
def test_a_channel_that_quotes_its_message_is_not_quoted(
    hf: Holdfast, clock: FakeClock, method: str, answer: Any
) -> None:
    channel = outbox_with(hf)
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    channel.script("lost_answer")
    (ann,) = hf.outbox.intend([letter("ann")], org_id=ORG)
    with answering(channel, method, answer):
        for _ in range(2):
            deliver_all(hf, ann)
            clock.advance(seconds=100)
    tables = ("job_event", "delivery_attempt", "delivery_evidence")
    told = repr(heard) + "".join(
        repr(look(hf.store, f"SELECT * FROM holdfast.{table}")) for table in tables
    )
    assert heard
    assert "unreadable" in told
    for canary in ("example.com", "canary-words"):
        assert canary not in told


# -- a delivery that is erased meanwhile


def test_an_erasure_during_a_send_keeps_the_marks_of_others(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB)
    ann, bob = intend_two(hf)
    other = make_holdfast(url, clock)

    def during(message: Message) -> None:
        # The call takes longer than the lease, so that what it sends can be erased.
        if message.address.startswith("bob"):
            return
        clock.advance(seconds=301)
        other.outbox.erase("ann", org_id=ORG)

    channel.during_send = during
    # Bob's delivery waits for her call longer than its lease is certain to last.
    assert deliver_all(hf, ann, bob)[-1] in (State.SENT, State.PENDING)
    assert look(hf.store, "SELECT recipient FROM holdfast.delivery") == [{"recipient": "bob"}]
    assert attempts_of(hf, bob)[0]["outcome"] is not None
    other.close()


def test_who_is_erased_before_the_question_is_not_asked_about(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    channel.script("lost_answer", "lost_answer")
    ann, bob = intend_two(hf)
    deliver_all(hf, ann, bob)
    clock.advance(seconds=100)
    other = make_holdfast(url, clock)
    policy = hf.outbox.policy

    def stall(name: str) -> Policy:
        # It has leased and read the deliveries, and is about to decide.
        if len(look(other.store, "SELECT 1 AS one FROM holdfast.delivery")) == 2:
            clock.advance(seconds=301)
            other.outbox.erase("ann", org_id=ORG)
        return policy(name)

    with mock.patch.object(hf.outbox, "policy", stall):
        assert deliver_all(hf, ann, bob) == [State.SENT]
    assert [asked.address for asked in channel.lookups] == ["bob@example.com"]
    other.close()


# -- changes between the decision and the call


def before_the_try(hf: Holdfast, happens: Callable[[], object]) -> Any:
    """Call a function after the decision, before the attempts are written."""
    write, count = hf.store.write, 0

    def writing(work: Callable[[Tx], Any]) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            happens()
        return write(work)

    return mock.patch.object(hf.store, "write", writing)


def test_an_answer_that_is_heard_after_the_decision_stops_the_repeat(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    channel = outbox_with(hf, DUMB, on_unknown=OnUnknown.RESEND)
    channel.script("lost_answer")
    (ann,) = hf.outbox.intend([letter("ann")], org_id=ORG)
    deliver_all(hf, ann)
    clock.advance(seconds=1_801)
    other = make_holdfast(url, clock)

    def answer() -> None:
        plant_evidence(other, ann.id, "late_answer", "taken", provider_id="m-1")

    with before_the_try(hf, answer):
        tally = hf.outbox.deliver([ann.id], org_id=ORG)
    assert (tally["taken"], tally["tried"], tally["lost"]) == (1, 0, 1)
    clock.advance(seconds=301)
    assert deliver_all(hf, ann) == [State.SENT]
    assert (len(channel.sends), state_of(hf, ann).notification_id) == (1, "m-1")
    other.close()


def test_a_repeat_that_waits_for_its_turn_until_the_window_is_over_is_not_sent(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf, WINDOW)
    channel.script("lost_answer", "lost_answer")
    ann, bob = intend_two(hf)
    assert deliver_all(hf, ann, bob) == [State.PENDING, State.PENDING]
    clock.advance(seconds=3_500)
    channel.during_send = lambda _: clock.advance(seconds=50)
    assert sorted(deliver_all(hf, ann, bob)) == [State.HELD, State.SENT]
    assert len(channel.sends) == 3
    assert set(channel.accepted.values()) == {1}


def test_a_try_whose_commit_was_not_answered_is_one_try(hf: Holdfast, clock: FakeClock) -> None:
    channel = outbox_with(hf, DUMB)
    channel.script("rejected")
    (ann,) = hf.outbox.intend([letter("ann")], org_id=ORG)
    write, count = hf.store.write, 0

    def writing(work: Callable[[Tx], Any]) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            # It was committed, the connection broke, and the store runs the work again.
            write(work)
        return write(work)

    with mock.patch.object(hf.store, "write", writing):
        hf.outbox.deliver([ann.id], org_id=ORG)
    tries = [(row["number"], row["reason"], row["outcome"]) for row in attempts_of(hf, ann)]
    assert tries == [(1, "first", "rejected")]
    clock.advance(seconds=1_801)
    assert deliver_all(hf, ann) == [State.SENT]
    assert len(channel.sends) == 2
