"""In-app notifications: a message is in a feed once, and only its own reader can read it."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, StoreDown
from holdfast.channel.channel import (
    Accepted,
    Found,
    LookupFailed,
    LookupKey,
    NotFound,
    Rejected,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.errors import RuleBroken
from holdfast.outbox.delivery import Identity
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.in_app import Feed, InAppChannel
from holdfast.store import Store, open_store
from tests.story import ORG, OTHER_ORG, by_hand, look


@pytest.fixture
def channel(hf: Holdfast) -> InAppChannel:
    return InAppChannel(lambda: hf.store, hf.ids)


@pytest.fixture
def feed(hf: Holdfast) -> Feed:
    return Feed(lambda: hf.store)


def intend(
    hf: Holdfast,
    subject: str,
    *,
    recipient: str = "ada",
    org_id: str = ORG,
    channel: str = "in_app",
    token: str | None = None,
) -> Message:
    """A delivery that waits for a feed, as the outbox passes it to the channel."""
    token = token or Identity(org_id, subject, recipient, 1).token("key")
    by_hand(
        hf.store,
        "INSERT INTO holdfast.delivery (org_id, id, subject, recipient, version, channel, address,"
        " token, content_hash, request_id, correlation_id, created_at, updated_at)"
        " VALUES (:org_id, :id, :subject, :recipient, 1, :channel, :recipient, :token, 'hash',"
        " 'r', 'c', {now}, {now})",
        org_id=org_id,
        id=hf.ids.new(),
        subject=subject,
        recipient=recipient,
        channel=channel,
        token=token,
    )
    return Message(token, recipient, subject, f"About {subject}", None, {"about": subject})


def asked(message: Message, clock: FakeClock) -> LookupKey:
    return LookupKey(message.token, message.address, "hash", clock.now())


def rows(store: Store) -> int:
    found: int = look(store, "SELECT count(*) AS n FROM holdfast.in_app_notification")[0]["n"]
    return found


# -- the channel


def test_a_message_is_in_its_recipients_feed(
    hf: Holdfast, channel: InAppChannel, feed: Feed
) -> None:
    sent = channel.send(intend(hf, "tea"))

    (notice,) = feed.list("ada", org_id=ORG)
    assert sent == Accepted(notice.id)
    assert (notice.subject, notice.text, notice.html) == ("tea", "About tea", None)
    assert notice.data == {"about": "tea"}
    assert notice.read_at is None


def test_a_tenant_that_read_a_token_in_a_mail_writes_into_no_feed_but_its_own(
    hf: Holdfast, channel: InAppChannel, feed: Feed
) -> None:
    mail = intend(hf, "tea", channel="mail")
    eve = intend(hf, "spam", recipient="eve", org_id=OTHER_ORG, token=mail.token)

    sent = channel.send(eve)

    assert feed.list("ada", org_id=ORG) == []
    (notice,) = feed.list("eve", org_id=OTHER_ORG)
    assert sent == Accepted(notice.id)


def test_a_message_that_is_sent_again_is_in_the_feed_once_and_keeps_its_name(
    hf: Holdfast, channel: InAppChannel
) -> None:
    message = intend(hf, "tea")

    assert channel.send(message) == channel.send(message)
    assert rows(hf.store) == 1


@pytest.mark.both_databases
def test_two_who_send_one_message_at_once_put_it_there_once(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    message = intend(hf, "tea")
    stores = [open_store(url, clock=clock) for _ in range(2)]
    together = threading.Barrier(2)
    answers: list[object] = []

    def send(store: Store) -> None:
        channel = InAppChannel(lambda: store, hf.ids)
        together.wait(10)
        answers.append(channel.send(message))

    threads = [threading.Thread(target=send, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for store in stores:
        store.close()

    assert rows(hf.store) == 1
    assert len(answers) == 2
    assert len(set(answers)) == 1


def test_the_channel_is_asked_by_token_and_answers_at_once(
    hf: Holdfast, channel: InAppChannel, clock: FakeClock
) -> None:
    message = intend(hf, "tea")

    assert channel.lookup(asked(message, clock)) == NotFound()
    sent = channel.send(message)
    assert isinstance(sent, Accepted)
    assert channel.lookup(asked(message, clock)) == Found(sent.provider_id, clock.now())


def test_a_message_of_no_delivery_is_refused_for_good(hf: Holdfast, channel: InAppChannel) -> None:
    message = Message("hf_nobody", "ada", "x", "x")

    assert channel.send(message) == Rejected("no_such_delivery", is_permanent=True)
    assert rows(hf.store) == 0


def test_what_the_database_refuses_is_proven_not_taken(hf: Holdfast, channel: InAppChannel) -> None:
    message = intend(hf, "tea")
    by_hand(
        hf.store,
        "{refuse planted BEFORE INSERT ON holdfast.in_app_notification WHEN TRUE"
        " SAYING 'no feeds today'}",
    )

    assert channel.send(message) == Rejected("planted", is_permanent=True)


def test_a_database_that_is_away_leaves_it_open_whether_it_was_taken(
    hf: Holdfast, clock: FakeClock
) -> None:
    def away() -> Store:
        raise StoreDown("nobody answers")

    message = intend(hf, "tea")
    channel = InAppChannel(away, hf.ids)

    assert channel.send(message) == Unsure("StoreDown")
    assert channel.lookup(asked(message, clock)) == LookupFailed("StoreDown")


# -- the feed


@pytest.fixture
def told(hf: Holdfast, channel: InAppChannel, clock: FakeClock) -> Holdfast:
    """Three messages for Ada, one for Ben, one for an Ada of another tenant."""
    for subject in ("one", "two", "three"):
        channel.send(intend(hf, subject))
        clock.advance(timedelta(seconds=1))
    channel.send(intend(hf, "four", recipient="ben"))
    channel.send(intend(hf, "five", org_id=OTHER_ORG))
    return hf


def test_a_feed_is_one_persons_newest_first(told: Holdfast, feed: Feed) -> None:
    assert [notice.subject for notice in feed.list("ada", org_id=ORG)] == ["three", "two", "one"]
    assert [notice.subject for notice in feed.list("ben", org_id=ORG)] == ["four"]
    assert [notice.subject for notice in feed.list("ada", org_id=OTHER_ORG)] == ["five"]


def test_a_feed_is_read_page_by_page(told: Holdfast, feed: Feed) -> None:
    first = feed.list("ada", org_id=ORG, limit=2)
    second = feed.list("ada", org_id=ORG, limit=2, before=first[-1].id)

    assert [notice.subject for notice in (*first, *second)] == ["three", "two", "one"]


def test_what_was_read_is_not_unread_and_keeps_the_time_of_the_first_look(
    told: Holdfast, feed: Feed, clock: FakeClock
) -> None:
    newest = feed.list("ada", org_id=ORG)[0]

    assert feed.read("ada", [newest.id], org_id=ORG) == 1
    first_look = clock.now()
    clock.advance(timedelta(hours=1))
    assert feed.read("ada", [newest.id], org_id=ORG) == 0

    assert feed.count_unread("ada", org_id=ORG) == 2
    assert newest.id not in {n.id for n in feed.list("ada", org_id=ORG, is_unread=True)}
    assert feed.list("ada", org_id=ORG)[0].read_at == first_look


def test_reading_everything_leaves_what_came_behind_the_page(told: Holdfast, feed: Feed) -> None:
    page = feed.list("ada", org_id=ORG)

    assert feed.read_all("ada", org_id=ORG, upto=page[1].id) == 2
    assert [n.subject for n in feed.list("ada", org_id=ORG, is_unread=True)] == ["three"]


def test_a_feed_is_readable_only_in_ones_own_name(told: Holdfast, feed: Feed) -> None:
    mine = feed.list("ada", org_id=ORG)[0]

    assert feed.read("ben", [mine.id], org_id=ORG) == 0
    assert feed.read("ada", [mine.id], org_id=OTHER_ORG) == 0
    assert feed.count_unread("ada", org_id=ORG) == 3


def test_a_page_that_cannot_be_is_refused(feed: Feed) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"limit": 0},
        {"limit": 201},
        {"limit": "5"},
        {"limit": True},
        {"before": "x"},
    )
    for asked_for in wrong:
        with pytest.raises(InvalidDelivery, match=next(iter(asked_for))):
            feed.list("ada", org_id=ORG, **asked_for)
    nobody: Any = None
    with pytest.raises(InvalidDelivery, match="recipient"):
        feed.list(nobody, org_id=ORG)


# -- database constraints


@pytest.mark.both_databases
def test_notifications_are_immutable(told: Holdfast) -> None:
    one = "id = (SELECT id FROM holdfast.in_app_notification ORDER BY id LIMIT 1)"
    for change in ("subject = 'x'", "text = 'x'", "recipient = 'ben'", "html = 'x'", "token = 'x'"):
        with pytest.raises(RuleBroken, match="in_app_notification_never_changes"):
            by_hand(told.store, f"UPDATE holdfast.in_app_notification SET {change} WHERE {one}")


@pytest.mark.both_databases
def test_nothing_is_read_before_it_is_there(told: Holdfast) -> None:
    with pytest.raises(RuleBroken, match="in_app_notification_read_later"):
        by_hand(
            told.store,
            "UPDATE holdfast.in_app_notification SET read_at = {later(-3600000)}",
        )
