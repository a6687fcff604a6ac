"""PostgreSQL: a pool of plain connections and nothing that a transaction pooler would lose.

No session state is relied on: no prepared statements, no SET outside a transaction, no session
locks. A broken connection is replaced with backoff and the work is run again, which is safe
because every unit of work carries its own ids and fences.
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg import pq, sql
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from holdfast.clock import Clock
from holdfast.errors import (
    ConfigError,
    ForkedStore,
    RuleBroken,
    StoreBusy,
    StoreDown,
    StoreError,
)
from holdfast.store import migrate
from holdfast.store.dialect import POSTGRES
from holdfast.store.store import Store, Tx, WakeUp

T = TypeVar("T")

Connection = psycopg.Connection[Any]

RETRY_FOR_SECONDS = 15.0
FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
# How long one try waits for a connection. A pool whose connecting failed does not try again by
# itself, so a longer wait would be slept through while the server is long back.
GET_CONNECTION_SECONDS = 1.0
# One notification a queue in this time is enough: a worker that is awake looks by itself.
ANNOUNCE_EVERY_SECONDS = 0.01

# A client that freezes in the middle must not keep its row locks for ever. One round trip.
BEGIN = b"BEGIN; SET LOCAL idle_in_transaction_session_timeout = '60s'"

_CHANNEL = "holdfast:"
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class PostgresTx(Tx):
    def __init__(self, connection: Connection, clock: Clock) -> None:
        super().__init__(POSTGRES, clock)
        self.connection = connection

    def _fetch(
        self, text: str, params: dict[str, Any]
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        # Straight through libpq: a statement of 26 parameters costs 72 microseconds of this
        # process's time, through a cursor 208.
        query, names = _numbered(text)
        result = _checked(
            self.connection.pgconn.exec_params(query, [_text(params[n]) for n in names])
        )
        columns = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
        touched = result.command_tuples or 0
        if not columns:
            return columns, [], touched
        reader = Transformer(self.connection)
        reader.set_pgresult(result)
        return columns, reader.load_rows(0, result.ntuples, tuple), touched

    def notify(self, channels: Sequence[str]) -> None:
        for channel in channels:
            self.connection.execute("SELECT pg_notify(%s, '')", (_CHANNEL + channel,))

    def lock_units(self, units: Sequence[str]) -> None:
        if units:
            # In order, so that two transactions that share units cannot wait for each other.
            self.connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(unit, 0))"
                " FROM unnest(%s::text[]) AS unit ORDER BY unit",
                (sorted(units),),
            )


@cache
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with libpq's placeholders, and the names of its parameters in that order."""
    names = tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))
    places = {name: f"${at}" for at, name in enumerate(names, 1)}
    numbered = _PLACEHOLDER.sub(lambda match: places[match[1]], text).replace("%%", "%")
    return numbered.encode(), names


def _text(value: Any) -> bytes | None:
    """A parameter in PostgreSQL's text format."""
    if value is None:
        return None
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()


def _checked(result: PGresult) -> PGresult:
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise pg.error_from_result(result)
    return result


def _command(connection: Connection, command: bytes) -> None:
    """Run a command that takes and returns nothing, such as BEGIN."""
    _checked(connection.pgconn.exec_(command))


