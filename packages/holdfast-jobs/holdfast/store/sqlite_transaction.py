"""A handler's transaction on SQLite, on its own connection, which holds the file's write lock.

The store's writer is not lent, so a handler cannot break it. An in-memory database has only one
connection, and it is lent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from holdfast.errors import HoldfastError, StoreBusy, StoreDown, StoreError
from holdfast.store.guards import Authorizer, LentConnection, confined
from holdfast.store.store import Access, Tx
from holdfast.store.transaction import HandlerTransaction, failed_inside

T = TypeVar("T")


class SqliteTransaction(HandlerTransaction):
    """One block on a connection that has begun its transaction."""

    def __init__(
        self,
        connection: LentConnection,
        access: Access,
        audit_tables: Collection[str],
        tx: Callable[[], Tx],
        translate: Callable[[sqlite3.Error], StoreError],
    ) -> None:
        self.connection = connection
        self._authorizer = Authorizer(access, audit_tables)
        self._tx = tx
        self._translate = translate
        self._depth = 0

    @property
    def leaves_something(self) -> bool:
        """Whether the handler changed its connection beyond the transaction."""
        return self._authorizer.leaves_something

    @contextmanager
    def block(self, guard: Callable[[Tx], None], finish: Callable[[Tx], None]) -> Iterator[None]:
        """Run the handler's part of the transaction, between BEGIN and COMMIT."""
        connection = self.connection
        guard(self._tx())
        connection.execute("SAVEPOINT holdfast_block")
        connection.lend()
        try:
            with confined(connection, self._authorizer):
                yield
        finally:
            connection.take_back()
        self._release("holdfast_block")
        finish(self._tx())

    def _release(self, name: str) -> None:
        """Release a savepoint; that it exists proves that the transaction is the original one."""
        try:
            self.connection.execute(f"RELEASE {name}")
        except sqlite3.OperationalError as exc:
            raise self._rolled_back() from exc

    def _rolled_back(self) -> HoldfastError:
        """Return the failure of a transaction that SQLite rolled back (OR ROLLBACK or disk)."""
        caught = self.connection.failed
        error = None if caught is None else self._translate(caught)
        return error if isinstance(error, (StoreBusy, StoreDown)) else failed_inside()

    def run(self, work: Callable[[Tx], T]) -> T:
        self._check_open()
        connection = self.connection
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        # Resetting it makes SQLite check every prepared statement again, including the engine's.
        connection.set_authorizer(None)
        try:
            with self._within("holdfast_call"):
                return work(self._tx())
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc
        finally:
            connection.set_authorizer(self._authorizer)
            connection.row_factory, connection.text_factory = factories

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._check_open()
        self._depth += 1
        try:
            with self._within(f"holdfast_block_{self._depth}"):
                yield
        finally:
            self._depth -= 1

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        connection = self.connection
        connection.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute(f"ROLLBACK TO {name}")
                connection.execute(f"RELEASE {name}")
            raise
        self._release(name)

    def _check_open(self) -> None:
        if not self.connection.in_transaction:
            raise self._rolled_back()
