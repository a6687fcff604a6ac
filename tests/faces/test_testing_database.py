"""The pytest plugin on the application's own test database, as its tests would use it."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from holdfast import ConfigError, Context, Holdfast
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.testing import ORG, HoldfastApp
from holdfast.testing_store import is_test_name
from tests.conftest import TEMPLATE
from tests.postgres_server import PostgresServer

app = Holdfast("sqlite:///the-real-one.db")
app.queue("q:receipts")
sessions: list[Session] = []
_numbers = itertools.count(1)


@app.job("receipt.send", queue="q:receipts")
def send_receipt(job: Context, payload: dict[str, Any]) -> None:
    sessions[-1].execute(sa.text("UPDATE purchase SET sent = sent + 1"))


@app.job("books.close", category="maintenance")
def close_books(job: Context, payload: dict[str, Any]) -> str:
    with job.transaction() as connection:
        connection.execute("UPDATE purchase SET sent = 100")
    return "closed"


@app.job("stock.count")
def count_stock(job: Context, payload: dict[str, Any]) -> int:
    return 7


app.schedule("nightly", cron="0 3 * * *", job_type="books.close", payload={}, org_id=ORG)


@pytest.fixture(params=["sqlite", "postgres"])
def test_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/test.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"test_shop_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        yield server.dsn(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def engine(test_url: str) -> Iterator[sa.Engine]:
    # A test client calls the application in another thread.
    other_thread = {} if test_url.startswith("postgres") else {"check_same_thread": False}
    address = test_url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(address, connect_args=other_thread)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE purchase (number INTEGER, sent INTEGER)"))
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    """The usual fixture: every write of a test is rolled back."""
    with engine.connect() as connection:
        transaction = connection.begin()
        session = Session(connection, join_transaction_mode="create_savepoint")
        sessions.append(session)
        yield session
        session.close()
        transaction.rollback()


@pytest.fixture
def holdfast_target() -> Holdfast:
    return app


@pytest.fixture
def holdfast_database(session: Session) -> Session:
    return session


def buy(session: Session) -> None:
    session.execute(sa.text("INSERT INTO purchase VALUES (1, 0)"))
    app.enqueue("receipt.send", {"number": 1}, org_id=ORG, conn=session)


def sent(session: Session) -> int:
    return int(session.execute(sa.text("SELECT sent FROM purchase")).scalar_one())


def test_a_job_of_an_open_transaction_is_seen_and_runs_in_it(
    holdfast_app: HoldfastApp, session: Session, engine: sa.Engine
) -> None:
    buy(session)

    holdfast_app.assert_enqueued("receipt.send", payload={"number": 1}, times=1)
    holdfast_app.assert_not_enqueued("books.close")
    assert holdfast_app.drain().outcomes == {"completed": 1}

    assert sent(session) == 1
    session.rollback()
    assert holdfast_app.all_enqueued() == []
    with engine.connect() as other:
        assert other.execute(sa.text("SELECT count(*) FROM purchase")).scalar_one() == 0


def test_inline_jobs_and_crashes_work_in_the_transaction(
    holdfast_app: HoldfastApp, session: Session
) -> None:
    holdfast_app.inline()
    buy(session)
    assert sent(session) == 1
    holdfast_app.manual()
    app.enqueue("receipt.send", {"number": 2}, org_id=ORG, conn=session)
    with holdfast_app.crash_after("execute"):
        holdfast_app.drain()
    assert sent(session) == 2

    holdfast_app.advance(seconds=61)
    holdfast_app.run_maintenance()
    assert holdfast_app.drain(with_delays=True).outcomes == {"completed": 1}

    assert sent(session) == 3


def test_advance_fires_schedules(holdfast_app: HoldfastApp, session: Session) -> None:
    session.execute(sa.text("INSERT INTO purchase VALUES (1, 0)"))

    counts = holdfast_app.advance(days=2)
    assert counts["enqueued"] == 2
    holdfast_app.assert_enqueued("books.close", times=2)
    holdfast_app.drain()

    assert sent(session) == 100


def test_a_request_of_a_web_application_is_seen(
    holdfast_app: HoldfastApp, session: Session
) -> None:
    web = FastAPI()

    def get_session() -> Session:
        raise AssertionError("the test overrides it")

    @web.post("/purchases")
    async def place(found: Session = Depends(get_session)) -> None:  # noqa: B008
        buy(found)

    web.dependency_overrides[get_session] = lambda: session
    assert TestClient(web).post("/purchases").status_code == 200

    holdfast_app.assert_enqueued("receipt.send")


@pytest.mark.parametrize("kind", ["url", "engine"])
def test_a_test_that_commits_names_the_database(
    engine: sa.Engine, test_url: str, kind: str
) -> None:
    under_test = HoldfastApp(app)
    try:
        under_test.use(test_url if kind == "url" else engine)
        with Session(engine) as session:
            app.enqueue("stock.count", {}, org_id=ORG, conn=session)
            session.commit()

            assert under_test.drain().outcomes == {"completed": 1}
    finally:
        under_test.close()


def test_an_engine_in_memory_is_shared() -> None:
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    under_test = HoldfastApp(app)
    try:
        under_test.use(engine)
        with Session(engine) as session:
            app.enqueue("receipt.send", {}, org_id=ORG, conn=session)
            under_test.assert_enqueued("receipt.send")
    finally:
        under_test.close()
        engine.dispose()


def test_a_connection_to_another_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    under_test = HoldfastApp(app)
    real = sqlite3.connect(tmp_path / "shop.db")
    try:
        with pytest.raises(ConfigError, match=r"holdfast_app\.use\(connection\)"):
            app.enqueue("receipt.send", {}, org_id=ORG, conn=real)

        assert real.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    finally:
        real.close()
        under_test.close()


def test_a_database_that_is_not_for_tests_is_refused(
    holdfast_app: HoldfastApp, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The repository itself may be in the temporary folder.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with psycopg.connect(postgres_url) as real:
        for database in (postgres_url, real):
            with pytest.raises(ConfigError, match="does not look like a test database"):
                holdfast_app.use(database)
    path = Path(__file__).parent / "shop.db"
    with pytest.raises(ConfigError, match="does not look like a test database"):
        holdfast_app.use(f"sqlite:///{path}")
    assert not path.exists()


def test_a_file_in_a_temporary_folder_with_jobs_of_others_is_refused() -> None:
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        used, new = f"sqlite:///{folder}/shop.db", f"sqlite:///{folder}/new.db"
        with Holdfast(used, default_tenant=True) as real:
            real.job("stock.count")(lambda job, payload: 7)
            real.enqueue("stock.count", {})
        under_test = HoldfastApp(app)
        try:
            with pytest.raises(ConfigError, match="has jobs that this test run did not create"):
                under_test.use(used)
            # Jobs of the test itself do not count.
            for _ in range(2):
                under_test.use(new)
                app.enqueue("stock.count", {}, org_id=ORG)
        finally:
            under_test.close()
        with Holdfast(used, default_tenant=True) as real:
            (count,) = real.operate(actor="user:1", role="admin").jobs.counts()
            assert (count.state, count.jobs) == ("queued", 1)


def test_a_database_with_a_running_worker_is_refused(test_url: str) -> None:
    under_test = HoldfastApp(app)
    with Holdfast(test_url) as real:
        Heartbeat(real.store, {}, "w-1", ["q:default"], [], lease_ms=30_000).send()
    try:
        with pytest.raises(ConfigError, match=r"Worker w-1 .* so the test refuses to run on it"):
            under_test.use(test_url)
    finally:
        under_test.close()


@pytest.mark.parametrize(
    ("name", "is_for_tests"),
    [
        ("", True),
        ("test_shop", True),
        ("shop-tests", True),
        ("shop", False),
        ("latest", False),
        ("/srv/shop/test.db", True),
        ("/srv/shop/tests/shop.db", True),
        ("/srv/shop/contest.db", False),
        ("/srv/shop.db", False),
    ],
)
def test_the_name_says_whether_a_database_is_for_tests(name: str, is_for_tests: bool) -> None:
    assert is_test_name(name) is is_for_tests


def test_the_application_is_restored() -> None:
    assert app.settings.db == "sqlite:///the-real-one.db"
    assert app.callers.hint == ""
    assert abs((app.clock.now() - datetime.now(UTC)).total_seconds()) < 5
    assert not Path("the-real-one.db").exists()