class PostgresStore(Store):
    dialect = POSTGRES

    def __init__(self, url: str, clock: Clock, *, pool_size: int = 10) -> None:
        _check_address(url)
        self._dsn = url
        self.url = _without_password(url)
        self.clock = clock
        self._pid = os.getpid()
        self._announcer: _Announcer | None = None
        self._announcer_lock = threading.Lock()
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            timeout=5.0,
            max_idle=300.0,
            reconnect_timeout=0.0,
            kwargs=_CONNECT,
            configure=_configure,
            open=False,
        )
        self._pool.open()

    def write(self, work: Callable[[Tx], T]) -> T:
        def in_transaction(connection: Connection) -> T:
            _command(connection, BEGIN)
            try:
                result = work(PostgresTx(connection, self.clock))
                _command(connection, b"COMMIT")
            except BaseException:
                if not connection.closed:
                    with suppress(psycopg.Error):
                        _command(connection, b"ROLLBACK")
                raise
            return result

        return self._with_connection(in_transaction)

    def write_one(self, work: Callable[[Tx], T]) -> T:
        return self._with_connection(lambda connection: work(PostgresTx(connection, self.clock)))

    def read(self, work: Callable[[Tx], T]) -> T:
        def on_snapshot(connection: Connection) -> T:
            _command(connection, b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return work(PostgresTx(connection, self.clock))
            finally:
                if not connection.closed:
                    with suppress(psycopg.Error):
                        _command(connection, b"ROLLBACK")

        return self._with_connection(on_snapshot)

    def _with_connection(self, work: Callable[[Connection], T]) -> T:
        """Run *work*, again on another connection if this one breaks or the race was lost."""
        self._same_process()
        give_up_at = time.monotonic() + RETRY_FOR_SECONDS
        pause = FIRST_RETRY_SECONDS
        stale = self._pool.max_size
        while True:
            try:
                with self._pool.connection(timeout=GET_CONNECTION_SECONDS) as connection:
                    return work(connection)
            except (psycopg.Error, PoolTimeout) as exc:
                error = translate(exc)
                if (
                    not isinstance(error, (StoreBusy, StoreDown))
                    or time.monotonic() + pause > give_up_at
                ):
                    raise error from exc
                if stale and isinstance(error, StoreDown) and isinstance(exc, psycopg.Error):
                    # After a restart of the server every idle connection is dead. The pool hands
                    # out one after the other; a pause for each would take twelve seconds.
                    stale -= 1
                    continue
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_RETRY_SECONDS)

    @contextmanager
    def tenant_transaction(
        self, org_id: str, unit: str | None, guard: Callable[[Tx], None]
    ) -> Iterator[Connection]:
        self._same_process()
        try:
            with self._pool.connection() as connection, connection.transaction():
                tx = PostgresTx(connection, self.clock)
                if unit is not None:
                    tx.lock_units([unit])
                guard(tx)
                connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (org_id,))
                connection.execute("SET LOCAL ROLE holdfast_tenant")
                yield connection
        except (psycopg.OperationalError, PoolTimeout) as exc:
            raise translate(exc) from exc

    def announce(self, channels: Sequence[str]) -> None:
        self._same_process()
        with self._announcer_lock:
            if self._announcer is None:
                self._announcer = _Announcer(self._dsn)
        self._announcer.announce(channels)

    def wake_up(self, channels: Sequence[str]) -> WakeUp:
        return _Listener(self._dsn, [_CHANNEL + channel for channel in channels])

    def migrate(self) -> list[str]:
        self._same_process()
        try:
            return self._migrate()
        except psycopg.Error as exc:
            raise translate(exc) from exc

    def _migrate(self) -> list[str]:
        with psycopg.connect(self._dsn, autocommit=True) as connection, connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '10s'")
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.migrate', 0))"
            )
            missing = migrate.after(_schema_version(connection) or 0, POSTGRES)
            for migration in missing:
                connection.execute(migration.text.encode())
            # Recorded at the end, because the first migrations make the table to record them in.
            connection.cursor().executemany(
                "INSERT INTO holdfast.migration (version, name) VALUES (%s, %s)",
                [(migration.version, migration.name) for migration in missing],
            )
        return [str(migration) for migration in missing]

    def check_schema(self) -> None:
        found = self._with_connection(_schema_version)
        migrate.check_version(found, POSTGRES, self.url)

    def version(self) -> str:
        def ask(connection: Connection) -> str:
            row = connection.execute("SHOW server_version").fetchone()
            return f"PostgreSQL {row[0]}" if row else "PostgreSQL"

        return self._with_connection(ask)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._announcer is not None:
            self._announcer.close()
        self._pool.close()

    def _same_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedStore(
                "This store was opened before a fork. Open a new one in the child process."
            )


# prepare_threshold=None: a prepared statement lives in one server session, and a transaction
# pooler gives the next transaction to another.
_CONNECT: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    # A peer that vanished without a word is given up after half a minute, not after hours.
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "holdfast",
}


def _configure(connection: Connection) -> None:
    # Ids and documents are text in this house; parsing each into an object would cost more than
    # the rest of reading a row.
    connection.adapters.register_loader("uuid", TextLoader)
    connection.adapters.register_loader("jsonb", TextLoader)


