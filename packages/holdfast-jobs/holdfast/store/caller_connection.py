"""Enqueueing on the caller's connection, so that a job exists only if the caller commits.

Accepted: sqlite3, psycopg (sync and async), asyncpg, SQLAlchemy (Connection, Session and their
async forms), Django. Nothing is committed or rolled back here.
"""

from __future__ import annotations

import inspect
import re
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.errors import ConfigError
from holdfast.store import digest
from holdfast.store.dialect import POSTGRES, SQLITE, Dialect, to_psycopg
from holdfast.store.query import Statement
from holdfast.store.store import Row, Tx, bind

T = TypeVar("T")

# A generator that yields a statement with its parameters and receives the rows. The same steps run
# on blocking and async connections.
Step = tuple[Statement, dict[str, Any]]
Steps = Generator[Step, list[Row], T]

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")

# The queues to wake after a transaction of Holdfast commits. NOTIFY takes a database-wide lock at
# commit, so it never runs in a caller's or a handler's transaction.
after_commit: ContextVar[set[str] | None] = ContextVar("holdfast_after_commit", default=None)


def run(tx: Tx, steps: Steps[T]) -> T:
    """Run steps in a transaction of the store."""
    return _drive(steps, lambda step: tx.many(step[0], **step[1]))


def _drive(steps: Steps[T], answer: Callable[[Step], list[Row]]) -> T:
    try:
        step = next(steps)
        while True:
            step = steps.send(answer(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def run_borrowed(connection: Any, clock: Clock, steps: Steps[T], channels: Sequence[str]) -> T:
    """Run steps on the caller's blocking connection.

    Workers are not notified: they poll, or the caller calls ``hf.wake`` after its commit. Inside a
    handler's transaction the *channels* are recorded, and the engine wakes them after the commit.
    """
    dialect, execute = blocking(connection)
    if dialect is SQLITE:
        _teach(raw_sqlite(connection))

    def answer(step: Step) -> list[Row]:
        statement, params = step
        text = to_psycopg_text(statement, dialect)
        return _plain(execute(text, bind(statement, params, dialect, clock)))

    result = _drive(steps, answer)
    note_queues(channels)
    return result


@contextmanager
def noting_queues() -> Iterator[set[str]]:
    """Collect the queues of the jobs that the block enqueues on a connection."""
    noted: set[str] = set()
    before = after_commit.get()
    after_commit.set(noted)
    try:
        yield noted
    finally:
        after_commit.set(before)


def note_queues(channels: Sequence[str]) -> None:
    """Record queues to wake after the commit, in a block of :func:`noting_queues`."""
    noted = after_commit.get()
    if noted is not None:
        noted.update(channels)


async def arun_borrowed(
    connection: Any, clock: Clock, steps: Steps[T], channels: Sequence[str]
) -> T:
    """Run steps on the caller's async connection."""
    run_sync = getattr(connection, "run_sync", None)
    if run_sync is not None:
        result: T = await run_sync(lambda plain: run_borrowed(plain, clock, steps, channels))
        return result
    execute = awaiting(connection)
    try:
        step = next(steps)
        while True:
            statement, params = step
            text = to_psycopg_text(statement, POSTGRES)
            rows = await execute(text, bind(statement, params, POSTGRES, clock))
            step = steps.send(_plain(rows))
    except StopIteration as end:
        result = end.value
    note_queues(channels)
    return result


def is_awaiting(connection: Any) -> bool:
    """Whether statements on this connection must be awaited."""
    family = family_of(connection)
    return (
        family == "asyncpg"
        or (family == "sqlalchemy" and hasattr(connection, "run_sync"))
        or (family == "psycopg" and inspect.iscoroutinefunction(connection.commit))
    )


Execute = Callable[[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]


def blocking(connection: Any) -> tuple[Dialect, Execute]:
    """Return the dialect and a function that runs statements with psycopg placeholders."""
    family = family_of(connection)
    if family == "sqlite3":
        return SQLITE, lambda text, params: _sqlite_rows(connection, text, params)
    if family == "psycopg":
        return POSTGRES, lambda text, params: _psycopg_rows(connection, text, params)
    if family == "sqlalchemy":
        return _sqlalchemy(connection)
    if family == "django":
        dialect = {"sqlite": SQLITE, "postgresql": POSTGRES}.get(connection.vendor)
        if dialect is not None:
            return dialect, lambda text, params: _django_rows(connection, text, params)
    kind = type(connection)
    raise ConfigError(
        f"conn= does not support {kind.__module__}.{kind.__name__}. Pass a sqlite3, psycopg,"
        " asyncpg, SQLAlchemy or Django connection; with any other PostgreSQL driver call"
        " holdfast.enqueue(…)."
    )


def _sqlalchemy(connection: Any) -> tuple[Dialect, Execute]:
    from sqlalchemy import text as as_text

    plain = connection.connection() if hasattr(connection, "get_bind") else connection
    dialect = {"sqlite": SQLITE, "postgresql": POSTGRES}.get(plain.dialect.name)
    if dialect is None:
        raise ConfigError(f"conn= does not support the database {plain.dialect.name}.")

    def execute(text: str, params: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        result = plain.execute(as_text(_named(text)), params)
        return [dict(row) for row in result.mappings()] if result.returns_rows else []

    return dialect, execute


def raw_sqlite(connection: Any) -> Any:
    """Return the sqlite3 connection behind the caller's."""
    return raw_connection(connection)


def raw_connection(connection: Any) -> Any:
    """Return the connection of the driver behind the caller's; an awaited one is returned as is."""
    family = family_of(connection)
    if family == "sqlalchemy" and not hasattr(connection, "run_sync"):
        plain = connection.connection() if hasattr(connection, "get_bind") else connection
        return plain.connection.dbapi_connection
    if family == "django":
        connection.ensure_connection()
        return connection.connection
    if family == "asyncpg":
        # A pool lends a new proxy each time.
        return getattr(connection, "_con", None) or connection
    return connection


def _teach(connection: Any) -> None:
    """Register the function that the triggers call on the caller's connection, if it is missing.

    SQLite refuses to replace a function while a statement of the connection is being read.
    """
    cursor = connection.cursor()
    try:
        cursor.execute(f"SELECT {digest.FUNCTION}('')")
    except sqlite3.OperationalError:
        digest.register(connection)
    finally:
        cursor.close()


def _sqlite_rows(
    connection: sqlite3.Connection, text: str, params: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    cursor = connection.cursor()
    # The caller's connection may have its own row factory.
    cursor.row_factory = None
    return _cursor_rows(cursor.execute(_named(text), params))


def _psycopg_rows(connection: Any, text: str, params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    from psycopg.rows import tuple_row

    with connection.cursor(row_factory=tuple_row) as cursor:
        return _cursor_rows(cursor.execute(text, params))


def _django_rows(connection: Any, text: str, params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        return _cursor_rows(cursor)


def awaiting(connection: Any) -> Callable[..., Awaitable[Sequence[Mapping[str, Any]]]]:
    if family_of(connection) == "asyncpg":

        async def fetch(text: str, params: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
            numbered, values = _numbered(text, params)
            found: Sequence[Mapping[str, Any]] = await connection.fetch(numbered, *values)
            return found

        return fetch

    if family_of(connection) != "psycopg" or not is_awaiting(connection):
        raise ConfigError(
            "conn= must be a connection that is awaited: asyncpg, psycopg.AsyncConnection or an"
            " asynchronous one of SQLAlchemy."
        )
    from psycopg.rows import dict_row

    async def execute(text: str, params: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(text, params)
            rows: list[Mapping[str, Any]] = (
                [] if cursor.description is None else (await cursor.fetchall())
            )
            return rows

    return execute


def to_psycopg_text(statement: Statement, dialect: Dialect) -> str:
    text = statement.render(dialect).text
    return text if dialect is POSTGRES else to_psycopg(text)


def _named(text: str) -> str:
    """Convert psycopg placeholders to ``:name``."""
    return _PLACEHOLDER.sub(lambda match: f":{match[1]}" if match[1] else "%", text)


def _numbered(text: str, params: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Convert psycopg placeholders to ``$1``; return the values in that order."""
    names = list(dict.fromkeys(name for name in _PLACEHOLDER.findall(text) if name))
    places = {name: f"${index}" for index, name in enumerate(names, 1)}
    numbered = _PLACEHOLDER.sub(lambda match: places[match[1]] if match[1] else "%", text)
    return numbered, [params[name] for name in names]


def _cursor_rows(cursor: Any) -> list[Mapping[str, Any]]:
    if cursor.description is None:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _plain(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return rows with ids as text for every driver."""
    return [
        {name: str(value) if isinstance(value, uuid.UUID) else value for name, value in row.items()}
        for row in rows
    ]


def family_of(connection: Any) -> str | None:
    """Return the library that a connection comes from, including subclasses."""
    for base in type(connection).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _FAMILIES:
            return package
    return None


_FAMILIES = frozenset({"sqlite3", "psycopg", "asyncpg", "sqlalchemy", "django"})
