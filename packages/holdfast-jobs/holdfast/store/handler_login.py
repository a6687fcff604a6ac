"""A PostgreSQL login for handlers only, which enforces tenant isolation.

On the engine's login a handler could reset its role. A member of holdfast_handler has no other role
to change to, and no setting chooses its tenant: the engine binds each transaction to a tenant by
transaction id, on its own connection. The engine's statements in such a transaction go through
SECURITY DEFINER functions that require the secret of that transaction.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from holdfast.clock import Clock
from holdfast.errors import ConfigError, StoreError
from holdfast.store import libpq
from holdfast.store.libpq import CONNECT, Connection
from holdfast.store.login import HELP, Login
from holdfast.store.pool import Pool
from holdfast.store.postgres_transaction import PostgresTransaction
from holdfast.store.postgres_tx import PostgresTx
from holdfast.store.query import Statement, Statements
from holdfast.store.store import Access, Row, Tx

SQL = Statements("holdfast.store", "handler_login.sql")

Translate = Callable[[Exception], StoreError]
Write = Callable[[Callable[[Tx], int]], int]
# The columns of a statement: names and SQL types.
Columns = tuple[list[str], list[str]]

_XID = "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text"
_TENANT = "SELECT holdfast.current_tenant()"
# Schema-qualified, because the handler's search path is in force here.
_TYPES = (
    "SELECT pg_catalog.format('%%I.%%I', namespace.nspname, kind.typname)"
    " FROM pg_catalog.unnest(%(oids)s::pg_catalog.oid[]) WITH ORDINALITY AS asked (oid, place)"
    " JOIN pg_catalog.pg_type AS kind ON kind.oid = asked.oid"
    " JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = kind.typnamespace"
    " ORDER BY asked.place"
)


def read_login(url: str, clock: Clock) -> Login:
    """Return the privileges of the login in *url*."""
    with psycopg.connect(url, **CONNECT) as connection:
        return _login_of(connection, clock)


def _login_of(connection: Connection, clock: Clock) -> Login:
    return Login(**PostgresTx(connection, clock).one(SQL.read_login))


class HandlerLogin:
    """The connections of the handlers' login, and the tenants of their transactions."""

    def __init__(self, url: str, size: int | None, clock: Clock, write: Write) -> None:
        self.pool = Pool(url, size)
        self._clock = clock
        # Runs one statement on a connection of the engine.
        self._write = write
        self._columns: dict[str, Columns] = {}
        self._checking = threading.Lock()
        self._is_checked = False
        self._is_same_database = False

    def open_block(
        self, access: Access, timeout: float, translate: Translate, *, idle_seconds: int
    ) -> PostgresTransaction:
        """Open a block on a connection of this login. Raises ConfigError if the login is unfit."""
        pooled = self.pool.take(timeout)
        try:
            self._check(pooled)
        except BaseException:
            self.pool.give_back(pooled)
            raise
        secret = secrets.token_hex(16)
        return PostgresTransaction(
            pooled,
            access,
            lambda: HandlerTx(pooled, self._clock, secret, self._columns),
            translate,
            bind=lambda org_id: self._bind(pooled, org_id, secret),
            idle_seconds=idle_seconds,
        )

    def _check(self, pooled: Connection) -> None:
        """Check once whether the login isolates tenants."""
        with self._checking:
            if self._is_checked:
                return
            login = _login_of(pooled, self._clock)
            if login.fault is not None:
                raise ConfigError(
                    f"The login {login.name} of handler_db {login.fault}, so its handlers could"
                    f" reach other tenants. {HELP}"
                )
            self._is_checked = True

    def _bind(self, pooled: Connection, org_id: str, secret: str) -> None:
        """Bind the open transaction of *pooled* to a tenant, from a connection of the engine."""
        _, ((xid,),), _ = libpq.fetch(pooled, _XID, {}, None)
        self._write(
            lambda tx: tx.affected(SQL.bind_transaction, xid=xid, org_id=org_id, secret=secret)
        )
        if self._is_same_database:
            return
        _, ((bound,),), _ = libpq.fetch(pooled, _TENANT, {}, None)
        self._is_same_database = bound == org_id
        if not self._is_same_database:
            raise ConfigError(
                "handler_db points to another database than db. Use the same host and name in both."
            )


class HandlerTx(PostgresTx):
    """The engine's statements in a transaction of the handlers' login."""

    def __init__(
        self, connection: Connection, clock: Clock, secret: str, columns: dict[str, Columns]
    ) -> None:
        super().__init__(connection, clock)
        self._secret = secret
        self._columns = columns

    def _fetch(
        self, text: str, params: dict[str, Any], prepare: bool
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        names, types = self._columns_of(text)
        sent = {
            "secret": self._secret,
            "statement": libpq.with_values(self.connection, text, params),
        }
        if not names:
            call = "SELECT holdfast.run_as_engine(%(secret)s, %(statement)s)"
            _, ((touched,),), _ = libpq.fetch(self.connection, call, sent, None)
            return [], [], touched
        columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(types))
        call = "SELECT * FROM holdfast.fetch_as_engine(%(secret)s, %(statement)s) AS answer"
        call += f" ({columns})"
        _, rows, touched = libpq.fetch(self.connection, call, sent, None)
        return names, rows, touched

    def _columns_of(self, text: str) -> Columns:
        """Return the columns of a statement. The server describes each statement once."""
        found = self._columns.get(text)
        if found is None:
            names, oids = libpq.describe(self.connection, text)
            types: list[str] = []
            if oids:
                listed = "{" + ",".join(map(str, oids)) + "}"
                _, rows, _ = libpq.fetch(self.connection, _TYPES, {"oids": listed}, None)
                types = [kind for (kind,) in rows]
            found = self._columns[text] = (names, types)
        return found

    def begin(self, statement: Statement, /, **params: Any) -> Callable[[], list[tuple[Any, ...]]]:
        return Tx.begin(self, statement, **params)

    def stream(self, statement: Statement, /, **params: Any) -> Iterator[Row]:
        # No cursor: a handler reads only a few rows of its own job.
        yield from self.many(statement, **params)