class _Announcer:
    """Sends notifications from a thread of its own, so that no enqueue waits for one."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._wanted: set[str] = set()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-announcer", daemon=True)
        self._thread.start()

    def announce(self, channels: Sequence[str]) -> None:
        with self._lock:
            self._wanted.update(channels)
        self._news.set()

    def _run(self) -> None:
        connection: Connection | None = None
        while True:
            self._news.wait()
            self._news.clear()
            with self._lock:
                wanted, self._wanted = self._wanted, set()
            try:
                if wanted and connection is None:
                    connection = psycopg.connect(self._dsn, **_CONNECT)
                for channel in sorted(wanted):
                    if connection is not None:
                        connection.execute("SELECT pg_notify(%s, '')", (_CHANNEL + channel,))
            except psycopg.Error:
                # Only a hint was lost: polling finds the work.
                connection = None
            if self._closing:
                if connection is not None:
                    connection.close()
                return
            time.sleep(ANNOUNCE_EVERY_SECONDS)

    def close(self) -> None:
        self._closing = True
        self._news.set()
        self._thread.join(timeout=2.0)


class _Listener(WakeUp):
    """Listens on a connection of its own. Without one, waiting is plain waiting."""

    def __init__(self, dsn: str, channels: Sequence[str]) -> None:
        self._dsn = dsn
        self._channels = list(channels)
        self._connection: Connection | None = None
        self._retry_at = 0.0
        # Reentrant, because a signal handler may poke in the middle of a poke.
        self._lock = threading.RLock()
        self._closed = False
        self._poke_in, self._poke_out = os.pipe()
        os.set_blocking(self._poke_in, False)
        os.set_blocking(self._poke_out, False)
        self._connect()

    def _connect(self) -> None:
        self._retry_at = time.monotonic() + LONGEST_RETRY_SECONDS
        connection: Connection | None = None
        try:
            connection = psycopg.connect(self._dsn, **_CONNECT)
            for channel in self._channels:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg.Error:
            if connection is not None:
                connection.close()
            connection = None
        self._connection = connection

    def wait(self, timeout: float) -> bool:
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._connect()
        # poll, not select: a process with more than 1,024 open files must wait too.
        sources = select.poll()
        sources.register(self._poke_in, select.POLLIN)
        if self._connection is not None:
            sources.register(self._connection.fileno(), select.POLLIN)
        ready = [source for source, _ in sources.poll(max(0.0, timeout) * 1000)]
        if self._poke_in in ready:
            with suppress(BlockingIOError):
                os.read(self._poke_in, 4096)
        if self._connection is not None and len(ready) > (self._poke_in in ready):
            self._drain()
        return bool(ready)

    def _drain(self) -> None:
        try:
            if self._connection is not None:
                self._connection.pgconn.consume_input()
                while self._connection.pgconn.notifies() is not None:
                    pass
        except psycopg.Error:
            self._connection = None

    def poke(self) -> None:
        with self._lock:
            # A full pipe has been poked enough.
            if not self._closed:
                with suppress(BlockingIOError):
                    os.write(self._poke_out, b".")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        with self._lock:
            # A number that is closed here may be somebody else's file a moment later.
            self._closed = True
            os.close(self._poke_in)
            os.close(self._poke_out)


def _schema_version(connection: Connection) -> int | None:
    row = connection.execute("SELECT to_regclass('holdfast.migration') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return None
    found = connection.execute("SELECT max(version) FROM holdfast.migration").fetchone()
    return None if found is None or found[0] is None else int(found[0])


def _check_address(url: str) -> None:
    try:
        ports = str(conninfo_to_dict(url).get("port", ""))
        readable = all(port == "" or port.isdecimal() for port in ports.split(","))
    except psycopg.ProgrammingError:
        readable = False
    if not readable:
        # Nothing of it is repeated, nor libpq's own words: it may be a password in a wrong place.
        raise ConfigError(
            "The PostgreSQL address cannot be read. Write postgresql://USER@HOST:PORT/NAME."
        )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    safe = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRETS]
    return urlunsplit(
        parts._replace(netloc=user.partition(":")[0] + at + host, query=urlencode(safe))
    )


_SECRETS = ("password", "sslpassword")


_BUSY = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, pg.TooManyConnections)
_DOWN = (
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.ReadOnlySqlTransaction,
    pg.IdleInTransactionSessionTimeout,
)


def translate(exc: Exception) -> StoreError:
    """Our error for psycopg's."""
    if isinstance(exc, StoreError):
        return exc
    if isinstance(exc, PoolTimeout):
        return StoreDown("No connection to PostgreSQL could be had in time. Is the server up?")
    if isinstance(exc, _BUSY):
        return StoreBusy(f"PostgreSQL asks to try again: {type(exc).__name__}.")
    if isinstance(exc, _DOWN):
        return StoreDown(f"PostgreSQL is not available: {type(exc).__name__}.")
    if isinstance(exc, pg.RaiseException):
        # A migration that cannot go on says what an administrator has to do.
        return StoreError(" ".join(filter(None, (exc.diag.message_primary, exc.diag.message_hint))))
    if isinstance(exc, pg.IntegrityError):
        rule = exc.diag.constraint_name or "unnamed"
        return RuleBroken(rule, exc.diag.message_primary or str(exc))
    if isinstance(exc, pg.InsufficientPrivilege):
        return RuleBroken("row_level_security", exc.diag.message_primary or str(exc))
    # A connection that broke in mid-statement has no SQLSTATE, and straight from libpq no class.
    lost = isinstance(exc, psycopg.OperationalError) or type(exc) is psycopg.DatabaseError
    if lost and isinstance(exc, psycopg.Error) and exc.sqlstate is None:
        return StoreDown("The connection to PostgreSQL was lost.")
    if isinstance(exc, psycopg.OperationalError):
        return StoreDown(f"PostgreSQL: {exc.sqlstate} {exc.diag.message_primary or ''}".strip())
    return StoreError(f"PostgreSQL: {exc}")
