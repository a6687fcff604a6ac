"""Two transactions at once, in an order that a test forces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg

from holdfast import Holdfast
from holdfast.store import Tx

A = TypeVar("A")
B = TypeVar("B")

_BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def meanwhile(hf: Holdfast, first: Callable[[Tx], A], second: Callable[[], B]) -> tuple[A, B]:
    """Run *second* while the transaction of *first* is open; return the results of both.

    The first commits when the second waits for one of its locks or has ended. On SQLite the second
    waits for the only writer.
    """
    began, may_commit = threading.Event(), threading.Event()

    def held_open(tx: Tx) -> A:
        answer = first(tx)
        began.set()
        assert may_commit.wait(30)
        return answer

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(hf.store.write, held_open)
        one.add_done_callback(lambda _: began.set())
        assert began.wait(30)
        two = pool.submit(second)
        try:
            if not hf.store.is_embedded:
                _until_blocked(hf.settings.db, two)
        finally:
            may_commit.set()
        return one.result(30), two.result(30)


def _until_blocked(url: str, other: Future[Any]) -> None:
    pause = threading.Event()
    with psycopg.connect(url, autocommit=True) as admin:
        for _ in range(3_000):
            row = admin.execute(_BLOCKED).fetchone()
            if other.done() or (row is not None and row[0]):
                return
            pause.wait(0.01)
    raise AssertionError("the second transaction neither ended nor waited")
