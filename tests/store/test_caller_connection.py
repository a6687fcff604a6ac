"""A job enqueued on the caller's own connection exists if and only if their transaction commits."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import class_row, dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import FakeClock, Holdfast, Workflow
from holdfast.errors import ConfigError
from holdfast.store import Store
from tests.story import ORG, look, make_holdfast, timeline


class Rollback(Exception):
    """The caller rolls back."""


class Anything:
    """A possible row of the caller's row factory."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns


class SessionOfTheirs(Session):
    """A connection class as frameworks derive it."""


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///")


@contextmanager
def plain_sqlite(url: str) -> Iterator[Any]:
    connection = sqlite3.connect(_path(url))
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@contextmanager
def sqlite_with_a_row_factory(url: str) -> Iterator[Any]:
    with plain_sqlite(url) as connection:
        connection.row_factory = lambda cursor, row: object()
        yield connection


@contextmanager
def plain_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def psycopg_with_dicts(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@contextmanager
def psycopg_with_objects(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=class_row(Anything)) as connection:
        yield connection


def _alchemy(url: str, driver: str = "psycopg") -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sa.create_engine(_alchemy(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sa.create_engine(_alchemy(url))
    try:
        with SessionOfTheirs(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


BLOCKING = [
    ("sqlite", plain_sqlite),
    ("sqlite", sqlite_with_a_row_factory),
    ("sqlite", sqlalchemy_connection),
    ("sqlite", sqlalchemy_session),
    ("postgres", plain_psycopg),
    ("postgres", psycopg_with_dicts),
    ("postgres", psycopg_with_objects),
    ("postgres", sqlalchemy_connection),
    ("postgres", sqlalchemy_session),
]


@pytest.fixture
def shop(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(url, clock) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        yield hf


def jobs(store: Store) -> list[str]:
    rows = look(store, "SELECT id FROM holdfast.job WHERE org_id = :org ORDER BY id", org=ORG)
    return [row["id"] for row in rows]


def events(store: Store) -> list[str]:
    return [row["name"] for row in look(store, "SELECT name FROM holdfast.job_event ORDER BY id")]


def on(
    request: pytest.FixtureRequest, kind: str, opened: Any
) -> tuple[Holdfast, AbstractContextManager[Any]]:
    url = request.getfixturevalue(f"{kind}_url")
    hf = make_holdfast(url, request.getfixturevalue("clock"))
    request.addfinalizer(hf.close)
    hf.job("order.ship")(lambda job, payload: payload)
    assert jobs(hf.store) == []
    return hf, opened(url)


each_blocking = pytest.mark.parametrize(
    ("kind", "opened"), BLOCKING, ids=[f"{kind}-{opened.__name__}" for kind, opened in BLOCKING]
)


@each_blocking
def test_a_job_and_its_event_exist_once_the_caller_commits(
    request: pytest.FixtureRequest, kind: str, opened: Any
) -> None:
    hf, transaction = on(request, kind, opened)

    with transaction as conn:
        enqueued = hf.enqueue("order.ship", {"order": 1}, org_id=ORG, conn=conn)
        assert jobs(hf.store) == []

    assert jobs(hf.store) == [enqueued.id]
    assert timeline(hf, enqueued) == ["job.enqueued"]
    hf.worker().run_once()
    assert hf.get(enqueued.id, org_id=ORG).result == {"order": 1}


@each_blocking
def test_a_job_and_its_event_vanish_when_the_caller_rolls_back(
    request: pytest.FixtureRequest, kind: str, opened: Any
) -> None:
    hf, transaction = on(request, kind, opened)

    with suppress(Rollback), transaction as conn:
        hf.enqueue_many("order.ship", [{"order": 1}, {"order": 2}], org_id=ORG, conn=conn)
        raise Rollback

    assert jobs(hf.store) == []
    assert events(hf.store) == []


@each_blocking
@pytest.mark.req("I-12")
def test_a_known_key_returns_the_original_inside_the_transaction(
    request: pytest.FixtureRequest, kind: str, opened: Any
) -> None:
    hf, transaction = on(request, kind, opened)
    before = hf.enqueue("order.ship", {"order": 1}, org_id=ORG, idempotency_key="order-1")

    with transaction as conn:
        again = hf.enqueue(
            "order.ship", {"order": 1}, org_id=ORG, idempotency_key="order-1", conn=conn
        )
        new = hf.enqueue(
            "order.ship", {"order": 2}, org_id=ORG, idempotency_key="order-2", conn=conn
        )
        newer = hf.enqueue(
            "order.ship", {"order": 3}, org_id=ORG, idempotency_key="order-2", conn=conn
        )

    assert (again.id, again.created, again.created_at) == (before.id, False, before.created_at)
    assert (new.created, newer.created, newer.differs, newer.id) == (True, False, True, new.id)
    assert jobs(hf.store) == [before.id, new.id]
    assert timeline(hf, new) == ["job.enqueued", "job.duplicate_differs"]


@each_blocking
def test_many_jobs_are_enqueued_in_the_callers_transaction(
    request: pytest.FixtureRequest, kind: str, opened: Any
) -> None:
    hf, transaction = on(request, kind, opened)

    with transaction as conn:
        many = hf.enqueue_many("order.ship", [{"n": n} for n in range(50)], org_id=ORG, conn=conn)

    assert jobs(hf.store) == [item.id for item in many]
    assert events(hf.store) == ["job.enqueued"] * 50


@asynccontextmanager
async def async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def async_psycopg_with_objects(url: str) -> AsyncIterator[Any]:
    opened = psycopg.AsyncConnection.connect(url, row_factory=class_row(Anything))
    async with await opened as connection:
        yield connection


@asynccontextmanager
async def plain_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def pooled_asyncpg_with_a_json_codec(url: str) -> AsyncIterator[Any]:
    async def configure(connection: Any) -> None:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(
                name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )

    opened = asyncpg.create_pool(url, min_size=1, max_size=1, init=configure)
    async with opened as pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def _async_alchemy(url: str, driver: str, session: bool) -> AsyncIterator[Any]:
    engine = create_async_engine(_alchemy(url, driver))
    try:
        if session:
            async with AsyncSession(engine) as opened, opened.begin():
                yield opened
        else:
            async with engine.begin() as connection:
                yield connection
    finally:
        await engine.dispose()


def sqlalchemy_psycopg_connection(url: str) -> Any:
    return _async_alchemy(url, "psycopg", session=False)


def sqlalchemy_psycopg_session(url: str) -> Any:
    return _async_alchemy(url, "psycopg", session=True)


def sqlalchemy_asyncpg_connection(url: str) -> Any:
    return _async_alchemy(url, "asyncpg", session=False)


def sqlalchemy_asyncpg_session(url: str) -> Any:
    return _async_alchemy(url, "asyncpg", session=True)


AWAITING = [
    async_psycopg,
    async_psycopg_with_objects,
    plain_asyncpg,
    pooled_asyncpg_with_a_json_codec,
    sqlalchemy_psycopg_connection,
    sqlalchemy_psycopg_session,
    sqlalchemy_asyncpg_connection,
    sqlalchemy_asyncpg_session,
]


@pytest.mark.parametrize("opened", AWAITING, ids=lambda opened: opened.__name__)
@pytest.mark.parametrize("clocked", [True, False], ids=["fake_clock", "database_clock"])
def test_an_awaiting_caller_commits_or_rolls_back_like_any_other(
    postgres_url: str, opened: Any, clocked: bool
) -> None:
    with Holdfast(postgres_url, clock=FakeClock() if clocked else None) as hf:
        hf.job("order.ship")(lambda job, payload: payload)

        async def story() -> list[str]:
            with suppress(Rollback):
                async with opened(postgres_url) as conn:
                    await hf.aenqueue("order.ship", {"order": 0}, org_id=ORG, conn=conn)
                    raise Rollback
            async with opened(postgres_url) as conn:
                options: dict[str, Any] = {"org_id": ORG, "conn": conn}
                one = await hf.aenqueue("order.ship", {"n": 1}, idempotency_key="k", **options)
                two = await hf.aenqueue("order.ship", {"n": 1}, idempotency_key="k", **options)
                many = await hf.aenqueue_many("order.ship", [{"n": 2}, {"n": 3}], **options)
                assert (one.created, two.created, two.id) == (True, False, one.id)
                assert jobs(hf.store) == []
            return [one.id, *(item.id for item in many)]

        made = asyncio.run(story())

        assert jobs(hf.store) == made
        assert events(hf.store) == ["job.enqueued"] * 3


@pytest.mark.parametrize("opened", AWAITING, ids=lambda opened: opened.__name__)
def test_a_workflow_is_part_of_the_transaction_of_an_awaiting_caller(
    postgres_url: str, opened: Any
) -> None:
    with Holdfast(postgres_url) as hf:

        @hf.job("order.pack")
        def pack(order: int) -> int:
            return order

        def workflow(order: int) -> Workflow:
            made = Workflow("order")
            packed = made.add("pack", pack.step(order=order))
            made.add("again", pack.step(order=packed.output))
            return made

        async def story() -> int:
            with suppress(Rollback):
                async with opened(postgres_url) as conn:
                    await workflow(0).aenqueue(org_id=ORG, conn=conn)
                    raise Rollback
            async with opened(postgres_url) as conn:
                handle = await workflow(7).aenqueue(org_id=ORG, conn=conn, key="seven")
                same = await workflow(7).aenqueue(org_id=ORG, conn=conn, key="seven")
                assert (handle.created, same.created, same.id) == (True, False, handle.id)
                assert jobs(hf.store) == []
            await asyncio.to_thread(hf.worker().run, until_idle=True)
            found: int = await handle
            return found

        assert asyncio.run(story()) == 7
        assert len(jobs(hf.store)) == 2


def test_an_asynchronous_connection_is_refused_in_a_synchronous_call(postgres_url: str) -> None:
    with Holdfast(postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)

        async def story() -> None:
            async with async_psycopg(postgres_url) as conn:
                with pytest.raises(ConfigError, match="use aenqueue"):
                    hf.enqueue("order.ship", {}, org_id=ORG, conn=conn)

        asyncio.run(story())


def test_an_event_loop_may_pass_a_blocking_connection(shop: Holdfast, url: str) -> None:
    async def story(conn: Any) -> None:
        await shop.aenqueue("order.ship", {}, org_id=ORG, conn=conn)

    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(_path(url), check_same_thread=False)
    else:
        connection = psycopg.connect(url)
    asyncio.run(story(connection))
    connection.commit()
    connection.close()

    assert len(jobs(shop.store)) == 1


@pytest.mark.parametrize("stranger", [object(), "postgresql://", 7])
def test_an_unknown_object_is_not_a_connection(shop: Holdfast, stranger: object) -> None:
    with pytest.raises(ConfigError, match=r"Pass a sqlite3, psycopg.*holdfast\.enqueue"):
        shop.enqueue("order.ship", {}, org_id=ORG, conn=stranger)
    assert jobs(shop.store) == []


def test_a_callers_transaction_never_notifies_and_wake_does_so_after_its_commit(
    postgres_url: str,
) -> None:
    with Holdfast(postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        wake = hf.store.wake_up(["q:default"])
        with psycopg.connect(postgres_url) as conn:
            seen: list[str] = []
            conn.cursor_factory = recording(seen)
            hf.enqueue("order.ship", {}, org_id=ORG, conn=conn)
            conn.commit()

            assert any("holdfast" in text for text in seen)
            assert not any("notify" in text.lower() for text in seen)
            assert not wake.wait(0.2)

            hf.wake(["q:default"])
            assert wake.wait(30.0)
        wake.close()


def recording(seen: list[str]) -> Any:
    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            seen.append(str(query))
            return super().execute(query, *args, **options)

    return Cursor


def test_only_the_function_wake_notifies(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as conn:
        rows = conn.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace"
            " AND prosrc ILIKE '%notify%'"
        ).fetchall()

    assert rows == [("wake",)]


def test_a_handlers_transaction_wakes_workers_after_its_commit(postgres_url: str) -> None:
    with Holdfast(postgres_url) as hf:

        @hf.job("order.ship")
        def ship(job: Any, payload: Any) -> None:
            with job.transaction() as conn:
                hf.enqueue("order.bill", {}, conn=conn, queue="q:exports")
                assert not wake.wait(0.05)

        hf.job("order.bill")(lambda job, payload: payload)
        hf.enqueue("order.ship", {}, org_id=ORG)
        wake = hf.store.wake_up(["q:exports"])
        hf.worker().run_once()

        assert wake.wait(30.0)
        wake.close()


DJANGO = """
    import json, os, sys, time
    # As Django does when it reads a settings module.
    os.environ["TZ"] = "America/Chicago"
    time.tzset()
    from django.conf import settings
    settings.configure(DATABASES={"default": json.loads(sys.argv[2])}, USE_TZ=sys.argv[3] == "tz")
    import django
    django.setup()
    from django.db import connection, transaction
    from holdfast import Holdfast

    hf = Holdfast(sys.argv[1])
    hf.job("order.ship")(lambda job, payload: payload)
    hf.store
    org = "0198c0de-0000-7000-8000-00000000000a"
    try:
        with transaction.atomic():
            hf.enqueue("order.ship", {"n": 0}, org_id=org, conn=connection)
            raise LookupError
    except LookupError:
        pass
    with transaction.atomic():
        one = hf.enqueue("order.ship", {"n": 1}, org_id=org, conn=connection, idempotency_key="k")
        with transaction.atomic():
            two = hf.enqueue("order.ship", {"n": 1}, org_id=org, conn=transaction.get_connection(),
                             idempotency_key="k")
        many = hf.enqueue_many("order.ship", [{"n": 2}, {"n": 3}], org_id=org, conn=connection)
    stored = hf.get(one.id, org_id=org)
    hf.close()
    connection.close()
    print(json.dumps({
        "made": [one.id, *(item.id for item in many)],
        "created": [one.created, two.created], "same": one.id == two.id,
        "same_time": one.created_at == two.created_at == stored.created_at,
    }))
"""


@pytest.mark.parametrize("zone", ["tz", "naive"])
def test_django_commits_and_rolls_back_like_any_other(
    shop: Holdfast, url: str, postgres: Any, zone: str
) -> None:
    if url.startswith("sqlite"):
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": _path(url)}
    else:
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.rpartition("/")[2],
            "USER": "postgres",
            "HOST": "127.0.0.1",
            "PORT": str(postgres.port),
        }
    assert jobs(shop.store) == []

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DJANGO), url, json.dumps(database), zone],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["created"] == [True, False]
    assert told["same"]
    assert told["same_time"]
    assert jobs(shop.store) == told["made"]
    assert events(shop.store) == ["job.enqueued"] * 3
