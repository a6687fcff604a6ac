"""Stores with many rows, for the plans of statements: each is filled once for a whole file."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, Settings
from holdfast.store import open_store
from tests.conftest import TEMPLATE
from tests.postgres_server import PostgresServer
from tests.story import by_hand

KINDS = [
    (database, state)
    for database in ("sqlite", "postgres")
    for state in ("never_analyzed", "analyzed")
]
TABLES = ("job_envelope", "job_ready", "job_waiting", "job_running", "job_attempt", "job_outcome")
_names = itertools.count(1)


class Crowds:
    """A filled store of each database. One that was analyzed is filled again if it must not be."""

    def __init__(self, request: pytest.FixtureRequest, fill: Callable[[Holdfast], None]) -> None:
        self._request = request
        self._fill = fill
        self._filled: dict[str, Holdfast] = {}
        self._analyzed: set[str] = set()

    def get(self, database: str, state: str) -> Holdfast:
        if database not in self._filled or (
            state == "never_analyzed" and database in self._analyzed
        ):
            self._filled[database] = self._make(database)
            self._analyzed.discard(database)
        made = self._filled[database]
        if state == "analyzed" and database not in self._analyzed:
            by_hand(made.store, "ANALYZE")
            self._analyzed.add(database)
        return made

    def _make(self, database: str) -> Holdfast:
        clock = FakeClock()
        store = open_store(self._url(database), clock=clock)
        self._request.addfinalizer(store.close)
        if database == "postgres":
            for table in TABLES:
                by_hand(store, f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        hf = Holdfast(settings=Settings(db="sqlite://"), clock=clock)
        hf.use_store(store)
        self._fill(hf)
        return hf

    def _url(self, database: str) -> str:
        if database == "sqlite":
            folders: pytest.TempPathFactory = self._request.getfixturevalue("tmp_path_factory")
            return f"sqlite:///{folders.mktemp('crowd')}/work.db"
        server: PostgresServer = self._request.getfixturevalue("postgres")
        name = f"crowd{next(_names)}"
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        self._request.addfinalizer(lambda: _drop(server, name))
        return server.dsn(name)


def _drop(server: PostgresServer, name: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
