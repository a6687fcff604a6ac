"""PostgreSQL: a pool of plain connections that works behind a transaction pooler.

It relies on no session state: no SET outside a transaction, no session locks, and prepared
statements only while no pooler is detected (libpq.py). A broken connection is replaced with backoff
and the work runs again. That is safe because every unit of work has its own ids and fences.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from holdfast.clock import Clock
from holdfast.errors import (
    ConfigError,
    Failure,
    ForkedStore,
    RuleBroken,
    StoreBusy,
    StoreDown,
    StoreError,
)
from holdfast.store import libpq, migrate
from holdfast.store.availability import Availability
from holdfast.store.connection_refusal import connection_refusal, grant_hint
from holdfast.store.denied import denied_object
from holdfast.store.dialect import POSTGRES
from holdfast.store.disconnect import Reading, read_client_error
from holdfast.store.grants import missing_grant
from holdfast.store.handler_login import HandlerLogin, read_login
from holdfast.store.libpq import Connection
from holdfast.store.login import Login
from holdfast.store.lost_race import MOST_RACES, LostRace, error_of
from holdfast.store.pool import Pool
from holdfast.store.postgres_transaction import PostgresTransaction, clean_session
from holdfast.store.postgres_tx import PostgresTx
from holdfast.store.query import Statements
from holdfast.store.read_limit import ReadLimit, ReadTimeout, read_limit
from holdfast.store.store import Access, Row, Store, Tx, WakeUp
from holdfast.store.transaction import IDLE_SECONDS, LOCK_SECONDS, HandlerTransaction
from holdfast.store.wake import Announcer, Listener

T = TypeVar("T")

LEASES = Statements("holdfast.store", "lease.sql")

RETRY_FOR_SECONDS = 15.0
FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
GET_CONNECTION_SECONDS = 5.0

# A stalled client must not keep its row locks forever, and a lock of another transaction must not
# block this one forever: not even a reader, which waits only for schema changes. One round trip.
_LIMITS = (
    b"; SET LOCAL idle_in_transaction_session_timeout = '%%ds'; SET LOCAL lock_timeout = '%dms'"
    % (LOCK_SECONDS * 1000)
)
_BEGIN = b"BEGIN" + _LIMITS + b"; " + libpq.BY_KEY
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" + _LIMITS
# People's reads follow indexes from a few rows. For a join PostgreSQL would rather read all jobs of
# a tenant once: with 500,000 of them a page of dead letters took 300 ms instead of 10.
_READ_LIMIT = b"SET LOCAL statement_timeout = '%dms'; " + libpq.BY_KEY
_READ_AS_TENANT = b"; SET LOCAL holdfast.org_id = '%s'; SET LOCAL ROLE holdfast_tenant"
# Tables that no ANALYZE has seen yet.
_ANALYZE = """
DO $$
DECLARE
    fresh regclass;
BEGIN
    FOR fresh IN SELECT oid FROM pg_class
        WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' AND reltuples < 0
    LOOP
        EXECUTE format('ANALYZE %s', fresh);
    END LOOP;
