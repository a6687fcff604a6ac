"""Statement guards for PostgreSQL: they restrict the SQL of a handler in its transaction.

A role restricts statements while they run. A statement can leave the role (RESET ROLE); therefore
the engine counts the changed rows per table before the commit and rolls back if a table was changed
that the handler may not write. A read-only transaction cannot become writable again. A COMMIT in
the transaction is detected: the job fails and the connection is closed, but earlier writes stay.
Only a separate login for handlers protects against a malicious handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import psycopg
from psycopg import errors as pg
from psycopg import pq

from holdfast.errors import RuleViolated
from holdfast.store import libpq
from holdfast.store.denied import denied_object
from holdfast.store.guards import refusal
from holdfast.store.libpq import Connection
from holdfast.store.store import Access
from holdfast.store.transaction import not_yours

_REFUSALS = (
    pg.InsufficientPrivilege,
    pg.ReadOnlySqlTransaction,
    pg.ActiveSqlTransaction,
    pg.InFailedSqlTransaction,
)

# These counters may include earlier transactions of the session, so differences are compared. Large
# values are stored in TOAST tables, which have no grants; relkind excludes them. Only grants to the
# role by name, or to a role it is in, make an audit table; grants to PUBLIC do not.
_CHANGES = b"""
SELECT relnamespace::regnamespace::text || '.' || relname, changes
FROM (
    SELECT oid, relnamespace, relname, coalesce(relacl, acldefault('r', relowner)) AS grants,
           pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid)
           + pg_stat_get_xact_tuples_deleted(oid) AS changes
    FROM pg_class WHERE relkind IN ('r', 'p', 'm')
) AS touched
WHERE changes > 0 AND NOT EXISTS (
    SELECT FROM aclexplode(grants) AS given
    WHERE given.privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
      AND CASE WHEN given.grantee = 0 THEN FALSE
               ELSE pg_has_role('holdfast_auditor', given.grantee, 'USAGE') END
)
"""

_ROLES = {
    Access.WRITE: b"SET LOCAL ROLE holdfast_tenant",
    Access.DOMAIN: b"SET LOCAL ROLE holdfast_tenant",
    Access.READ: b"SET TRANSACTION READ ONLY; SET LOCAL ROLE holdfast_tenant",
    Access.AUDIT: b"SET LOCAL ROLE holdfast_auditor",
}


class LentConnection(psycopg.Connection[Any]):
    """The handler's view of a pooled connection, for one block.

    It has its own row factory and adapters, so a handler's settings do not affect the next user of
    the server session. Only Holdfast can end its transaction and the session.
    """

    is_lent = True
    # The last statement error: an error that a handler caught may explain a failed transaction.
    failed: psycopg.Error | None = None

    @classmethod
    def wrap(cls, pooled: Connection) -> LentConnection:
        lent = cls(pooled.pgconn)
        lent._autocommit = True
        lent._adapters = type(pooled.adapters)(pooled.adapters)
        lent.prepare_threshold = None
        return lent

    def take_back(self) -> None:
        """End the handler's use: remaining references see a closed connection."""
        self.pgconn = _closed()

    def commit(self) -> NoReturn:
        raise not_yours("commit()")

    def rollback(self) -> NoReturn:
        raise not_yours("rollback()")

    def close(self) -> None:
        if not self.closed:
            raise not_yours("close()")

    def __enter__(self) -> NoReturn:
        # Leaving psycopg's own context manager commits and closes.
        raise not_yours("'with connection:'")

    def wait(self, *args: Any, **options: Any) -> Any:
        try:
            return super().wait(*args, **options)
        except psycopg.Error as exc:
            if not isinstance(exc, pg.InFailedSqlTransaction):
                self.failed = exc
            raise


@cache
def _closed() -> pq.abc.PGconn:
    """Return a libpq connection that is not connected."""
    pgconn = pq.PGconn.connect_start(b"host=/ user=nobody")
    pgconn.finish()
    return pgconn


class Confinement:
    """The restrictions on a handler's statements in one transaction."""

    def __init__(self, connection: Connection, access: Access) -> None:
        self.connection = connection
        self.access = access
        self._before = self._count_changes()

    def begin(self) -> None:
        libpq.command(self.connection, _ROLES[self.access])

    def check(self) -> None:
        """Raise RuleViolated if the handler changed a forbidden table. Call as the engine role."""
        before = self._before
        for table, changes in self._count_changes().items():
            if changes > before.get(table, 0):
                raise refusal(self.access, table)

    @contextmanager
    def excepting(self) -> Iterator[None]:
        """Do not count changes by the engine's own statements in this block."""
        before = self._count_changes()
        yield
        for table, changes in self._count_changes().items():
            own = changes - before.get(table, 0)
            self._before[table] = self._before.get(table, 0) + own

    def _count_changes(self) -> dict[str, int]:
        """Return the changed rows by table, for tables that the handler may not write."""
        if self.access is not Access.AUDIT:
            return {}
        _, rows, _ = libpq.fetch(self.connection, _CHANGES.decode(), {}, None)
        return dict(rows)

    def refused(self, exc: Exception) -> RuleViolated | None:
        """Return the failure for a statement that the server refused in a confined block."""
        if self.access is Access.WRITE or not isinstance(exc, _REFUSALS):
            return None
        if self.access is not Access.AUDIT and denied_object(exc) is not None:
            # missing_grant decides after the transaction has ended.
            return None
        return refusal(self.access, type(exc).__name__)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Convert the server's refusals in a confined block."""
        try:
            yield
        except psycopg.Error as exc:
            refused = self.refused(exc)
            if refused is None:
                raise
            raise refused from exc
