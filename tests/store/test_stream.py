"""A stream: rows one after the other, however many there are."""

from __future__ import annotations

from itertools import islice

import pytest

from holdfast.store import Store, Tx
from holdfast.store.query import Statement

COUNT = (
    "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :upto)"
    " SELECT n, n * n AS square FROM n"
)


def statement(text: str) -> Statement:
    return Statement("counting", "many", "", text, frozenset())


@pytest.mark.parametrize("rows", [0, 1, 499, 500, 501, 1_200])
def test_every_row_comes_once_and_in_order(store: Store, rows: int) -> None:
    limited = statement(f"{COUNT} ORDER BY n LIMIT :rows")

    found = store.read(lambda tx: list(tx.stream(limited, upto=max(rows, 1), rows=rows)))

    assert found == [{"n": n, "square": n * n} for n in range(1, rows + 1)]


def test_a_stream_may_be_left_and_others_run_beside_it(store: Store) -> None:
    def work(tx: Tx) -> list[int]:
        outer = tx.stream(statement(COUNT), upto=5_000)
        first = [row["n"] for row in islice(outer, 600)]
        inner = [row["n"] for row in tx.stream(statement(COUNT), upto=700)]
        (one,) = tx.many(statement("SELECT 1 AS n"))
        rest = [row["n"] for row in islice(outer, 2)]
        return [first[-1], inner[-1], one["n"], *rest]

    assert store.read(work) == [600, 700, 1, 601, 602]
    assert store.read(lambda tx: tx.one(statement("SELECT 1 AS n"))) == {"n": 1}
