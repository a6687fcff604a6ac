"""Statements and transactions on one SQLite connection."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import RuleBroken, StoreBusy, StoreDown, StoreError
from holdfast.store.dialect import SQLITE
from holdfast.store.query import Statement
from holdfast.store.store import Row, Tx, bind


class SqliteTx(Tx):
    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        super().__init__(SQLITE, clock)
        self.connection = connection

    def _as_values(
        self, statement: Statement, params: Mapping[str, Any]
    ) -> tuple[str, list[Any]] | None:
        # The first of equal ones, so that every process runs the same text.
        name = max(
            statement.row_sets,
            key=lambda name: (len(params[name]), -statement.raw.index(f"{{rows {name}:")),
        )
        bulk = statement.bulk(self.dialect, name, len(params[name]))
        if bulk is None:
            return None
        others = bind(statement, {**params, name: ()}, self.dialect, self.clock)
        return bulk.text, bulk.bind({**others, name: params[name]})

    def _fetch(
        self, text: str, params: Any, prepare: bool
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        try:
            cursor = self.connection.execute(text, params)
            columns = [item[0] for item in cursor.description or ()]
            rows = cursor.fetchall()
            return columns, rows, len(rows) if columns else cursor.rowcount
        except sqlite3.Error as exc:
            raise translate(exc) from exc

    def stream(self, statement: Statement, /, **params: Any) -> Iterator[Row]:
        text, bound, _ = self._ready(statement, params)
        try:
            with closing(self.connection.execute(text, bound)) as cursor:
                columns = [item[0] for item in cursor.description]
                for row in cursor:
                    yield dict(zip(columns, row, strict=True))
        except sqlite3.Error as exc:
            raise translate(exc) from exc

    def lock_units(self, units: Sequence[str]) -> None:
        """Does nothing: the single writer already excludes other transactions."""


def begin(connection: sqlite3.Connection, seconds: float = math.inf) -> None:
    """Begin a write transaction; wait at most *seconds* for another client's."""
    try:
        if connection.in_transaction:
            # A thread was ended from outside between its BEGIN and the block that would have
            # rolled it back.
            connection.execute("ROLLBACK")
        if seconds == math.inf:
            connection.execute("BEGIN IMMEDIATE")
            return
        (usual,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {min(int(seconds * 1000), usual)}")
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {usual}")
    except sqlite3.Error as exc:
        raise translate(exc) from exc


@contextmanager
def until_commit(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the open transaction after the block, or roll it back."""
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as exc:
        with suppress(sqlite3.ProgrammingError):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if isinstance(exc, sqlite3.Error):
            raise translate(exc) from exc
        raise


def is_open(connection: sqlite3.Connection) -> bool:
    """Whether the connection is still open."""
    try:
        _ = connection.in_transaction
    except sqlite3.ProgrammingError:
        return False
    return True


def translate(exc: sqlite3.Error) -> StoreError:
    """Convert an error of SQLite to a StoreError."""
    text = str(exc)
    if isinstance(exc, sqlite3.IntegrityError):
        rule, _, says = text.partition(": ")
        # "CHECK constraint failed: job_state_known" and "UNIQUE constraint failed: table.column"
        # put the rule last, Holdfast's triggers put it first.
        if rule.endswith("constraint failed"):
            rule, says = says or "foreign_key", text
        return RuleBroken(rule, says or text)
    if "locked" in text or "busy" in text:
        return StoreBusy(f"SQLite is busy: {text}. Try again.")
    if "unable to open" in text or "disk" in text or "readonly" in text:
        return StoreDown(f"SQLite cannot use the file: {text}.")
    return StoreError(f"SQLite: {text}")
