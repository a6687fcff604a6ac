"""A connection that is lost inside a handler causes a retry; the job is never lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from holdfast import Context, FakeClock, Holdfast, State
from tests.operate.sound import assert_sound
from tests.story import ORG, make_holdfast

# A statement that ends the connection it runs on.
KILL_ME = "SELECT kill_me()"
INSERT = "INSERT INTO effect (note) VALUES ('{}')"
# A row that is checked at COMMIT and ends the connection there.
DEADLY = INSERT.format("deadly")
HARMLESS = INSERT.format("harmless")

SCHEMA = """
CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, note text NOT NULL);
GRANT SELECT, INSERT ON effect TO holdfast_tenant;
CREATE FUNCTION kill_me() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS
    'SELECT pg_terminate_backend(pg_backend_pid())';
CREATE SEQUENCE kills;
CREATE FUNCTION die_once() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF nextval('kills') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.note = 'deadly') EXECUTE FUNCTION die_once();
"""

MOMENTS = ["statement", "between", "commit"]


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(SCHEMA.encode())
    with make_holdfast(postgres_url) as hf:
        yield hf


def plain(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def end_backend(url: str, pid: int) -> None:
    """End another connection, and wait until it has ended."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))


Write = Callable[[str, str], None]


def by_psycopg(url: str, moment: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(HARMLESS)
        if moment == "statement":
            connection.execute(KILL_ME)
        if moment == "between":
            end_backend(url, connection.info.backend_pid)
        connection.execute(DEADLY)


def by_psycopg_async(url: str, moment: str) -> None:
    async def write() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(HARMLESS)
            if moment == "statement":
                await connection.execute(KILL_ME)
            if moment == "between":
                end_backend(url, connection.info.backend_pid)
            await connection.execute(DEADLY)

    asyncio.run(write())


def by_asyncpg(url: str, moment: str) -> None:
    async def write() -> None:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute(HARMLESS)
                if moment == "statement":
                    await connection.execute(KILL_ME)
                if moment == "between":
                    end_backend(url, connection.get_server_pid())
                    await asyncio.sleep(0.05)
                await connection.execute(DEADLY)
        finally:
            await connection.close()

    asyncio.run(write())


def by_asyncpg_pool(url: str, moment: str) -> None:
    async def write() -> None:
        async with (
            asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
        ):
            await connection.execute("BEGIN")
            await connection.execute(HARMLESS)
            if moment == "statement":
                await connection.execute(KILL_ME)
            if moment == "between":
                end_backend(url, connection.get_server_pid())
                await asyncio.sleep(0.05)
            await connection.execute(DEADLY)
            await connection.execute("COMMIT")

    asyncio.run(write())


def by_sqlalchemy(url: str, moment: str) -> None:
    engine = sa.create_engine(plain(url))
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(HARMLESS))
            if moment == "statement":
                connection.execute(sa.text(KILL_ME))
            if moment == "between":
                pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
                end_backend(url, pid)
            connection.execute(sa.text(DEADLY))
    finally:
        engine.dispose()


def by_sqlalchemy_stubborn(url: str, moment: str) -> None:
    """Swallows the first error and gets PendingRollbackError from the next statement."""
    engine = sa.create_engine(plain(url))
    try:
        with engine.connect() as connection:
            connection.execute(sa.text(HARMLESS))
            try:
                pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
                if moment != "commit":
                    end_backend(url, pid)
                connection.execute(sa.text(DEADLY))
                connection.commit()
            except sa.exc.DBAPIError:
                pass
            connection.execute(sa.text(HARMLESS))
            connection.commit()
    finally:
        engine.dispose()


def by_sqlalchemy_session(url: str, moment: str) -> None:
    engine = sa.create_engine(plain(url))
    try:
        with Session(engine) as session, session.begin():
            session.execute(sa.text(HARMLESS))
            if moment == "statement":
                session.execute(sa.text(KILL_ME))
            if moment == "between":
                pid = session.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
                end_backend(url, pid)
            session.execute(sa.text(DEADLY))
    finally:
        engine.dispose()


def by_sqlalchemy_asyncpg(url: str, moment: str) -> None:
    async def write() -> None:
        engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
        try:
            async with engine.begin() as connection:
                await connection.execute(sa.text(HARMLESS))
                if moment == "statement":
                    await connection.execute(sa.text(KILL_ME))
                if moment == "between":
                    found = await connection.execute(sa.text("SELECT pg_backend_pid()"))
                    end_backend(url, found.scalar_one())
                    await asyncio.sleep(0.05)
                await connection.execute(sa.text(DEADLY))
        finally:
            await engine.dispose()

    asyncio.run(write())


