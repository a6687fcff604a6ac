"""One open transaction on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.clock import Clock
from holdfast.store import libpq
from holdfast.store.dialect import POSTGRES
from holdfast.store.libpq import Connection
from holdfast.store.query import Statement
from holdfast.store.store import Row, Tx

STREAM_ROWS = 500


class PostgresTx(Tx):
    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        prepared: libpq.Prepared | None = None,
        alone: libpq.Alone | None = None,
    ) -> None:
        super().__init__(POSTGRES, clock)
        self.connection = connection
        self.prepared = prepared
        self.alone = alone
        self._streams = 0

    def _fetch(
        self, text: str, params: dict[str, Any], prepare: bool
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        prepared = self.prepared if prepare else None
        if self.alone is not None:
            return libpq.fetch_alone(self.connection, text, params, prepared, self.alone)
        return libpq.fetch(self.connection, text, params, prepared)

    def begin(self, statement: Statement, /, **params: Any) -> Callable[[], list[tuple[Any, ...]]]:
        text, bound, prepare = self._ready(statement, params)
        answer = libpq.send(self.connection, text, bound, self.prepared if prepare else None)
        return lambda: answer()[1]

    def stream(self, statement: Statement, /, **params: Any) -> Iterator[Row]:
        text, bound, _ = self._ready(statement, params)
        self._streams += 1
        name = f"holdfast_stream_{self._streams}"
        # Plan for all rows: by default a cursor prefers plans with a fast start.
        libpq.command(self.connection, b"SET LOCAL cursor_tuple_fraction = 1")
        declared = f"DECLARE {name} NO SCROLL CURSOR FOR {text}"
        libpq.fetch(self.connection, declared, bound, None)
        while True:
            next_rows = f"FETCH {STREAM_ROWS} FROM {name}"
            columns, rows, _ = libpq.fetch(self.connection, next_rows, {}, None)
            for row in rows:
                yield dict(zip(columns, row, strict=True))
            if len(rows) < STREAM_ROWS:
                break
        libpq.command(self.connection, f"CLOSE {name}".encode())

    def command(self, text: str) -> None:
        libpq.command(self.connection, text.encode())

    def allow_hash_joins(self) -> None:
        libpq.command(self.connection, b"SET LOCAL enable_hashjoin = on")

    def read_in_order(self) -> None:
        libpq.command(
            self.connection, b"SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off"
        )

    def lock_units(self, units: Sequence[str]) -> None:
        if units:
            # Sorted, so that two transactions that share units cannot deadlock.
            self.connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(unit, 0))"
                " FROM unnest(%s::text[]) AS unit ORDER BY unit",
                (sorted(units),),
            )
