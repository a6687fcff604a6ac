"""A store that a whole file shares, for tests that read only rows of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import FakeClock
from holdfast.store import Store, open_store
from tests.conftest import TEMPLATE
from tests.postgres_server import PostgresServer

_names = itertools.count(1)


@pytest.fixture(scope="module")
def shared_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A migrated database for a whole file."""
    name = f"shared{next(_names)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
    yield postgres.dsn(name)
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/work.db"
    else:
        url = request.getfixturevalue("shared_postgres_url")
    store = open_store(url, clock=FakeClock())
    yield store
    store.close()