CLIENTS: list[Write] = [
    by_psycopg,
    by_psycopg_async,
    by_asyncpg,
    by_asyncpg_pool,
    by_sqlalchemy,
    by_sqlalchemy_stubborn,
    by_sqlalchemy_session,
    by_sqlalchemy_asyncpg,
]


def lose_once(
    hf: Holdfast, handler: Callable[[Context], Any], *, checks_store: bool = True
) -> None:
    """Run a job whose first attempt loses its connection, then once more."""
    hf.job("effect.make")(lambda job, payload: handler(job))
    enqueued = hf.enqueue("effect.make", {}, org_id=ORG)

    hf.worker().run_once()

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.error_class) == (State.QUEUED, "STORE_UNAVAILABLE")
    assert job.attempt_count == 1
    run_again(hf)
    assert hf.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    if checks_store:
        assert_sound(hf)


def run_again(hf: Holdfast) -> None:
    """Run what is due in an hour."""
    assert isinstance(hf.clock, FakeClock)
    hf.clock.advance(hours=1)
    hf.worker().run_once()


def attempts() -> Callable[[], bool]:
    """Whether this is the first call."""
    calls = iter((True,))
    return lambda: next(calls, False)


@pytest.mark.req("R-12")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("write", CLIENTS, ids=lambda write: write.__name__)
def test_a_lost_connection_of_the_handlers_own_is_transient(
    shop: Holdfast, postgres_url: str, write: Write, moment: str
) -> None:
    is_first = attempts()
    # The store does not see which client lost its connection.
    lose_once(
        shop,
        lambda job: write(postgres_url, moment) if is_first() else None,
        checks_store=write is by_psycopg,
    )


@pytest.mark.req("R-12")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_connection_lost_inside_a_transaction_of_the_job_is_transient(
    shop: Holdfast, postgres_url: str, moment: str
) -> None:
    is_first = attempts()

    def write(job: Context) -> None:
        first = is_first()
        with job.transaction() as connection:
            connection.execute(HARMLESS)
            if first and moment == "statement":
                connection.execute(KILL_ME)
            if first and moment == "between":
                end_backend(postgres_url, connection.info.backend_pid)
            connection.execute(DEADLY if moment == "commit" else HARMLESS)

    lose_once(shop, write)


@pytest.mark.req("R-12")
def test_a_connection_lost_at_the_lease_check_is_transient(
    shop: Holdfast, postgres_url: str
) -> None:
    """The handler's last statement succeeded; the next one is the check before COMMIT."""
    is_first = attempts()

    def write(job: Context) -> None:
        with job.transaction() as connection:
            connection.execute(HARMLESS)
            if is_first():
                with psycopg.connect(postgres_url, autocommit=True) as admin:
                    pid = connection.info.backend_pid
                    admin.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))

    lose_once(shop, write)


@pytest.mark.req("R-12")
def test_a_connection_lost_in_a_pool_before_the_transaction_is_transient_or_unnoticed(
    shop: Holdfast, postgres_url: str
) -> None:
    is_first = attempts()

    def write(job: Context) -> str:
        if is_first():
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name = 'holdfast'"
                )
        with job.transaction() as connection:
            connection.execute(HARMLESS)
        return "done"

    shop.job("effect.make")(lambda job, payload: write(job))
    enqueued = shop.enqueue("effect.make", {}, org_id=ORG)
    shop.worker().run_once()
    run_again(shop)

    assert shop.get(enqueued.id, org_id=ORG).state is State.COMPLETED


@pytest.mark.req("R-12")
def test_a_lost_connection_that_the_handler_wraps_in_an_error_of_its_own_is_transient(
    shop: Holdfast, postgres_url: str
) -> None:
    class NotSaved(Exception):
        """An error of the handler."""

    is_first = attempts()

    def write(job: Context) -> None:
        if not is_first():
            return
        try:
            by_psycopg(postgres_url, "statement")
        except psycopg.Error as exc:
            raise NotSaved("order 7") from exc

    lose_once(shop, write)


@pytest.mark.req("R-12")
def test_a_lost_connection_in_a_group_of_tasks_is_transient(
    shop: Holdfast, postgres_url: str
) -> None:
    is_first = attempts()

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(by_psycopg, postgres_url, "statement"))

    def write(job: Context) -> None:
        if is_first():
            asyncio.run(both())

    lose_once(shop, write)


