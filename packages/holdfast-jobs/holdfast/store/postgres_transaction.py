"""A handler's transaction on PostgreSQL.

The job's row is not locked while the handler runs, so renewals, cancels and rescues do not wait.
The fence is at the end instead: immediately before COMMIT, in the same transaction, the engine
locks the row and checks that the claim still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus

from holdfast.errors import HoldfastError, RuleViolated, StoreBusy, StoreDown, StoreError
from holdfast.store import libpq
from holdfast.store.libpq import Connection
from holdfast.store.postgres_guards import Confinement, LentConnection
from holdfast.store.store import Access, Tx
from holdfast.store.transaction import (
    IDLE_SECONDS,
    HandlerTransaction,
    ended_early,
    failed_inside,
)

T = TypeVar("T")

# Read committed, regardless of the database's default: a fence on an older snapshot would fail
# after every renewal in between. The ten seconds apply to the lock of the execution unit and to the
# fence.
_BEGIN = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED;"
    b" SET LOCAL idle_in_transaction_session_timeout = '%ds'; SET LOCAL lock_timeout = '10s'"
)
_BIND = (
    "SELECT set_config('holdfast.org_id', %(org_id)s, true),"
    " extract(epoch FROM transaction_timestamp())"
)
# Two transactions of a session never begin in the same microsecond. A transaction id would also
# distinguish them, but would consume one for every read-only block.
_WHICH = "SELECT extract(epoch FROM pg_catalog.transaction_timestamp())"
# Deferred constraints are checked with the handler's role and search path.
_LEAVE_HANDLER = (
    b"SET CONSTRAINTS ALL IMMEDIATE; RESET ROLE; SET LOCAL search_path = pg_catalog;"
    b" SET LOCAL lock_timeout = '10s'"
)
_AS_ENGINE = b"RESET ROLE; SET LOCAL search_path = pg_catalog; SET LOCAL lock_timeout = '10s'"
_SETTINGS = (
    "SELECT pg_catalog.current_setting('role'), pg_catalog.current_setting('search_path'),"
    " pg_catalog.current_setting('lock_timeout')"
)
_RESTORE = (
    "SELECT set_config('search_path', %(search_path)s, true),"
    " set_config('lock_timeout', %(lock_timeout)s, true), set_config('role', %(role)s, true)"
)
_STATEMENT_SECONDS = 5.0


class PostgresTransaction(HandlerTransaction):
    """One block on a pooled connection."""

    def __init__(
        self,
        pooled: Connection,
        access: Access,
        tx: Callable[[], Tx],
        translate: Callable[[Exception], StoreError],
        bind: Callable[[str], None] | None = None,
        *,
        idle_seconds: int = IDLE_SECONDS,
    ) -> None:
        """With *bind*, the connection uses the handlers' login: *bind* assigns its tenant."""
        self.pooled = pooled
        self.access = access
        self.takes_writes = access is not Access.READ
        self.connection = LentConnection.wrap(pooled)
        self._tx = tx
        self._translate = translate
        self._bind = bind
        self._idle_seconds = idle_seconds
        self._confinement: Confinement | None = None
        self._which = None
        self._depth = 0

    @contextmanager
    def block(
        self,
        org_id: str,
        unit: str | None,
        guard: Callable[[Tx], None],
        finish: Callable[[Tx], None],
    ) -> Iterator[None]:
        """Run the transaction from BEGIN to an acknowledged COMMIT."""
        try:
            self._begin(org_id, unit, guard)
            with self._refusing():
                yield
                self._leave_handler()
            finish(self._tx())
            self._commit()
        except BaseException as exc:
            lost = self.pooled.pgconn.status == ConnStatus.BAD
            if not lost:
                with suppress(psycopg.Error):
                    libpq.command(self.pooled, b"ROLLBACK")
            elif isinstance(exc, Exception) and not isinstance(exc, HoldfastError):
                raise _lost() from exc
            raise
        finally:
            self.connection.take_back()

    def _begin(self, org_id: str, unit: str | None, guard: Callable[[Tx], None]) -> None:
        libpq.command(self.pooled, _BEGIN % self._idle_seconds)
        if self._bind is not None:
            self._bind(org_id)
        tx = self._tx()
        if unit is not None:
            tx.lock_units([unit])
        guard(tx)
        _, rows, _ = libpq.fetch(self.pooled, _BIND, {"org_id": org_id}, None)
        self._which = rows[0][1]
        self._confinement = Confinement(self.pooled, self.access)
        libpq.command(self.pooled, b"SET LOCAL lock_timeout TO DEFAULT")
        self._confinement.begin()

    def _refusing(self) -> AbstractContextManager[None]:
        return nullcontext() if self._confinement is None else self._confinement.refusing()

    def _leave_handler(self) -> None:
        self._check_open()
        libpq.command(self.pooled, _LEAVE_HANDLER)
        if self._confinement is not None:
            self._confinement.check()

    def _commit(self) -> None:
        result = libpq.checked(self.pooled.pgconn.exec_(b"COMMIT"))
        if result.command_status != b"COMMIT":
            # The server ends a failed transaction with a ROLLBACK tag and no error.
            raise failed_inside()

    def _check_open(self) -> None:
        """Raise unless this connection is in the block's own transaction, and usable."""
        pgconn = self.pooled.pgconn
        if pgconn.status == ConnStatus.BAD:
            raise _lost() from self.connection.failed
        match pgconn.transaction_status:
            case TransactionStatus.INERROR:
                raise self._failed() from self.connection.failed
            case TransactionStatus.ACTIVE:
                self.pooled.close()
                raise RuleViolated(
                    "A statement of the handler, such as a COPY, is still running at the end of"
                    " job.transaction(). Finish it inside the block.",
                    transaction="active",
                )
            case TransactionStatus.IDLE:
                self._end_session()
        _, rows, _ = libpq.fetch(self.pooled, _WHICH, {}, None)
        if rows[0][0] != self._which:
            self._end_session()

    def _end_session(self) -> None:
        # Session settings of the handler must not reach the next user of the connection.
        self.pooled.close()
        raise ended_early()

    def _failed(self) -> HoldfastError:
        """Return the failure of a failed transaction, by the error that the handler caught."""
        caught = self.connection.failed
        if caught is not None:
            error = self._translate(caught)
            if isinstance(error, (StoreBusy, StoreDown)):
                return error
            if self._confinement is not None and (refused := self._confinement.refused(caught)):
                return refused
        return failed_inside()

    def run(self, work: Callable[[Tx], T]) -> T:
        lock = self.connection.lock
        if not lock.acquire(timeout=_STATEMENT_SECONDS):
            raise RuleViolated(
                "A statement of the handler, such as a stream, is still running on the connection"
                " of job.transaction(). Finish it before the next call of the job.",
                transaction="active",
            )
        try:
            self._check_open()
            with self._as_engine():
                return work(self._tx())
        except psycopg.Error as exc:
            raise self._translate(exc) from None
        finally:
            lock.release()

    @contextmanager
    def _as_engine(self) -> Iterator[None]:
        """Run the engine's statements with its own role; a failure undoes only these."""
        libpq.command(self.pooled, b"SAVEPOINT holdfast_call")
        try:
            _, ((role, search_path, lock_timeout),), _ = libpq.fetch(
                self.pooled, _SETTINGS, {}, None
            )
            libpq.command(self.pooled, _AS_ENGINE)
            with self._confinement.excepting() if self._confinement else nullcontext():
                yield
            settings = {"role": role, "search_path": search_path, "lock_timeout": lock_timeout}
            libpq.fetch(self.pooled, _RESTORE, settings, None)
        except BaseException:
            if self.pooled.pgconn.status != ConnStatus.BAD:
                with suppress(psycopg.Error):
                    libpq.command(
                        self.pooled,
                        b"ROLLBACK TO SAVEPOINT holdfast_call; RELEASE SAVEPOINT holdfast_call",
                    )
            raise
        libpq.command(self.pooled, b"RELEASE SAVEPOINT holdfast_call")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._check_open()
        self._depth += 1
        name = b"holdfast_block_%d" % self._depth
        libpq.command(self.pooled, b"SAVEPOINT " + name)
        try:
            yield
            self._check_open()
            libpq.command(self.pooled, b"RELEASE SAVEPOINT " + name)
        except BaseException:
            if self.pooled.pgconn.transaction_status in (
                TransactionStatus.INTRANS,
                TransactionStatus.INERROR,
            ):
                with suppress(psycopg.Error):
                    libpq.command(
                        self.pooled,
                        b"ROLLBACK TO SAVEPOINT " + name + b"; RELEASE SAVEPOINT " + name,
                    )
            raise
        finally:
            self._depth -= 1


# Session state that a handler can leave behind. DISCARD ALL would also drop every cached plan.
_CLEAN = (
    b"RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP;"
    b" DISCARD SEQUENCES; SELECT pg_catalog.pg_advisory_unlock_all()"
)


def clean_session(pooled: Connection, *, is_shared: bool) -> None:
    """Reset the session after a handler, before the next job or the engine uses it.

    A session that the engine shares keeps its prepared statements: some are the engine's.
    """
    if pooled.pgconn.transaction_status != TransactionStatus.IDLE:
        return
    try:
        libpq.checked(pooled.pgconn.exec_(_CLEAN if is_shared else b"DEALLOCATE ALL; " + _CLEAN))
    except psycopg.Error:
        pooled.close()


def _lost() -> StoreDown:
    return StoreDown(
        "The connection to PostgreSQL was lost inside job.transaction(). Nothing of the block was"
        " committed, unless it was lost in the commit itself."
    )
