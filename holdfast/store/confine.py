"""What a handler's own statements may do to PostgreSQL: a role, a read-only transaction, a look.

The role refuses while the statement runs. A statement can leave the role again (RESET ROLE), as the
server allows it to every session; so before the commit of a confined transaction we look which
tables it changed, by the server's own count, and undo it if one of them is none of its business.
A read-only transaction cannot be made a writing one again. What neither stops is a COMMIT in the
middle: that is found, the job fails and the connection is closed, but what was written after it
stays. Against a handler that means harm only a login of its own helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from holdfast.store.authorize import refusal
from holdfast.store.denied import denied_object
from holdfast.store.libpq import Connection
from holdfast.store.store import Access

_REFUSALS = (
    pg.InsufficientPrivilege,
    pg.ReadOnlySqlTransaction,
    pg.ActiveSqlTransaction,
    pg.InFailedSqlTransaction,
)

_WHICH = "SELECT pg_current_xact_id()::text, '', 0"
# Counts of earlier transactions of the session may be in these, so a difference is what tells. The
# chunks of a large value are in a table of their own, for which nobody has a grant; relkind leaves
# them out. A grant to PUBLIC names no audit table, so what counts is what the role was given by
# name, itself or through a role it is a member of.
_LOOK = """
SELECT pg_current_xact_id()::text, '', 0
UNION ALL
SELECT '', relnamespace::regnamespace::text || '.' || relname, changes
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

Changes = dict[str, int]


@contextmanager
def confined(connection: Connection, access: Access) -> Iterator[None]:
    """Let the statements of the block do what *access* allows; another one undoes the block."""
    if access in (Access.WRITE, Access.DOMAIN):
        connection.execute("SET LOCAL ROLE holdfast_tenant")
        with _refusing(access):
            yield
        return
    look = _LOOK if access is Access.AUDIT else _WHICH
    began, before = _run(connection, look)
    if access is Access.READ:
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute("SET LOCAL ROLE holdfast_tenant")
    else:
        connection.execute("SET LOCAL ROLE holdfast_auditor")
    with _refusing(access):
        try:
            yield
        finally:
            _still_inside(connection, access)
        connection.execute("SET LOCAL search_path = pg_catalog; RESET ROLE")
        ended, after = _run(connection, look)
        if ended != began:
            _left(connection, access)
        for table, changes in after.items():
            if changes > before.get(table, 0):
                raise refusal(access, table)


@contextmanager
def _refusing(access: Access) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as exc:
        if access is Access.WRITE or not isinstance(exc, _REFUSALS):
            raise
        if access is not Access.AUDIT and denied_object(exc) is not None:
            # Whether a grant is missing is asked once the transaction is over.
            raise
        raise refusal(access, type(exc).__name__) from exc


def _run(connection: Connection, look: str) -> tuple[str, Changes]:
    """Which transaction this is, and how many rows of which table were changed."""
    rows = connection.execute(look.encode()).fetchall()
    began = "".join(transaction for transaction, _, _ in rows)
    return began, {table: changes for _, table, changes in rows if table}


def _still_inside(connection: Connection, access: Access) -> None:
    if connection.info.transaction_status is TransactionStatus.IDLE:
        _left(connection, access)


def _left(connection: Connection, access: Access) -> NoReturn:
    # Whatever it set for the session must not meet the next user of this connection.
    connection.close()
    raise refusal(access, "the end of its transaction")
