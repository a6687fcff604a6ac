"""A store on the connection of a test.

Everything happens in the open transaction of the test: jobs that it enqueued with ``conn=`` are
seen, and its rollback removes them with everything that their handlers wrote.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.errors import ConfigError, StoreError
from holdfast.store import digest, migrate
from holdfast.store.caller_connection import blocking, family_of, is_awaiting, raw_connection
from holdfast.store.caller_database import SQL
from holdfast.store.component import CORE
from holdfast.store.dialect import POSTGRES, SQLITE
from holdfast.store.file_watch import FileWatch
from holdfast.store.query import Statement
from holdfast.store.sqlite_tx import translate as translate_sqlite
from holdfast.store.store import Access, Row, Store, Tx, WakeUp
from holdfast.store.transaction import HandlerTransaction

T = TypeVar("T")


class ConnectionStore(Store):
    """A store that runs every statement on one connection of a test, in savepoints."""

    def __init__(self, connection: Any, clock: Clock) -> None:
        if is_awaiting(connection):
            raise ConfigError(
                "A test connection must be synchronous: pass the connection of a synchronous"
                " engine to the same database, or its URL."
            )
        self.connection = connection
        self.dialect, _ = blocking(connection)
        self.clock = clock
        self.is_embedded = self.dialect is SQLITE
        self._depth = 0
        # Whether the tables were created in the transaction of the test.
        self._created = False
        if self.dialect is SQLITE:
            digest.register(self.raw)
        elif family_of(self.raw) != "psycopg":
            raise ConfigError("On PostgreSQL the connection of a test must be one of psycopg 3.")
        name = self.one(SQL.identify)["name"]
        self.url = f"sqlite:///{name}" if name and self.is_embedded else "sqlite:"
        if not self.is_embedded:
            self.url = f"postgresql:///{name}"

    @property
    def raw(self) -> Any:
        """The connection of the driver. A session may get another one after a commit."""
        return raw_connection(self.connection)

    def _tx(self) -> Tx:
        kind = _SqliteTx if self.is_embedded else _PostgresTx
        return self._following(kind(self.raw, self.clock))

    def write(self, work: Callable[[Tx], T]) -> T:
        self._create_again()
        with self.savepoint():
            return work(self._tx())

    def write_one(self, work: Callable[[Tx], T]) -> T:
        return self.write(work)

    def read(self, work: Callable[[Tx], T]) -> T:
        self._create_again()
        return work(self._tx())

    def _create_again(self) -> None:
        """Create the tables again after a rollback that removed them."""
        if self._created and not self._tx().one(SQL.has_tables)["found"]:
            self._created = False
            self.migrate()
            self._created = True

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the block's writes if it fails; without an open transaction, commit or roll back."""
        raw = self.raw
        begin, end, undo = self._commands(raw)
        raw.execute(begin)
        self._depth += 1
        try:
            yield
        except BaseException:
            for command in undo:
                raw.execute(command)
            raise
        else:
            raw.execute(end)
        finally:
            self._depth -= 1

    def _commands(self, raw: Any) -> tuple[str, str, tuple[str, ...]]:
        name = f"holdfast_test_{self._depth}"
        nested = (
            f"SAVEPOINT {name}",
            f"RELEASE SAVEPOINT {name}",
            (f"ROLLBACK TO SAVEPOINT {name}", f"RELEASE SAVEPOINT {name}"),
        )
        if self.is_embedded:
            if not raw.in_transaction and raw.isolation_level is not None:
                # sqlite3 begins before the first write; the caller commits or rolls back.
                raw.execute("BEGIN")
            return nested
        is_idle = raw.info.transaction_status == 0
        return ("BEGIN", "COMMIT", ("ROLLBACK",)) if is_idle and raw.autocommit else nested

    @contextmanager
    def handler_transaction(
        self,
        org_id: str,
        unit: str | None,
        *,
        guard: Callable[[Tx], None],
        finish: Callable[[Tx], None],
        access: Access = Access.WRITE,
    ) -> Iterator[HandlerTransaction]:
        with self.savepoint():
            guard(self._tx())
            yield _Block(self)
            finish(self._tx())

    def announce(self, channels: Sequence[str]) -> None:
        """No worker waits."""

    def wake_up(self, channels: Sequence[str]) -> WakeUp:
        return FileWatch(None)

    def migrate(self) -> list[str]:
        missing = migrate.after(self.component_versions(), self.dialect, self.components)
        with self.savepoint():
            if self.is_embedded:
                return migrate.apply_sqlite(self.raw, self.components, self.component_versions())
            for migration in missing:
                self.raw.execute(migration.text.encode())
            self.raw.cursor().executemany(
                "INSERT INTO holdfast.migration (component, version, name) VALUES (%s, %s, %s)",
                [(one.component, one.version, one.name) for one in missing],
            )
        return [str(migration) for migration in missing]

    def check_schema(self) -> None:
        """Create missing tables in the transaction of the test."""
        versions = self.component_versions()
        if not {CORE.name, *(found.name for found in self.components)} <= versions.keys():
            self.migrate()
            self._created = True
        migrate.check_versions(self.component_versions(), self.dialect, self.url, self.components)

    def component_versions(self) -> dict[str, int]:
        if not self.one(SQL.has_tables)["found"]:
            return {}
        return {row["component"]: int(row["version"]) for row in self.many(SQL.list_versions)}

    def version(self) -> str:
        return f"{self.dialect.name} on the connection of a test"

    def close(self) -> None:
        """The connection belongs to the test."""


