"""Savepoints on the caller's connection: a failure inside does not undo the caller's writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from holdfast.errors import ConfigError, QueueFull, StoreError
from holdfast.store.caller_connection import awaiting, blocking, family_of, is_awaiting
from holdfast.store.dialect import SQLITE

_SET = "SAVEPOINT holdfast_savepoint"
_UNDO = "ROLLBACK TO SAVEPOINT holdfast_savepoint"
_RELEASE = "RELEASE SAVEPOINT holdfast_savepoint"
_NO_TRANSACTION = "25P01"


def is_store_failure(exc: BaseException) -> bool:
    """Whether the store failed or refused the write, as opposed to an invalid argument."""
    return isinstance(exc, (StoreError, QueueFull, OSError)) or family_of(exc) is not None


@contextmanager
def savepoint(connection: Any) -> Iterator[None]:
    """Undo the block's writes on a blocking connection if it fails. None: nothing to undo."""
    if connection is None:
        yield
        return
    if is_awaiting(connection):
        raise ConfigError("The connection is asynchronous: use anotify.")
    if not _set(connection):
        # Autocommit: there is nothing to undo.
        yield
        return
    _, execute = blocking(connection)
    try:
        yield
    except BaseException:
        execute(_UNDO, {})
        execute(_RELEASE, {})
        raise
    execute(_RELEASE, {})


def _set(connection: Any) -> bool:
    """Set the savepoint, if a transaction is open."""
    dialect, execute = blocking(connection)
    if dialect is SQLITE and _begins_late(connection):
        execute("BEGIN", {})
    try:
        execute(_SET, {})
    except Exception as exc:
        if _sqlstate(exc) == _NO_TRANSACTION:
            return False
        raise
    return True


@asynccontextmanager
async def asavepoint(connection: Any) -> AsyncIterator[None]:
    """The async form of :func:`savepoint`."""
    if not await _aset(connection):
        yield
        return
    execute = _awaiting(connection)
    try:
        yield
    except BaseException:
        await execute(_UNDO)
        await execute(_RELEASE)
        raise
    await execute(_RELEASE)


async def _aset(connection: Any) -> bool:
    run_sync = getattr(connection, "run_sync", None)
    if run_sync is not None:
        return bool(await run_sync(_set))
    try:
        await _awaiting(connection)(_SET)
    except Exception as exc:
        if _sqlstate(exc) == _NO_TRANSACTION:
            return False
        raise
    return True


def _awaiting(connection: Any) -> Callable[[str], Awaitable[Any]]:
    run_sync = getattr(connection, "run_sync", None)
    if run_sync is not None:
        return lambda text: run_sync(lambda plain: blocking(plain)[1](text, {}))
    execute = awaiting(connection)
    return lambda text: execute(text, {})


def _begins_late(connection: Any) -> bool:
    """Whether sqlite3 begins the caller's transaction only at their first write.

    A savepoint outside a transaction starts one, and its release would commit.
    """
    raw = connection
    if family_of(connection) == "sqlalchemy":
        plain = connection.connection() if hasattr(connection, "get_bind") else connection
        raw = plain.connection.driver_connection
    elif family_of(connection) == "django":
        # Django disables sqlite3's implicit BEGIN.
        return False
    return not raw.in_transaction and raw.isolation_level is not None


def _sqlstate(exc: BaseException) -> str | None:
    """Return the SQLSTATE of a driver's error, also of a wrapped one."""
    for link in (exc, getattr(exc, "orig", None), exc.__cause__):
        code = getattr(link, "sqlstate", None) or getattr(link, "pgcode", None)
        if isinstance(code, str):
            return code
    return None
