"""A process is killed at each point of a delivery, and another one continues."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.channel.channel import Capabilities, Lookup
from holdfast.outbox.delivery import Reason, State
from tests.failpoints import OutboxPoint as Point
from tests.failpoints import install
from tests.outbox.scripted import ASKABLE, DUMB, WINDOW, ScriptedChannel, attempts_of, letter
from tests.story import ORG, look, make_holdfast


class Died(BaseException):
    """Simulates a killed process: nothing after this runs, and nothing is cleaned up."""


WEBHOOK = Capabilities(receiver_dedupes=True)
CHANNELS = {
    "askable": ASKABLE,
    "prompt": Capabilities(lookup=Lookup.BY_OUR_TOKEN),
    "window": WINDOW,
    "dedupes": WEBHOOK,
    "mute": DUMB,
}
FAULTS = ("accepted", "lost_answer", "lost_message", "rejected")


def deaths() -> Iterator[tuple[str, Point, str, str]]:
    """Every point with every channel, on SQLite or PostgreSQL.

    A channel with a lookup and one without have every fault at every point, the others one fault at
    each.
    """
    for (at, point), (place, kind) in itertools.product(enumerate(Point), enumerate(CHANNELS)):
        fault = FAULTS[(at + place) % len(FAULTS)]
        if kind in ("askable", "mute"):
            yield from (("sqlite", point, kind, one) for one in FAULTS)
            yield "postgres", point, kind, fault
        else:
            yield ("sqlite", "postgres")[(at + place) % 2], point, kind, fault


def die_at(hf: Holdfast, point: Point, nth: int = 1) -> None:
    counter = itertools.count(1)

    def reached(at: Point) -> None:
        if at is point and next(counter) == nth:
            raise Died

    install(hf, Point, reached)


def work(hf: Holdfast) -> None:
    """Intend, and process the delivery twice."""
    hf.outbox.intend([letter(), letter("bob")], org_id=ORG)
    for _ in range(2):
        assert isinstance(hf.clock, FakeClock)
        hf.clock.advance(minutes=2)
        hf.outbox.reconcile()


def live_on(url: str, clock: FakeClock, channel: ScriptedChannel) -> Holdfast:
    """Run another process, again and again, until no work is left."""
    hf = make_holdfast(url, clock)
    hf.outbox.use(channel)
    hf.outbox.intend([letter(), letter("bob")], org_id=ORG)
    for _ in range(12):
        clock.advance(minutes=6)
        hf.outbox.reconcile()
        if not look(hf.store, "SELECT id FROM holdfast.delivery WHERE state = 'pending'"):
            break
    # Once more: a worker without work must change nothing.
    clock.advance(minutes=6)
    hf.outbox.reconcile()
    return hf


@pytest.mark.req("I-18")
@pytest.mark.req("N-17")
@pytest.mark.parametrize(("url", "point", "kind", "fault"), list(deaths()), indirect=["url"])
def test_a_crash_at_any_point_sends_no_message_twice(
    url: str, clock: FakeClock, point: Point, kind: str, fault: str
) -> None:
    channel = ScriptedChannel(clock, CHANNELS[kind])
    channel.script(fault)
    hf = make_holdfast(url, clock)
    hf.outbox.use(channel)
    die_at(hf, point)
    is_asked = kind in ("askable", "prompt") and fault in ("lost_answer", "lost_message")
    if point is not Point.AFTER_LOOKUP or is_asked:
        with pytest.raises(Died):
            work(hf)
    else:
        work(hf)
    hf.close()

    hf = live_on(url, clock, channel)
    assert max(channel.accepted.values(), default=0) <= 1
    stands = look(hf.store, "SELECT id, state, token, reason FROM holdfast.delivery")
    for row in stands:
        assert row["state"] in (State.SENT, State.HELD)
        if row["state"] == State.SENT:
            assert channel.accepted[row["token"]] == 1
        else:
            # An operator has to decide only if the channel has no lookup.
            assert kind == "mute"
    _check_reasons(hf)
    hf.close()


def _check_reasons(hf: Holdfast) -> None:
    """Every send after the first has a reason, and the same body."""
    for made in hf.outbox.intend([letter(), letter("bob")], org_id=ORG):
        tries = attempts_of(hf, made)
        assert [row["number"] for row in tries] == list(range(1, len(tries) + 1))
        assert len({row["body_hash"] for row in tries}) <= 1
        for row in tries[1:]:
            assert row["reason"] != Reason.FIRST


@pytest.mark.parametrize("point", [Point.AFTER_ATTEMPT, Point.AFTER_SEND, Point.BEFORE_MARK])
def test_without_a_lookup_a_crash_around_the_send_is_held(
    url: str, clock: FakeClock, point: Point
) -> None:
    channel = ScriptedChannel(clock, DUMB)
    hf = make_holdfast(url, clock)
    hf.outbox.use(channel)
    (one,) = hf.outbox.intend([letter()], org_id=ORG)
    die_at(hf, point)
    with pytest.raises(Died):
        hf.outbox.deliver([one.id], org_id=ORG)
    hf.close()

    hf = make_holdfast(url, clock)
    hf.outbox.use(channel)
    sends = len(channel.sends)
    clock.advance(minutes=10)
    hf.outbox.reconcile()
    (stands,) = hf.outbox.find([one.id], org_id=ORG)
    assert (stands.state, stands.reason) == (State.HELD, "unknown")
    assert len(channel.sends) == sends
    hf.close()