DJANGO = """
    import sys
    import django
    from django.conf import settings
    from holdfast.engine.classify import classify

    host, port, name = sys.argv[1:4]
    database = {"ENGINE": "django.db.backends.postgresql", "HOST": host, "PORT": port}
    database |= {"NAME": name, "USER": "postgres"}
    settings.configure(DATABASES={"default": database})
    django.setup()
    from django.db import connection, transaction

    def error_of(act):
        try:
            act()
        except Exception as exc:
            return classify(exc).error_class
        finally:
            connection.close()

    def statement():
        connection.cursor().execute("SELECT kill_me()")

    def at_commit():
        with transaction.atomic():
            connection.cursor().execute("INSERT INTO effect (note) VALUES ('deadly')")

    def swallowed():
        with transaction.atomic():
            try:
                statement()
            except django.db.Error:
                pass
            connection.cursor().execute("SELECT 1")

    def misuse():
        with transaction.atomic():
            try:
                connection.cursor().execute("SELECT * FROM no_such_table")
            except django.db.Error:
                pass
            connection.cursor().execute("SELECT 1")

    for act in (statement, at_commit, swallowed, misuse):
        print(act.__name__, error_of(act))
"""


@pytest.mark.req("R-12", "R-10")
def test_django_loses_its_connection(shop: Holdfast, postgres_url: str) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    where = [str(parts[name]) for name in ("host", "port", "dbname")]

    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DJANGO), *where],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert dict(line.split() for line in ran.stdout.splitlines()) == {
        "statement": "STORE_UNAVAILABLE",
        "at_commit": "STORE_UNAVAILABLE",
        "swallowed": "STORE_UNAVAILABLE",
        "misuse": "DEFECT",
    }


# -- errors of the program are not lost connections


def misuse_psycopg(url: str) -> None:
    with psycopg.connect(url) as connection:
        cursor = connection.cursor()
        cursor.close()
        cursor.execute("SELECT 1")


def misuse_asyncpg(url: str) -> None:
    async def both() -> None:
        connection = await asyncpg.connect(url)
        try:
            answers = await asyncio.gather(
                connection.execute("SELECT pg_sleep(0.2)"),
                connection.execute("SELECT 1"),
                return_exceptions=True,
            )
            raise next(answer for answer in answers if isinstance(answer, Exception))
        finally:
            await connection.close()

    asyncio.run(both())


def misuse_sqlalchemy(url: str) -> None:
    engine = sa.create_engine(plain(url))
    connection = engine.connect()
    connection.close()
    engine.dispose()
    connection.execute(sa.text("SELECT 1"))


def misuse_session(url: str) -> None:
    engine = sa.create_engine(plain(url))
    metadata = sa.MetaData()
    table = sa.Table("effect", metadata, sa.Column("id", sa.Integer, primary_key=True))

    class Effect:
        pass

    sa.orm.registry(metadata=metadata).map_imperatively(Effect, table)
    try:
        with Session(engine) as session:
            session.add(Effect())
            with pytest.raises(sa.exc.DBAPIError):
                # It has no note, which the table requires.
                session.flush()
            session.execute(sa.text("SELECT 1"))
    finally:
        engine.dispose()


def no_such_table(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT * FROM no_such_table")


def no_such_table_after_a_lost_race(url: str) -> None:
    try:
        raise psycopg.errors.SerializationFailure
    except psycopg.Error:
        no_such_table(url)


@pytest.mark.req("R-10")
@pytest.mark.parametrize(
    "misuse",
    [
        misuse_psycopg,
        misuse_asyncpg,
        misuse_sqlalchemy,
        misuse_session,
        no_such_table,
        no_such_table_after_a_lost_race,
    ],
    ids=lambda misuse: misuse.__name__,
)
def test_a_wrong_use_of_a_connection_stays_a_defect(
    shop: Holdfast, postgres_url: str, misuse: Callable[[str], None]
) -> None:
    shop.job("effect.make")(lambda job, payload: misuse(postgres_url))
    enqueued = shop.enqueue("effect.make", {}, org_id=ORG)

    shop.worker().run_once()

    job = shop.get(enqueued.id, org_id=ORG)
    assert (job.state, job.error_class) == (State.FAILED, "DEFECT")


# -- our own statements


def test_a_connection_lost_at_commit_is_replaced_and_the_work_runs_again(
    shop: Holdfast, postgres_url: str
) -> None:
    runs: list[int] = []

    def work(tx: Any) -> int:
        runs.append(tx.connection.info.backend_pid)
        tx.connection.execute(DEADLY)
        return len(runs)

    assert shop.store.write(work) == 2
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (1,)
