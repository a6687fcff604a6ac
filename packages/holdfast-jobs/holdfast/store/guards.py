"""Statement guards for SQLite, which has no roles: they restrict the SQL of a handler.

SQLite calls an authorizer while it prepares a statement, so a refused statement never runs. The
authorizer restricts any SQL. It does not restrict Python: a handler runs in the worker's process
and could remove it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.errors import RuleViolated, Signal
from holdfast.store.store import Access
from holdfast.store.transaction import not_yours

OWN_PREFIX = "holdfast_"
AUDIT_NOTES = "holdfast_audit_note"
# Where a repeated idempotency key is recorded as seen.
_KEY_SEEN = "holdfast_job_key_seen"

_READING = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_SAVEPOINT,
    }
)
_CHANGING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
# Changes that outlive the transaction in the connection: the next block uses a new connection.
_LASTING = frozenset(
    {
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    }
)


class LentCursor(sqlite3.Cursor):
    """A cursor of a lent connection. It records failures and is closed with the block."""

    def __init__(self, connection: LentConnection) -> None:
        super().__init__(connection)
        self._lent = connection
        self._block = connection.block

    def execute(self, *args: Any) -> LentCursor:
        with self._noting():
            super().execute(*args)
        return self

    def executemany(self, *args: Any) -> LentCursor:
        with self._noting():
            super().executemany(*args)
        return self

    def executescript(self, *args: Any) -> LentCursor:
        if self._lent.is_lent:
            # executescript() commits before it runs.
            raise not_yours("executescript()")
        super().executescript(*args)
        return self

    @contextmanager
    def _noting(self) -> Iterator[None]:
        if self._block != self._lent.block:
            raise sqlite3.ProgrammingError("The block of job.transaction() has ended.")
        try:
            yield
        except sqlite3.Error as exc:
            self._lent.failed = exc
            raise


class LentConnection(sqlite3.Connection):
    """A connection whose transaction the handler cannot end while it is lent."""

    is_lent = False
    # Number of blocks it was lent for; odd while one is open.
    block = 0
    failed: sqlite3.Error | None = None

    def cursor(self, factory: Any = LentCursor) -> Any:
        return super().cursor(factory)

    def commit(self) -> None:
        self._refuse("commit()")
        super().commit()

    def rollback(self) -> None:
        self._refuse("rollback()")
        super().rollback()

    def close(self) -> None:
        self._refuse("close()")
        super().close()

    def __enter__(self) -> LentConnection:
        # Leaving sqlite3's own context manager commits without a call of commit().
        self._refuse("'with connection:'")
        super().__enter__()
        return self

    def _refuse(self, method: str) -> None:
        if self.is_lent:
            raise not_yours(method)

    def lend(self) -> None:
        self.is_lent, self.failed = True, None
        self.block += 1

    def take_back(self) -> None:
        """End the handler's use and reset its changes to this connection."""
        self.is_lent = False
        self.block += 1
        self.row_factory = None
        self.text_factory = str
        self.set_authorizer(None)
        self.set_progress_handler(None, 0)
        self.set_trace_callback(None)


class Authorizer:
    """Allows or denies each part of a statement, and records the first denial."""

    def __init__(self, access: Access, audit_tables: Collection[str]) -> None:
        self.access = access
        # SQLite compares names without case.
        self.tables = frozenset(name.lower() for name in audit_tables)
        self.refused: str | None = None
        self.ends_transaction = False
        self.leaves_something = False

    def __call__(
        self, action: int, name: str | None, detail: str | None, _: str | None, inside: str | None
    ) -> int:
        if action in _LASTING or (action == sqlite3.SQLITE_PRAGMA and detail is not None):
            self.leaves_something = True
        if self._allows(action, (name or "").lower(), (detail or "").lower(), inside):
            return sqlite3.SQLITE_OK
        self.ends_transaction |= action == sqlite3.SQLITE_TRANSACTION
        self.refused = self.refused or (name or detail or "a statement")
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, name: str, detail: str, inside: str | None) -> bool:
        if action == sqlite3.SQLITE_TRANSACTION:
            return False
        if action in _READING or self.access is Access.WRITE:
            return True
        if action == sqlite3.SQLITE_FUNCTION:
            return detail != "load_extension"
        if action == sqlite3.SQLITE_UPDATE and name in ("sqlite_master", "sqlite_temp_master"):
            # SQLite issues this itself when a table-valued function such as json_each is first
            # used; a handler would need a pragma that is refused.
            return True
        if self.access is Access.AUDIT:
            # The application's tables may be updated in place; nothing may be deleted from an
            # audit.
            return (action == sqlite3.SQLITE_INSERT and name in {AUDIT_NOTES, *self.tables}) or (
                action == sqlite3.SQLITE_UPDATE and name in self.tables
            )
        if self.access is Access.DOMAIN and action in _CHANGING:
            # A job may be enqueued; triggers write its audit and dependent rows.
            return (
                not name.startswith(("sqlite_", OWN_PREFIX))
                or inside is not None
                or (name == "holdfast_job_envelope" and action == sqlite3.SQLITE_INSERT)
                or (name == _KEY_SEEN and action != sqlite3.SQLITE_DELETE)
            )
        return False

    def refusal(self) -> RuleViolated | None:
        """The failure of a handler whose statement was denied, even if it caught the error."""
        if self.refused is None:
            return None
        return (
            not_yours(self.refused) if self.ends_transaction else refusal(self.access, self.refused)
        )


@contextmanager
def confined(connection: sqlite3.Connection, authorizer: Authorizer) -> Iterator[None]:
    """Run the block under the authorizer; a denied statement makes the block fail."""
    connection.set_authorizer(authorizer)
    try:
        yield
    except (Exception, Signal) as exc:
        refused = authorizer.refusal()
        if refused is None:
            raise
        raise refused from exc
    finally:
        connection.set_authorizer(None)
    refused = authorizer.refusal()
    if refused is not None:
        raise refused


def refusal(access: Access, what: str) -> RuleViolated:
    """Return the failure of a handler that tried more than its category allows."""
    return RuleViolated(
        f"This job's transaction may {access.says}; it accessed {what}.",
        access=access,
        touched=what,
    )
