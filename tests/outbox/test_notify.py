"""Notifications without a job: sent once, later on request, and never blocking a write."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ConfigError, Context, FakeClock, Forbidden, Holdfast, Snooze
from holdfast.engine.job import State as JobState
from holdfast.event import Event, NotificationDropped
from holdfast.outbox.delivery import State
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.in_app import InAppChannel
from holdfast.outbox.intend import Intended
from holdfast.outbox.template import UnknownTemplate
from holdfast.store import Store
from tests.engine.domain import make_domain, titles
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast

CHANGE = "UPDATE run_sheet SET title = 'published'"
DATA = {"title": "Friday", "who": "Ben"}


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with declared(url, clock) as made:
        yield made


@contextmanager
def declared(url: str, clock: FakeClock | None = None) -> Iterator[Holdfast]:
    with make_holdfast(url, clock) as made:
        made.outbox.use(InAppChannel(lambda: made.store, made.ids))
        made.outbox.template(
            "sheet.updated", subject="{{ title }} has changed", text="{{ who }} changed {{ title }}"
        )
        made.outbox.template("other", subject="Hello", text="{{ title }}")
        make_domain(made.store)
        yield made


@pytest.fixture
def told(hf: Holdfast) -> list[Event]:
    found: list[Event] = []
    hf.events.subscribe(found.append)
    return found


def notify(hf: Holdfast, recipient: str = "ada", **given: Any) -> Intended | None:
    options = {"template": "sheet.updated", "data": DATA, "org_id": ORG, **given}
    template, data = options.pop("template"), options.pop("data")
    return hf.outbox.notify(template, recipient, data, channel="in_app", **options)


def made(hf: Holdfast, **given: Any) -> Intended:
    found = notify(hf, **given)
    assert found is not None
    return found


def count(store: Store, table: str) -> int:
    found: int = look(store, f"SELECT count(*) AS n FROM holdfast.{table}")[0]["n"]
    return found


def work(hf: Holdfast) -> None:
    hf.worker(queues=["q:notifications"]).run_once()


def plant(store: Store, table: str = "delivery") -> None:
    """From now on the database rejects every notification."""
    by_hand(
        store,
        f"{{refuse planted BEFORE INSERT ON holdfast.{table} WHEN TRUE"
        " SAYING 'no notifications today'}",
    )


# -- sent


@pytest.mark.req("Q-01", "Q-17")
def test_a_notification_is_delivered_by_a_job_of_its_own_queue(hf: Holdfast) -> None:
    intended = made(hf)
    (job,) = look(hf.store, "SELECT id, queue, category, job_type FROM holdfast.job")

    work(hf)

    (notice,) = hf.outbox.feed.list("ada", org_id=ORG)
    (delivery,) = hf.outbox.find([intended.id], org_id=ORG)
    assert (job["job_type"], job["queue"], job["category"]) == (
        "outbox.deliver",
        "q:notifications",
        "notification",
    )
    assert (notice.subject, notice.text) == ("Friday has changed", "Ben changed Friday")
    assert (delivery.state, delivery.notification_id) == (State.SENT, notice.id)
    assert hf.get(job["id"], org_id=ORG).state is JobState.COMPLETED


def test_no_word_and_no_address_of_it_is_in_the_job_or_the_audit(hf: Holdfast) -> None:
    made(hf, data={"title": "canary-title", "who": "x"}, address="canary-address")
    work(hf)

    for table in ("job", "job_event", "delivery_attempt", "delivery_evidence"):
        rows = json.dumps(look(hf.store, f"SELECT * FROM holdfast.{table}"), default=str)
        assert "canary" not in rows, table


# -- once


@pytest.mark.req("I-09")
def test_the_same_notification_again_is_the_same_job_and_the_same_delivery(hf: Holdfast) -> None:
    first, again = made(hf), made(hf, data=dict(reversed(DATA.items())))
    work(hf)
    late = made(hf)
    work(hf)

    assert (first.created, again.created, late.created) == (True, False, False)
    assert first.id == again.id == late.id
    assert (count(hf.store, "job"), count(hf.store, "delivery")) == (1, 1)
    assert len(hf.outbox.feed.list("ada", org_id=ORG)) == 1


@pytest.mark.req("I-09")
def test_a_notification_that_differs_in_any_part_of_its_key_is_another(hf: Holdfast) -> None:
    parts: dict[str, dict[str, Any]] = {
        "org_id": {"org_id": OTHER_ORG},
        "recipient": {"recipient": "ben"},
        "template": {"template": "other"},
        "payload_hash": {"data": {**DATA, "who": "Cleo"}},
        "schedule_bucket": {"bucket": "2026-11-16"},
    }
    seen = {made(hf).id}
    for part, other in parts.items():
        another = made(hf, **other)
        assert another.created, part
        seen.add(another.id)
        assert (count(hf.store, "job"), count(hf.store, "delivery")) == (len(seen), len(seen))
    assert len(seen) == 1 + len(parts)


@pytest.mark.both_databases
@pytest.mark.req("I-09")
def test_two_processes_that_notify_at_once_make_one_job(url: str, clock: FakeClock) -> None:
    together = threading.Barrier(2)
    answers: list[Intended | None] = []

    def tell(own: Holdfast) -> None:
        together.wait(10)
        answers.append(notify(own))

    with declared(url, clock) as one, make_holdfast(url, clock) as two:
        two.outbox.template(
            "sheet.updated", subject="{{ title }} has changed", text="{{ who }} changed {{ title }}"
        )
        threads = [threading.Thread(target=tell, args=(own,)) for own in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert len({answer.id for answer in answers if answer is not None}) == 1
        assert len(answers) == 2
        assert (count(one.store, "job"), count(one.store, "delivery")) == (1, 1)


def test_the_text_of_the_first_call_is_kept(hf: Holdfast, told: list[Event]) -> None:
    made(hf)
    second = made(hf, address="elsewhere")

    assert (second.created, second.differs) == (False, True)


# -- later


@pytest.mark.req("Q-20", "I-09")
def test_a_notification_for_later_waits_on_maintenance_and_goes_out_when_it_is_due(
    hf: Holdfast, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(hours=1)
    made(hf, scheduled_for=due)
    (waiting,) = look(hf.store, "SELECT queue FROM holdfast.job")

    clock.advance(timedelta(minutes=59))
    work(hf)
    hf.outbox.reconcile()
    early = hf.outbox.feed.list("ada", org_id=ORG)
    clock.advance(timedelta(minutes=1))
    work(hf)

    assert waiting["queue"] == "q:maintenance"
    assert early == []
    assert len(hf.outbox.feed.list("ada", org_id=ORG)) == 1


@pytest.mark.req("I-09")
def test_the_bucket_of_a_later_notification_is_the_minute_of_its_time(
    hf: Holdfast, clock: FakeClock
) -> None:
    due = (clock.now() + timedelta(days=1)).replace(second=10, microsecond=0)

    first = made(hf, scheduled_for=due)
    same = made(hf, scheduled_for=due + timedelta(seconds=40))
    later = made(hf, scheduled_for=due + timedelta(minutes=1))

    assert first.id == same.id
    assert later.created


# -- immediate errors


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": {"title": "Friday"}}, "data.who"),
    ({"recipient": ""}, "recipient"),
    ({"recipient": "a\r\nBcc: b"}, "recipient"),
    ({"address": "a@example.com\r\nBcc: b@example.com"}, "address"),
    ({"org_id": "nobody"}, "org_id"),
    ({"bucket": ""}, "bucket"),
    ({"bucket": "a\nb"}, "bucket"),
    ({"bucket": "x" * 101}, "bucket"),
    ({"scheduled_for": datetime(2040, 1, 1)}, "scheduled_for"),  # noqa: DTZ001
    ({"scheduled_for": datetime(1999, 1, 1, tzinfo=UTC)}, "scheduled_for"),
    ({"scheduled_for": datetime(9999, 1, 1, tzinfo=UTC)}, "scheduled_for"),
    ({"scheduled_for": "tomorrow"}, "scheduled_for"),
    ({"colour": "red"}, "colour"),
]


def test_a_wrong_request_is_the_callers_and_nothing_is_written(
    hf: Holdfast, told: list[Event]
) -> None:
    for given, field in WRONG:
        with pytest.raises(InvalidDelivery, match=field):
            notify(hf, **given)

        assert told == []
        assert (count(hf.store, "job"), count(hf.store, "delivery")) == (0, 0)


def test_an_undeclared_template_is_not_found(hf: Holdfast) -> None:
    with pytest.raises(UnknownTemplate, match=r"hf\.outbox\.template"):
        notify(hf, template="no.such")


# -- best effort


@contextmanager
def plain_sqlite(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        yield connection, connection.execute


@contextmanager
def plain_psycopg(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with psycopg.connect(url) as connection:
        yield connection, lambda text: connection.execute(text.encode())


@contextmanager
def opened(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with (plain_sqlite if url.startswith("sqlite") else plain_psycopg)(url) as pair:
        yield pair


@pytest.mark.req("Q-02")
@pytest.mark.parametrize("table", ["delivery", "job_envelope"])
def test_a_write_commits_although_its_notification_is_refused(
    hf: Holdfast, url: str, told: list[Event], table: str
) -> None:
    plant(hf.store, table)

    with opened(url) as (connection, execute):
        execute(CHANGE)
        answer = notify(hf, conn=connection)

    assert answer is None
    assert titles(hf.store) == ["published"]
    assert (count(hf.store, "job"), count(hf.store, "delivery")) == (0, 0)
    (dropped,) = [event for event in told if isinstance(event, NotificationDropped)]
    assert (dropped.job_type, dropped.org_id) == ("outbox.deliver", ORG)


@pytest.mark.req("Q-02")
def test_a_notification_is_part_of_the_write_that_it_is_about(hf: Holdfast, url: str) -> None:
    with suppress(ZeroDivisionError), opened(url) as (connection, execute):
        execute(CHANGE)
        assert notify(hf, conn=connection) is not None
        raise ZeroDivisionError

    assert (count(hf.store, "job"), count(hf.store, "delivery")) == (0, 0)

    with opened(url) as (connection, execute):
        execute(CHANGE)
        notify(hf, conn=connection)
    work(hf)

    assert titles(hf.store) == ["published"]
    assert len(hf.outbox.feed.list("ada", org_id=ORG)) == 1


@pytest.mark.req("Q-02")
def test_where_no_job_can_be_enqueued_the_reconciler_comes_for_it(
    hf: Holdfast, clock: FakeClock
) -> None:
    plant(hf.store, "job_envelope")

    assert made(hf).created
    clock.advance(timedelta(minutes=5))
    hf.outbox.reconcile()

    assert len(hf.outbox.feed.list("ada", org_id=ORG)) == 1


@pytest.mark.req("Q-02")
@pytest.mark.parametrize("refused", [True, False])
def test_the_same_on_an_event_loop(postgres_url: str, refused: bool) -> None:
    with declared(postgres_url) as hf:
        if refused:
            plant(hf.store)

        async def write() -> Intended | None:
            async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
                await connection.execute(CHANGE.encode())
                return await hf.outbox.anotify(
                    "sheet.updated", "ada", DATA, channel="in_app", org_id=ORG, conn=connection
                )

        answer = asyncio.run(write())

        assert (answer is None) is refused
        assert titles(hf.store) == ["published"]
        assert count(hf.store, "job") == (0 if refused else 1)


def test_a_loop_without_a_connection_of_its_own_may_notify_too(hf: Holdfast) -> None:
    told = asyncio.run(
        hf.outbox.anotify("sheet.updated", "ada", DATA, channel="in_app", org_id=ORG)
    )

    assert told is not None


def test_a_connection_that_must_be_awaited_is_not_taken_by_mistake(postgres_url: str) -> None:
    async def mistake(hf: Holdfast) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            notify(hf, conn=connection)

    with declared(postgres_url) as hf, pytest.raises(ConfigError, match="anotify"):
        asyncio.run(mistake(hf))


def test_a_running_job_notifies_in_its_own_tenant_and_once_however_often_it_runs(
    hf: Holdfast, clock: FakeClock
) -> None:
    answers: list[Any] = []

    @hf.job("sheet.publish")
    def publish(job: Context, payload: object) -> None:
        with pytest.raises(Forbidden):
            notify(hf, org_id=OTHER_ORG)
        answers.append(notify(hf, org_id=None))
        if len(answers) == 1:
            raise Snooze(1)

    hf.enqueue("sheet.publish", {}, org_id=ORG)
    hf.worker(queues=["q:default"]).run_once()
    clock.advance(timedelta(seconds=2))
    hf.worker(queues=["q:default"]).run_once()
    work(hf)

    first, second = answers
    assert (first.org_id, first.id) == (ORG, second.id)
    assert len(hf.outbox.feed.list("ada", org_id=ORG)) == 1


@pytest.mark.req("I-08")
def test_a_notification_after_the_lifetime_of_its_key_is_a_new_one(
    hf: Holdfast, clock: FakeClock
) -> None:
    first = made(hf)
    work(hf)
    clock.advance(days=6, hours=23)
    within = made(hf)
    assert (within.id, within.created) == (first.id, False)

    clock.advance(hours=2)
    second = made(hf)
    assert second.created
    assert second.id != first.id
    # The lifetime of the second one begins with its own end.
    assert made(hf).id == second.id
    work(hf)
    assert len(hf.outbox.feed.list("ada", org_id=ORG)) == 2

    clock.advance(days=7, hours=1)
    assert made(hf).created


def test_a_notification_that_is_not_over_stays_the_same_however_old_it_is(
    hf: Holdfast, clock: FakeClock
) -> None:
    first = made(hf)
    clock.advance(days=30)
    again = made(hf)
    assert (again.id, again.created) == (first.id, False)


def test_a_notification_is_new_again_in_a_transaction_and_on_an_event_loop(
    url: str, hf: Holdfast, clock: FakeClock
) -> None:
    first = made(hf)
    work(hf)
    clock.advance(days=8)
    found = asyncio.run(
        hf.outbox.anotify("sheet.updated", "ada", DATA, channel="in_app", org_id=ORG)
    )
    assert found is not None
    assert found.created
    assert found.id != first.id
