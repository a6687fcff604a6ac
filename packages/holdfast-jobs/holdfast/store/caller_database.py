"""Checks that a caller's connection uses the database of the application.

A job that is enqueued into another database is never executed there, and no error would say so.
Each connection is checked once. On SQLite the check needs no open store, and missing tables are
created in the caller's transaction: it may hold the only write lock of a new file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from holdfast.errors import ConfigError, SchemaMismatch
from holdfast.store import digest, migrate
from holdfast.store.caller_connection import Steps, raw_connection, raw_sqlite
from holdfast.store.component import Component
from holdfast.store.dialect import POSTGRES, SQLITE, Dialect
from holdfast.store.query import Statements
from holdfast.store.sqlite_connect import path_of
from holdfast.store.store import Row, Store

SQL = Statements("holdfast.store", "caller_database.sql")

Identity = tuple[str, str | None]
"""The name of a database, and its server if the role may ask for it."""


class Application(Protocol):
    """The application whose database it is."""

    settings: Any
    extensions: Any

    @property
    def store(self) -> Store: ...


class CallerDatabase:
    """The database of one application, as callers' connections are compared with it."""

    def __init__(self, app: Application, opened: Callable[[], Store | None]) -> None:
        self.app = app
        # The store, if it is open.
        self._opened = opened
        self._own: tuple[Store, Identity] | None = None
        # Connections of sqlite3 have no weak references; their check takes microseconds.
        self._known: WeakSet[Any] = WeakSet()
        # What the refusal says during a test, set by the pytest plugin.
        self.hint = ""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the database, which need not be open."""
        opened = self._opened()
        if opened is not None:
            return opened.dialect
        return SQLITE if self.app.settings.db.startswith("sqlite:") else POSTGRES

    @property
    def is_embedded(self) -> bool:
        return self.dialect is SQLITE

    @property
    def store(self) -> Store | None:
        """The store; on SQLite only if it is open, because opening it may wait for the caller."""
        return self._opened() if self.is_embedded else self.app.store

    def steps(self, connection: Any) -> Steps[None]:
        """Refuse a connection to another database; on SQLite create missing tables."""
        raw = raw_connection(connection)
        if getattr(raw, "is_lent", False):
            # The connection of job.transaction() is one of the store.
            return
        if not self.is_embedded:
            if raw not in self._known:
                yield from self._check_server(self.app.store)
                with suppress(TypeError):
                    # Without weak references it is checked each time.
                    self._known.add(raw)
            return
        store = self._opened()
        yield from self._check_file(self.app.settings.db if store is None else store.url)
        if store is None:
            (row,) = yield SQL.has_tables, {}
            if not row["found"]:
                create_tables(connection, self.app.extensions.components)

    def _check_file(self, url: str) -> Steps[None]:
        (row,) = yield SQL.identify, {}
        own, theirs = path_of(url), row["name"]
        if own is None or not theirs:
            same = own is None and not theirs
        else:
            same = os.path.realpath(own) == os.path.realpath(theirs)
        if not same:
            raise self._refusal(own or "a database in memory", theirs or "a database in memory")

    def _check_server(self, store: Store) -> Steps[None]:
        (row,) = yield SQL.identify, {}
        name, server = row["name"], None
        own = self._identity_of(store)
        if row["can_tell"] and own[1] is not None:
            (found,) = yield SQL.find_server, {}
            server = found["server"]
        if name != own[0]:
            raise self._refusal(f"the database {own[0]}", f"the database {name}")
        if None not in (server, own[1]) and server != own[1]:
            raise self._refusal(
                f"the database {own[0]}", f"a database {name} on another PostgreSQL server"
            )

    def _identity_of(self, store: Store) -> Identity:
        if self._own is None or self._own[0] is not store:
            row: Row = store.one(SQL.identify)
            server = store.one(SQL.find_server)["server"] if row["can_tell"] else None
            self._own = store, (row["name"], server)
        return self._own[1]

    def _refusal(self, own: str, theirs: str) -> ConfigError:
        return ConfigError(
            f"conn= is a connection to {theirs}, and this Holdfast uses {own}: the job would never"
            " run. Nothing was enqueued. Give both the same database: Holdfast(db), HOLDFAST_DB or"
            f" db in holdfast.toml.{self.hint}"
        )


def create_tables(connection: Any, components: Sequence[Component]) -> None:
    """Create the tables of Holdfast on a caller's SQLite connection, in its transaction."""
    raw = raw_sqlite(connection)
    if not isinstance(raw, sqlite3.Connection):
        raise SchemaMismatch(
            "This database has no Holdfast tables, and they cannot be created on this connection."
            " Run 'holdfast migrate' once."
        )
    digest.register(raw)
    began = not raw.in_transaction
    if began:
        raw.execute("BEGIN IMMEDIATE")
    try:
        migrate.apply_sqlite(raw, components)
    except BaseException:
        if began:
            raw.execute("ROLLBACK")
        raise
    if began:
        raw.execute("COMMIT")
