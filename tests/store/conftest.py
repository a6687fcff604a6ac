"""A store that a whole file shares, for tests that look only at rows of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import FakeClock
from holdfast.store import Store, open_store
from tests.conftest import TEMPLATE
from tests.postgres_server import PostgresServer

_names = itertools.count(1)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("shared")
        store = open_store(f"sqlite:///{folder}/work.db", clock=FakeClock())
        yield store
        store.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"shared{next(_names)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
    store = open_store(server.dsn(name), clock=FakeClock())
    yield store
    store.close()
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
