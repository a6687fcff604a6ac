"""What a handler's own statements may do to PostgreSQL: a role, a read-only transaction, a look.

The role refuses while the statement runs. A statement can leave the role again (RESET ROLE), as the
server allows it to every session; so before the commit of a confined transaction we look which
tables it changed, by the server's own count, and undo it if one of them is none of its business.
A read-only transaction cannot be made a writing one again. What neither stops is a COMMIT in the
middle: that is found, the job fails and the connection is closed, but what was written before it
stays. Against a handler that means harm only a login of its own helps.
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
from holdfast.store.authorize import refusal
from holdfast.store.denied import denied_object
from holdfast.store.libpq import Connection
from holdfast.store.store import Access
from holdfast.store.transaction import not_yours

_REFUSALS = (
    pg.InsufficientPrivilege,
    pg.ReadOnlySqlTransaction,
    pg.ActiveSqlTransaction,
    pg.InFailedSqlTransaction,
)

# Counts of earlier transactions of the session may be in these, so a difference is what tells. The
# chunks of a large value are in a table of their own, for which nobody has a grant; relkind leaves
# them out. A grant to PUBLIC names no audit table, so what counts is what the role was given by
# name, itself or through a role it is a member of.
_LOOK = b"""
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

    It has its own row factory and adapters, so nothing that a handler sets meets the next user of
    the server session. Its transaction and the session itself can only be ended by Holdfast.
    """

    # The last error of a statement: what a handler caught may explain a failed transaction.
    failed: psycopg.Error | None = None

    @classmethod
    def of(cls, pooled: Connection) -> LentConnection:
        lent = cls(pooled.pgconn)
        lent._autocommit = True
        lent._adapters = type(pooled.adapters)(pooled.adapters)
        lent.prepare_threshold = None
        return lent

    def take_back(self) -> None:
        """End the handler's use: whatever still refers to this object finds it closed."""
        self.pgconn = _closed()

    def commit(self) -> NoReturn:
        raise not_yours("commit()")

    def rollback(self) -> NoReturn:
        raise not_yours("rollback()")

    def close(self) -> None:
        if not self.closed:
            raise not_yours("close()")

    def __enter__(self) -> NoReturn:
        # Leaving psycopg's own block commits and closes.
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
    """A libpq connection that leads nowhere."""
    pgconn = pq.PGconn.connect_start(b"host=/ user=nobody")
    pgconn.finish()
    return pgconn


class Confinement:
    """What the handler's statements may do in one transaction."""

    def __init__(self, connection: Connection, access: Access) -> None:
        self.connection = connection
        self.access = access
        self._before = self._look()

    def begin(self) -> None:
        libpq.command(self.connection, _ROLES[self.access])

    def check(self) -> None:
        """Raise RuleViolated if the handler changed what it may not. Call with our own role."""
        before = self._before
        for table, changes in self._look().items():
            if changes > before.get(table, 0):
                raise refusal(self.access, table)

    @contextmanager
    def excepting(self) -> Iterator[None]:
        """Do not count what the engine's own statements of this block change."""
        before = self._look()
        yield
        for table, changes in self._look().items():
            own = changes - before.get(table, 0)
            self._before[table] = self._before.get(table, 0) + own

    def _look(self) -> dict[str, int]:
        """How many rows of which table were changed, of those that are none of its business."""
        if self.access is not Access.AUDIT:
            return {}
        _, rows, _ = libpq.fetch(self.connection, _LOOK.decode(), {}, None)
        return dict(rows)

    def refused(self, exc: Exception) -> RuleViolated | None:
        """Our failure for a statement that the server refused to a confined block."""
        if self.access is Access.WRITE or not isinstance(exc, _REFUSALS):
            return None
        if self.access is not Access.AUDIT and denied_object(exc) is not None:
            # Whether a grant is missing is asked once the transaction is over.
            return None
        return refusal(self.access, type(exc).__name__)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn the server's refusals of a confined block into ours."""
        try:
            yield
        except psycopg.Error as exc:
            refused = self.refused(exc)
            if refused is None:
                raise
            raise refused from exc