END $$
"""


class PostgresStore(Store):
    dialect = POSTGRES
    # Maximum time a transaction of this store may be idle.
    idle_seconds = IDLE_SECONDS

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        pool_size: int | None = None,
        handler_url: str | None = None,
    ) -> None:
        _check_address(url)
        self._dsn = url
        self.url = _without_password(url)
        self.clock = clock
        self._pid = os.getpid()
        self._announcer: Announcer | None = None
        self._prepared = libpq.Prepared()
        self._announcer_lock = threading.Lock()
        self._pool = Pool(url, pool_size)
        self._handlers: HandlerLogin | None = None
        if handler_url is not None:
            _check_address(handler_url)
            self._handlers = HandlerLogin(handler_url, pool_size, clock, self.write_one)
        self.availability = Availability()

    @property
    def pool_size(self) -> int:
        handlers = 0 if self._handlers is None else self._handlers.pool.permits.total
        return self._pool.permits.total + handlers

    @contextmanager
    def sized_for(self, *, handlers: int, threads: int) -> Iterator[None]:
        with ExitStack() as stack:
            permits = self._pool.permits
            stack.enter_context(permits.sized_for(handlers=handlers, threads=threads))
            if self._handlers is not None:
                permits = self._handlers.pool.permits
                stack.enter_context(permits.sized_for(handlers=handlers, threads=0))
            yield

    def use_reserved(self) -> AbstractContextManager[None]:
        return self._pool.permits.use_reserved()

    def write(self, work: Callable[[Tx], T]) -> T:
        return self._with_connection(self._committing(work), lock_seconds=RETRY_FOR_SECONDS)

    def write_one(self, work: Callable[[Tx], T]) -> T:
        return self.write_soon(work, single=True)

    def write_soon(
        self,
        work: Callable[[Tx], T],
        *,
        lock_seconds: float = LOCK_SECONDS,
        seconds: float = RETRY_FOR_SECONDS,
        single: bool = False,
    ) -> T:
        if not single:
            return self._with_connection(self._committing(work), lock_seconds, seconds)

        def alone(connection: Connection, deadline: float) -> T:
            limits = libpq.Alone(lock_seconds, deadline)
            return work(self._tx(connection, limits))

        return self._with_connection(alone, lock_seconds, seconds)

    def _tx(self, connection: Connection, limits: libpq.Alone | None = None) -> PostgresTx:
        return self._following(PostgresTx(connection, self.clock, self._prepared, limits))

    def _committing(self, work: Callable[[Tx], T]) -> Callable[[Connection, float], T]:
        def in_transaction(connection: Connection, _: float) -> T:
            libpq.command(connection, _BEGIN % self.idle_seconds)
            try:
                result = work(self._tx(connection))
                libpq.command(connection, b"COMMIT")
            except BaseException:
                if not connection.closed:
                    with suppress(psycopg.Error):
                        libpq.command(connection, b"ROLLBACK")
                raise
            return result

        return in_transaction

    def read(self, work: Callable[[Tx], T]) -> T:
        limit = read_limit()

        def on_snapshot(connection: Connection, _: float) -> T:
            libpq.command(connection, _BEGIN_READ % self.idle_seconds)
            try:
                if limit is not None:
                    libpq.command(connection, _limits_of(limit))
                return work(self._tx(connection))
            except pg.QueryCanceled:
                if limit is None:
                    raise
                raise ReadTimeout(limit.seconds) from None
            finally:
                if not connection.closed:
                    with suppress(psycopg.Error):
                        libpq.command(connection, b"ROLLBACK")

        return self._with_connection(on_snapshot)

    def read_one(self, work: Callable[[Tx], T]) -> T:
        return self.write_one(work) if read_limit() is None else self.read(work)

    def _with_connection(
        self,
        work: Callable[[Connection, float], T],
        lock_seconds: float = LOCK_SECONDS,
        seconds: float = RETRY_FOR_SECONDS,
    ) -> T:
        """Run *work*; run it again on another connection after a disconnect or a conflict.

        *work* receives the deadline. Waiting for locks takes at most *lock_seconds* in total.
        """
        self._same_process()
        began = time.monotonic()
        give_up_at = began + seconds
        pause = FIRST_RETRY_SECONDS
        races = 0
        while True:
            try:
                connection = self._pool.take(min(GET_CONNECTION_SECONDS, seconds))
                try:
                    # A running statement has no deadline unless *seconds* is reduced.
                    result = work(
                        connection, give_up_at if seconds < RETRY_FOR_SECONDS else math.inf
                    )
                finally:
                    self._pool.give_back(connection)
                self.availability.note_answer()
                return result
            except psycopg.Error as exc:
                error, now = translate(exc), time.monotonic()
                if isinstance(error, LostRace):
                    races += 1
                    error = error.refusal if races > MOST_RACES else error
                if isinstance(error, StoreDown):
                    self.availability.note_away()
                if isinstance(exc, pg.LockNotAvailable):
                    error = _locked()
                    if now >= began + lock_seconds:
                        raise error from None
                lasts = isinstance(error, StoreDown) and error.is_permanent
                if (
                    lasts
                    or not isinstance(error, (StoreBusy, StoreDown))
                    or now + pause > give_up_at
                ):
                    # No cause: printing a chained error would show the server's detail and context.
                    raise error from None
            # A random pause: two transactions that gave up their locks at the same moment would
            # meet again after equal ones.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_RETRY_SECONDS)

    def extend_leases(self, claims: Sequence[Row], lease_ms: int) -> None:
        def work(tx: Tx) -> None:
            tx.affected(LEASES.prune_extensions)
            tx.affected(LEASES.extend_leases, claims=claims, lease_ms=lease_ms)

        self.write_soon(work)

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
        self._same_process()
        try:
            opened = self._open_block(access)
        except psycopg.Error as exc:
            raise translate(exc) from exc
        try:
            with opened.block(org_id, unit, guard, finish):
                yield opened
        except pg.InsufficientPrivilege as exc:
            raise self._missing_grant(exc, access) or exc from exc
        except psycopg.Error as exc:
            error = translate(exc)
            # Handlers classify errors of their own statements.
            if isinstance(exc, psycopg.OperationalError) or isinstance(error, StoreDown):
                raise error from exc
            raise
        finally:
            clean_session(opened.pooled, is_shared=self._handlers is None)
            pool = self._pool if self._handlers is None else self._handlers.pool
            pool.give_back(opened.pooled)

    def _open_block(self, access: Access) -> PostgresTransaction:
        """Open a block on the handlers' login, or on the engine's if there is none."""
        if self._handlers is not None:
            return self._handlers.open_block(
                access, GET_CONNECTION_SECONDS, translate, idle_seconds=self.idle_seconds
            )
        pooled = self._pool.take(GET_CONNECTION_SECONDS)
        return PostgresTransaction(
            pooled,
            access,
            lambda: self._following(PostgresTx(pooled, self.clock)),
            translate,
            idle_seconds=self.idle_seconds,
        )

    def read_handler_login(self, url: str) -> Login:
        try:
            return read_login(url, self.clock)
        except psycopg.Error as exc:
            raise translate(exc) from None

    def _missing_grant(self, exc: Exception, access: Access) -> Failure | None:
        """Return the failure for a handler's statement that its role may not run."""
        denied = denied_object(exc)
        if denied is None:
            return None
        with suppress(StoreError):
            return self.read(lambda tx: missing_grant(tx, denied, access))
        return None

    def announce(self, channels: Sequence[str]) -> None:
        self._same_process()
        with self._announcer_lock:
            if self._announcer is None:
                self._announcer = Announcer(self._dsn)
        self._announcer.announce(channels)

    def wake_up(self, channels: Sequence[str]) -> WakeUp:
        return Listener(self._dsn, channels)

    def migrate(self) -> list[str]:
        self._same_process()
        try:
            return self._migrate()
        except psycopg.Error as exc:
            raise translate(exc) from exc

    def _migrate(self) -> list[str]:
        with psycopg.connect(self._dsn, autocommit=True) as connection, connection.transaction():
            connection.execute(
                "SELECT set_config('lock_timeout', '10s', true),"
                " set_config('idle_in_transaction_session_timeout', %s, true)",
                (f"{self.idle_seconds}s",),
            )
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.migrate', 0))"
            )
            missing = migrate.after(_versions(connection), POSTGRES, self.components)
            for migration in missing:
                connection.execute(migration.text.encode())
            # Recorded last, because the first migrations create this table.
            connection.cursor().executemany(
                "INSERT INTO holdfast.migration (component, version, name) VALUES (%s, %s, %s)",
                [(one.component, one.version, one.name) for one in missing],
            )
            if missing:
                # Without it PostgreSQL takes new tables for ten pages of rows until autovacuum
                # comes by, and plans the first minutes for them.
                connection.execute(_ANALYZE)
        return [str(migration) for migration in missing]

    def check_schema(self) -> None:
        migrate.check_versions(self.component_versions(), POSTGRES, self.url, self.components)

    def component_versions(self) -> dict[str, int]:
        return self._with_connection(_versions)

    def version(self) -> str:
        def ask(connection: Connection, _: float) -> str:
            row = connection.execute("SHOW server_version").fetchone()
            return f"PostgreSQL {row[0]}" if row else "PostgreSQL"

        return self._with_connection(ask)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._announcer is not None:
            self._announcer.close()
        if self._handlers is not None:
            self._handlers.pool.close()
        self._pool.close()

    def _same_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedStore(
                "This store was opened before a fork. Open a new one in the child process."
            )


