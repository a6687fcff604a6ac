"""A notification is best effort: if it fails, the write it announces is still committed."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from holdfast import (
    ConfigError,
    Context,
    FakeClock,
    Forbidden,
    Holdfast,
    InvalidJob,
    StoreDown,
    UnknownKind,
)
from holdfast.event import Event, NotificationDropped
from holdfast.store import Store
from tests.engine.domain import make_domain, titles
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast, timeline

CHANGE = "UPDATE run_sheet SET title = 'published'"


def say(job: Context, payload: dict[str, Any]) -> None:
    return None


@pytest.fixture
def told(hf: Holdfast) -> list[Event]:
    found: list[Event] = []
    hf.events.subscribe(found.append)
    return found


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with declared(url, clock) as made:
        yield made


@contextmanager
def declared(url: str, clock: FakeClock | None = None) -> Iterator[Holdfast]:
    with make_holdfast(url, clock) as made:
        made.job("note.send", category="notification")(say)
        made.job("order.ship")(say)
        make_domain(made.store)
        yield made


def plant(store: Store) -> None:
    """From now on the database rejects every notification."""
    by_hand(
        store,
        "{refuse planted BEFORE INSERT ON holdfast.job_envelope WHEN NEW.job_type = 'note.send'"
        " SAYING 'no notifications today'}",
    )


def waiting(store: Store) -> int:
    found: int = look(store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"]
    return found


# -- on the caller's connection


@contextmanager
def plain_sqlite(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        yield connection, connection.execute


@contextmanager
def autocommitting_sqlite(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield connection, connection.execute
        connection.execute("COMMIT")


@contextmanager
def plain_psycopg(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with psycopg.connect(url) as connection:
        yield connection, lambda text: connection.execute(text.encode())


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            yield connection, lambda text: connection.execute(sa.text(text))
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session, session.begin():
            yield session, lambda text: session.execute(sa.text(text))
    finally:
        engine.dispose()


BLOCKING = [
    ("sqlite", plain_sqlite),
    ("sqlite", autocommitting_sqlite),
    ("sqlite", sqlalchemy_connection),
    ("sqlite", sqlalchemy_session),
    ("postgres", plain_psycopg),
    ("postgres", sqlalchemy_connection),
    ("postgres", sqlalchemy_session),
]

Opened = Callable[[str], AbstractContextManager[tuple[Any, Callable[[str], Any]]]]


def case(kind: str, opened: Opened) -> Any:
    return pytest.param(kind, opened, id=f"{kind}-{opened.__name__}")


every_connection = pytest.mark.parametrize(
    ("kind", "opened"), [case(kind, opened) for kind, opened in BLOCKING]
)


@pytest.mark.req("Q-01", "Q-02")
@every_connection
@pytest.mark.parametrize("write_first", [True, False])
def test_a_core_write_commits_although_its_notification_is_refused(
    request: pytest.FixtureRequest, kind: str, opened: Opened, write_first: bool
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    with declared(url) as hf:
        plant(hf.store)

        with opened(url) as (connection, execute):
            if write_first:
                execute(CHANGE)
            answer = hf.notify("note.send", {"to": "ada"}, org_id=ORG, conn=connection)
            if not write_first:
                execute(CHANGE)

        assert answer is None
        assert titles(hf.store) == ["published"]
        assert waiting(hf.store) == 0


@pytest.mark.req("Q-01", "Q-02")
@every_connection
def test_a_notification_is_part_of_the_write_that_it_is_about(
    request: pytest.FixtureRequest, kind: str, opened: Opened
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    with declared(url) as hf:
        with suppress(ZeroDivisionError), opened(url) as (connection, execute):
            hf.notify("note.send", {}, org_id=ORG, conn=connection)
            execute(CHANGE)
            raise ZeroDivisionError
        assert (titles(hf.store), waiting(hf.store)) == (["as it was"], 0)

        with opened(url) as (connection, execute):
            sent = hf.notify("note.send", {}, org_id=ORG, conn=connection)
            execute(CHANGE)

        assert sent is not None
        assert sent.created
        assert titles(hf.store) == ["published"]
        assert timeline(hf, sent) == ["job.enqueued"]


@pytest.mark.req("Q-02")
def test_a_connection_without_a_transaction_needs_no_savepoint(postgres_url: str) -> None:
    with declared(postgres_url) as hf:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            assert hf.notify("note.send", {}, org_id=ORG, conn=connection) is not None
            plant(hf.store)
            assert hf.notify("note.send", {}, org_id=ORG, conn=connection) is None
        assert waiting(hf.store) == 1


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        yield connection, connection.execute
    await connection.close()


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, lambda text: connection.execute(text.encode())


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    async with engine.begin() as connection:
        yield connection, lambda text: connection.execute(sa.text(text))
    await engine.dispose()


@pytest.mark.req("Q-02")
@pytest.mark.parametrize("opened", [by_asyncpg, by_psycopg, by_sqlalchemy])
@pytest.mark.parametrize("refused", [True, False])
def test_the_same_on_an_event_loop(postgres_url: str, opened: Any, refused: bool) -> None:
    with declared(postgres_url) as hf:
        if refused:
            plant(hf.store)

        async def write() -> object:
            async with opened(postgres_url) as (connection, execute):
                await execute(CHANGE)
                return await hf.anotify("note.send", {}, org_id=ORG, conn=connection)

        answer = asyncio.run(write())

        assert (answer is None) is refused
        assert titles(hf.store) == ["published"]
        assert waiting(hf.store) == (0 if refused else 1)


def test_a_loop_without_a_connection_of_its_own_may_notify_too(hf: Holdfast) -> None:
    assert asyncio.run(hf.anotify("note.send", {}, org_id=ORG)) is not None


def test_a_connection_that_must_be_awaited_is_not_taken_by_mistake(postgres_url: str) -> None:
    async def mistake(hf: Holdfast) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            hf.notify("note.send", {}, org_id=ORG, conn=connection)

    with declared(postgres_url) as hf, pytest.raises(ConfigError, match="anotify"):
        asyncio.run(mistake(hf))


# -- in a separate transaction


@pytest.mark.req("Q-02")
def test_a_notification_refused_by_the_store_is_dropped_and_reported(
    hf: Holdfast, told: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    plant(hf.store)
    caplog.set_level(logging.WARNING, "holdfast.notify")

    assert hf.notify("note.send", {}, org_id=ORG) is None

    assert told == [NotificationDropped("note.send", ORG, "planted")]
    (line,) = caplog.records
    assert line.getMessage() == "notification.dropped"
    assert vars(line)["fields"] == {"job_type": "note.send", "org_id": ORG, "reason": "planted"}


@pytest.mark.req("Q-02")
def test_a_store_that_is_away_costs_the_notification_only(
    hf: Holdfast, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreDown("No connection.")

    monkeypatch.setattr(hf.store, "write_soon", away)

    assert hf.for_org(ORG).notify("note.send", {}) is None
    assert told == [NotificationDropped("note.send", ORG, "StoreDown")]
    with pytest.raises(StoreDown):
        hf.enqueue("note.send", {}, org_id=ORG)


@pytest.mark.req("Q-02")
def test_a_full_queue_costs_the_notification_only(hf: Holdfast, told: list[Event]) -> None:
    by_hand(hf.store, "UPDATE holdfast.queue SET max_depth = 1 WHERE name = 'q:notifications'")

    assert hf.notify("note.send", {}, org_id=ORG) is not None
    assert hf.notify("note.send", {}, org_id=ORG) is None
    assert [type(event) for event in told].count(NotificationDropped) == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda hf: hf.notify("no.such", {}, org_id=ORG), UnknownKind),
        (lambda hf: hf.notify("note.send", [1], org_id=ORG), InvalidJob),
        (lambda hf: hf.notify("note.send", {}), InvalidJob),
        (lambda hf: hf.notify("note.send", {}, org_id=ORG, queue="nonsense"), InvalidJob),
        (lambda hf: hf.notify("note.send", {}, org_id=ORG, conn=object()), ConfigError),
        (lambda hf: hf.notify("order.ship", {}, org_id=ORG), InvalidJob),
    ],
)
def test_a_wrong_request_is_the_callers_and_is_raised(
    hf: Holdfast, told: list[Event], call: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(hf)

    assert told == []


def test_a_wrong_request_leaves_the_callers_transaction_usable(postgres_url: str) -> None:
    with declared(postgres_url) as hf:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(CHANGE.encode())
            with pytest.raises(InvalidJob):
                hf.notify("note.send", {}, conn=connection)
        assert titles(hf.store) == ["published"]


def test_a_running_job_notifies_in_its_own_tenant(hf: Holdfast, told: list[Event]) -> None:
    answers: list[Any] = []

    @hf.job("sheet.publish")
    def publish(job: Context, payload: object) -> None:
        answers.append(hf.notify("note.send", {}))
        with pytest.raises(Forbidden):
            hf.notify("note.send", {}, org_id=OTHER_ORG)
        plant(hf.store)
        answers.append(hf.notify("note.send", {}))

    hf.enqueue("sheet.publish", {}, org_id=ORG)
    hf.worker(queues=["q:default"]).run_once()

    sent, dropped = answers
    assert (sent.org_id, dropped) == (ORG, None)
    assert NotificationDropped("note.send", ORG, "planted") in told


@pytest.mark.req("Q-01")
def test_a_notification_waits_on_its_own_queue_with_its_own_patience(hf: Holdfast) -> None:
    sent = hf.notify("note.send", {"to": "ada"}, org_id=ORG)

    assert sent is not None
    found = hf.get(sent.id, org_id=ORG)
    assert (found.queue, found.max_attempts) == ("q:notifications", 10)
