"""Migrated PostgreSQL databases for tests: emptied and used again instead of made anew.

Making a database copies 700 files, and a new connection reads the catalog and plans every statement
again. Emptying takes about 10 ms, and connections that a store closed at the end of one test serve
the next.

Tables that a test added are dropped. The database is dropped instead when the test changed anything
else of its schema or its settings, or left a connection open, because a thread or a process of that
test might still be at work.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from holdfast.store.libpq import Connection, Prepared
from holdfast.store.pool import Pool
from tests.postgres_server import PostgresServer

TEMPLATE = "holdfast_template"
# Deleted rows stay in the files: after this many tests they cost more than a copy.
USES = 60
# A test rarely uses more connections at once, and each is a process.
KEPT_CONNECTIONS = 3
# How long the server may take to end the processes of connections that were closed.
CLOSING_SECONDS = 0.2

# Every change of the schema or of grants writes, adds or removes a row in one of these.
CATALOG = (
    "pg_attribute",
    "pg_class",
    "pg_constraint",
    "pg_default_acl",
    "pg_event_trigger",
    "pg_extension",
    "pg_namespace",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_trigger",
    "pg_type",
)
# The rows of each, and how many of them were written since the transaction %s.
FINGERPRINT = " UNION ALL ".join(
    f"SELECT count(*), count(*) FILTER (WHERE age(xmin) < (SELECT age(CAST(%(since)s AS xid))))"
    f" FROM {name}"
    for name in CATALOG
)
SPOILED = """
SELECT 1 FROM pg_db_role_setting WHERE setdatabase = (
    SELECT oid FROM pg_database WHERE datname = current_database())
UNION ALL SELECT 1 FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL SELECT 1 FROM pg_database WHERE datname = current_database() AND datacl IS NOT NULL
"""
OTHERS = """
SELECT pid FROM pg_stat_get_activity(NULL) WHERE pid <> ALL(%(known)s)
AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())
AND usesysid IS NOT NULL
"""
# The template has nothing in the schema public.
ADDED = """
SELECT format('DROP %s %s CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
    CAST(CAST(oid AS regclass) AS text))
FROM pg_class WHERE relnamespace = CAST('public' AS regnamespace) AND relkind IN ('r', 'p', 'v')
"""
# DISCARD ALL would also forget the prepared statements and the plans of functions.
FORGET = (
    b"RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; UNLISTEN *;"
    b" SELECT pg_advisory_unlock_all(); DISCARD TEMP; SELECT pg_stat_force_next_flush()"
)


@dataclass
class Database:
    """A database, a connection to empty it, and the state of its catalog when it was made."""

    name: str
    inside: psycopg.Connection[Any]
    since: str
    fingerprint: list[Any] = field(default_factory=list)
    uses: int = 0
    # Of earlier tests, and of the test that has the database now.
    warm: list[Connection] = field(default_factory=list)
    closed: list[Connection] = field(default_factory=list)

    def read_catalog(self) -> list[Any]:
        return self.inside.execute(FINGERPRINT, {"since": self.since}).fetchall()

    def close(self) -> None:
        for connection in (self.inside, *self.warm, *self.closed):
            connection.close()


class Databases:
    """Databases with the tables of every extension and no jobs."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._admin = psycopg.connect(server.dsn(), autocommit=True)
        self._ready: list[Database] = []
        self._lent: dict[str, Database] = {}
        self._numbers = itertools.count(1)
        with psycopg.connect(server.dsn(TEMPLATE), autocommit=True) as template:
            self._tables = dict(_tables(template))
            self._sequences = _sequences(template)

    def take(self, *, fresh: bool = False) -> str:
        """The name of an empty database; *fresh* for tests of plans, files and connections."""
        found = self._make() if fresh or not self._ready else self._ready.pop()
        if fresh:
            found.uses = USES
        self._lent[self.server.dsn(found.name)] = found
        return found.name

    def give_back(self, name: str) -> None:
        found = self._lent.pop(self.server.dsn(name))
        found.uses += 1
        try:
            is_usable = found.uses < USES and self._empty(found)
        except psycopg.OperationalError:
            is_usable = False
        if is_usable:
            self._ready.append(found)
        else:
            self._drop(found)

    def close(self) -> None:
        for database in (*self._ready, *self._lent.values()):
            database.close()
        self._admin.close()

    def warm_connection(self, url: str) -> Connection | None:
        """An open connection that an earlier test used."""
        lent = self._lent.get(url)
        return lent.warm.pop() if lent is not None and lent.warm else None

    def keep(self, url: str, idle: list[Connection]) -> None:
        """Take the *idle* connections of a pool that is being closed."""
        lent = self._lent.get(url)
        if lent is None or lent.uses >= USES:
            return
        while idle and len(lent.closed) + len(lent.warm) < KEPT_CONNECTIONS:
            connection = idle.pop()
            if not connection.closed and connection.autocommit:
                lent.closed.append(connection)

    def _make(self) -> Database:
        name = f"t{next(self._numbers)}"
        self._admin.execute(
            SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                Identifier(name), Identifier(TEMPLATE)
            )
        )
        # Without triggers, which refuse to delete the audit, and without foreign keys.
        inside = psycopg.connect(
            self.server.dsn(name),
            autocommit=True,
            prepare_threshold=0,
            options="-c session_replication_role=replica",
            application_name="tests",
        )
        (since,) = inside.execute("SELECT CAST(pg_current_xact_id() AS text)").fetchone() or ("",)
        made = Database(name, inside, since)
        made.fingerprint = made.read_catalog()
        return made

    def _drop(self, used: Database) -> None:
        used.close()
        self._admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(used.name)))

    def _empty(self, used: Database) -> bool:
        self._reset_connections(used)
        if not _is_alone(used):
            return False
        if used.read_catalog() != used.fingerprint:
            self._drop_tables_of_the_test(used)
            if used.read_catalog() != used.fingerprint:
                return False
        if used.inside.execute(SPOILED).fetchone():
            return False
        filled = [
            oid
            for (oid,) in used.inside.execute(
                "SELECT oid FROM unnest(%s) AS oid WHERE pg_relation_size(oid) > 0",
                [list(self._tables)],
            )
        ]
        statements = [self._tables[oid] for oid in filled]
        text = SQL("; ").join([SQL("BEGIN"), *statements, self._sequences, SQL("COMMIT")])
        used.inside.execute(text, prepare=False)
        # Verify takes deleted rows of the audit from the statistics, which this connection counts.
        used.inside.execute("SELECT pg_stat_force_next_flush()")
        used.inside.execute("SELECT pg_stat_reset()")
        return True

    def _drop_tables_of_the_test(self, used: Database) -> None:
        """Drop what a test added to the schema public. Another database would take 130 ms."""
        found = used.inside.execute(ADDED).fetchall()
        if found:
            used.inside.execute(SQL("; ").join(SQL(text) for (text,) in found), prepare=False)
            # Their statements may be prepared for tables of the same name and other columns.
            for connection in used.warm:
                connection.close()
            used.warm = []

    def _reset_connections(self, used: Database) -> None:
        used.warm += used.closed
        used.closed = []
        for connection in list(used.warm):
            with suppress(psycopg.Error):
                results = connection.pgconn.exec_(FORGET)
                if results.status in (psycopg.pq.ExecStatus.COMMAND_OK, _ROWS):
                    continue
            connection.close()
            used.warm.remove(connection)


