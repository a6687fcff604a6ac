"""A small SQLite file beside the database, for writes that cannot wait for its only writer.

A handler's transaction may occupy the writer for longer than a lease lasts. Meanwhile the leases of
all running jobs are extended here. A rescue checks this file as well.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.store.query import Statements
from holdfast.store.sqlite_tx import SqliteTx, begin, translate, until_commit
from holdfast.store.store import Row

SQL = Statements("holdfast.store", "lease.sql")

T = TypeVar("T")

# A machine crash ends every lease, so a commit need not wait for the disk.
_PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL")


class Sidecar:
    """Opened on first use. For an in-memory database it is in memory too."""

    def __init__(self, path: str | None, clock: Clock) -> None:
        self._path = None if path is None else path + ".sidecar"
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def extend(self, claims: Sequence[Row], lease_ms: int) -> None:
        def work(tx: SqliteTx) -> None:
            tx.affected(SQL.prune_extensions)
            tx.affected(SQL.extend_leases, claims=claims, lease_ms=lease_ms)

        self._write(work)

    def find(self, claims: Sequence[Row]) -> list[Row]:
        """Return those of *claims* whose extension has not expired."""
        return self._read(lambda tx: tx.many(SQL.find_extensions, claims=claims))

    def all(self) -> list[Row]:
        """Return all extensions that have not expired."""
        return self._read(lambda tx: tx.many(SQL.list_extensions))

    def _write(self, work: Callable[[SqliteTx], T]) -> T:
        with self._lock:
            connection = self._open()
            begin(connection)
            with until_commit(connection):
                return work(SqliteTx(connection, self._clock))

    def _read(self, work: Callable[[SqliteTx], list[Row]]) -> list[Row]:
        with self._lock:
            if self._connection is None and (self._path is None or not os.path.exists(self._path)):
                return []
            return work(SqliteTx(self._open(), self._clock))

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                connection = sqlite3.connect(
                    self._path or ":memory:",
                    timeout=1.0,
                    isolation_level=None,
                    check_same_thread=False,
                )
                for pragma in _PRAGMAS:
                    connection.execute("PRAGMA " + pragma)
                SqliteTx(connection, self._clock).affected(SQL.create_extensions)
            except sqlite3.Error as exc:
                raise translate(exc) from exc
            self._connection = connection
        return self._connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