def _limits_of(limit: ReadLimit) -> bytes:
    """Return the commands that limit a transaction that reads."""
    text = _READ_LIMIT % max(1, int(limit.seconds * 1000))
    if limit.org_id is not None:
        # The id is a UUID in its only text form.
        text += _READ_AS_TENANT % limit.org_id.encode()
    return text


def _locked() -> StoreBusy:
    return StoreBusy(
        "A lock wait timed out: another transaction holds a row that this call needs. Nothing was"
        " written. Usually an application transaction that enqueued the same idempotency key is"
        " still open; see pg_stat_activity. Commit it, or try again later."
    )


def _versions(connection: Connection, _: float = 0.0) -> dict[str, int]:
    row = connection.execute("SELECT to_regclass('holdfast.migration') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return {}
    found = connection.execute(
        "SELECT component, max(version) FROM holdfast.migration GROUP BY component"
    )
    return {name: int(version) for name, version in found}


def _check_address(url: str) -> None:
    try:
        ports = str(conninfo_to_dict(url).get("port", ""))
        readable = all(port == "" or port.isdecimal() for port in ports.split(","))
    except psycopg.ProgrammingError:
        readable = False
    if not readable:
        # Repeat neither the URL nor libpq's message: a misplaced password may be in them.
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


_BUSY = (
    pg.InvalidSqlStatementName,
    pg.DuplicatePreparedStatement,
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.TooManyConnections,
)


def translate(exc: Exception) -> StoreError:
    """Convert an error of psycopg to a StoreError."""
    if isinstance(exc, StoreError):
        return exc
    if isinstance(exc, _BUSY):
        return StoreBusy(f"PostgreSQL reported a retryable error: {type(exc).__name__}.")
    refused = connection_refusal(exc)
    if refused is not None:
        return refused
    if read_client_error(exc) is Reading.LOST:
        if isinstance(exc, psycopg.Error) and exc.sqlstate is not None:
            said = f"{type(exc).__name__} ({exc.sqlstate})"
            return StoreDown(f"PostgreSQL is not available: {said}.")
        return StoreDown("No connection to PostgreSQL, or it was lost. Is the server up?")
    if isinstance(exc, pg.RaiseException):
        # A migration that cannot continue raises instructions for the administrator.
        return StoreError(" ".join(filter(None, (exc.diag.message_primary, exc.diag.message_hint))))
    if isinstance(exc, pg.IntegrityError):
        return error_of(exc.diag.constraint_name or "unnamed", _message_of(exc))
    if isinstance(exc, pg.InsufficientPrivilege):
        said = _message_of(exc)
        return RuleBroken("row_level_security", f"{said}{grant_hint(said)}")
    return StoreError(f"PostgreSQL: {_message_of(exc)}")


def _message_of(exc: Exception) -> str:
    """Return the server's primary message. Its detail and context may contain row values."""
    if not isinstance(exc, psycopg.Error):
        return type(exc).__name__
    from holdfast.redact import redact

    words = redact(exc.diag.message_primary or type(exc).__name__, 300)
    return words if exc.sqlstate is None else f"{words} ({exc.sqlstate})"