_ROWS = psycopg.pq.ExecStatus.TUPLES_OK


def _is_alone(used: Database) -> bool:
    """Whether only our connection is left. Closed ones get a moment to end."""
    known = [one.info.backend_pid for one in (used.inside, *used.warm)]
    deadline = time.monotonic() + CLOSING_SECONDS
    while used.inside.execute(OTHERS, {"known": known}).fetchone():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _tables(template: psycopg.Connection[Any]) -> Iterator[tuple[int, Composed]]:
    """For each table the statements that make its rows those of the template."""
    found = template.execute(
        "SELECT CAST(CAST(relname AS regclass) AS oid), schemaname, relname FROM ("
        " SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) AS relname, schemaname"
        " FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')) AS t"
    ).fetchall()
    for oid, _, name in found:
        table = SQL(name)
        emptied: Composed = SQL("DELETE FROM {}").format(table)
        (rows,) = template.execute(
            SQL("SELECT CAST(json_agg(kept) AS text) FROM {} AS kept").format(table)
        ).fetchone() or (None,)
        if rows is not None:
            emptied += SQL(
                "; INSERT INTO {0} OVERRIDING SYSTEM VALUE"
                " SELECT * FROM json_populate_recordset(CAST(NULL AS {0}), {1})"
            ).format(table, Literal(rows))
        yield oid, emptied


def _sequences(template: psycopg.Connection[Any]) -> Composed:
    found = template.execute(
        "SELECT schemaname, sequencename, coalesce(last_value, start_value),"
        " last_value IS NOT NULL FROM pg_sequences"
    ).fetchall()
    return SQL("SELECT {}").format(
        SQL(", ").join(
            SQL("setval({}, {}, {})").format(
                Literal(f'"{schema}"."{name}"'), Literal(value), Literal(is_called)
            )
            for schema, name, value, is_called in found
        )
    )


def share_connections(databases: Databases) -> None:
    """Let the pools of this process start with connections that earlier tests closed."""
    owner = os.getpid()
    connect, open_new, close = psycopg.connect, Pool._open, Pool.close
    # Which statements are prepared on which connection is known to every store.
    known: WeakKeyDictionary[Connection, set[bytes]] = WeakKeyDictionary()

    def prepare_once(prepared: Prepared) -> None:
        prepared.allowed = True
        prepared._known = known

    def open_or_reuse(pool: Pool) -> Connection:
        # A test that replaces psycopg.connect has to see every connection.
        if os.getpid() == owner and psycopg.connect == connect:
            found = databases.warm_connection(pool._dsn)
            if found is not None:
                return found
        return open_new(pool)

    def close_or_keep(pool: Pool) -> None:
        pool._closed = True
        if os.getpid() == owner:
            databases.keep(pool._dsn, pool._idle)
        close(pool)

    Prepared.__init__ = prepare_once  # type: ignore[assignment,method-assign]
    Pool._open = open_or_reuse  # type: ignore[assignment,method-assign]
    Pool.close = close_or_keep  # type: ignore[assignment,method-assign]
