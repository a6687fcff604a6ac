"""Both databases, one body: every test that asks for `url`, `store` or `hf` runs on each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.store import Store, open_store
from tests.postgres_server import PostgresServer
from tests.story import make_holdfast

TEMPLATE = "holdfast_template"
_names = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server. Its absence is a failure, never a skip."""
    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {TEMPLATE}")
        store = open_store(server.dsn(TEMPLATE), check=False)
        store.migrate()
        store.close()
        yield server
    finally:
        server.close()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A migrated database of the test's own."""
    name = f"t{next(_names)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        # Copying files is five times faster than replaying the template through the log.
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
    yield postgres.dsn(name)
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/work.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    made = make_holdfast(url, clock)
    yield made
    made.close()


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return hf.store


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which databases the run really used."""
    for line in sorted(_used):
        terminalreporter.write_line(f"database used: {line}")


_used: set[str] = set()


@pytest.fixture(autouse=True)
def _remember_database(request: pytest.FixtureRequest) -> None:
    if "url" in request.fixturenames and len(_used) < 2:
        opened = open_store(request.getfixturevalue("url"))
        _used.add(opened.version())
        opened.close()