class _Block(HandlerTransaction):
    """The block of job.transaction() during a test: a savepoint of the test's transaction."""

    def __init__(self, store: ConnectionStore) -> None:
        self._store = store
        self.connection = store.raw

    def run(self, work: Callable[[Tx], T]) -> T:
        return self._store.write(work)

    def savepoint(self) -> AbstractContextManager[None]:
        return self._store.savepoint()


class _ConnectionTx(Tx):
    def stream(self, statement: Statement, /, **params: Any) -> Iterator[Row]:
        yield from self.many(statement, **params)

    def lock_units(self, units: Sequence[str]) -> None:
        """Does nothing: one connection excludes itself."""


class _SqliteTx(_ConnectionTx):
    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        super().__init__(SQLITE, clock)
        self.connection = connection

    def _fetch(
        self, text: str, params: dict[str, Any], prepare: bool
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        cursor = self.connection.cursor()
        # The test's connection may have its own row factory.
        cursor.row_factory = None
        try:
            cursor.execute(text, params)
            columns = [item[0] for item in cursor.description or ()]
            rows = cursor.fetchall()
        except sqlite3.Error as exc:
            raise translate_sqlite(exc) from exc
        return columns, rows, len(rows) if columns else cursor.rowcount


class _PostgresTx(_ConnectionTx):
    def __init__(self, connection: Any, clock: Clock) -> None:
        super().__init__(POSTGRES, clock)
        self.connection = connection

    def _fetch(
        self, text: str, params: dict[str, Any], prepare: bool
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        import psycopg
        from psycopg.rows import tuple_row
        from psycopg.types.datetime import TimestamptzLoader
        from psycopg.types.string import TextLoader

        from holdfast.store.postgres import translate

        given = {name: _text(value) for name, value in params.items()}
        try:
            with self.connection.cursor(row_factory=tuple_row) as cursor:
                for kind in ("uuid", "jsonb", "json"):
                    cursor.adapters.register_loader(kind, TextLoader)
                cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
                cursor.execute(text, given)
                columns = [item.name for item in cursor.description or ()]
                rows = cursor.fetchall() if columns else []
                return columns, rows, max(cursor.rowcount, 0)
        except psycopg.Error as exc:
            error: StoreError = translate(exc)
            raise error from exc

    def command(self, text: str) -> None:
        self.connection.execute(text)


def _text(value: Any) -> str | None:
    """A parameter as the engine sends it: as text, whose type the statement decides."""
    if value is None:
        return None
    return value.isoformat() if isinstance(value, datetime) else str(value)
