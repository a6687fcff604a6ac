"""Plant several violations into one store, in one transaction.

``tests.engine.planting.plant`` removes and restores the rules of the database for each statement,
which takes 0.2 s on PostgreSQL. Here that happens once for all of them, and on PostgreSQL by the
number of checks that a table has, which takes 5 ms.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.store.dialect import POSTGRES, SQLITE, to_psycopg

HIDE_CHECKS = (
    "UPDATE pg_class SET relchecks = 0"
    " WHERE relnamespace = 'holdfast'::regnamespace AND relchecks > 0"
)
SHOW_CHECKS = (
    "UPDATE pg_class SET relchecks = (SELECT count(*) FROM pg_constraint"
    " WHERE conrelid = pg_class.oid AND contype = 'c')"
    " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p')"
)


def plant(hf: Holdfast, text: str, **params: Any) -> None:
    """Run *text* without checks and triggers; afterwards they apply to new writes again."""
    with rules_aside(hf) as run:
        run(text, **params)


def plant_all(hf: Holdfast, texts: Iterable[str]) -> None:
    """Run all *texts* without checks and triggers."""
    with rules_aside(hf) as run:
        for text in texts:
            run(text)


@contextmanager
def rules_aside(hf: Holdfast) -> Iterator[Any]:
    """A function that runs statements without checks and triggers, all in one transaction."""
    if hf.store.dialect is SQLITE:
        with _sqlite_aside(hf) as connection:
            yield lambda text, **params: connection.execute(SQLITE.render(text), params)
    else:
        with _postgres_aside(hf) as session:
            yield lambda text, **params: session.execute(
                to_psycopg(POSTGRES.render(text)).encode(), params
            )


@contextmanager
def _sqlite_aside(hf: Holdfast) -> Iterator[sqlite3.Connection]:
    path = hf.settings.db.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("BEGIN IMMEDIATE")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, made_by in triggers:
            connection.execute(made_by)
        connection.execute("COMMIT")


@contextmanager
def _postgres_aside(hf: Holdfast) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(hf.settings.db) as session:
        session.execute("SET LOCAL session_replication_role = replica")
        session.execute("SET LOCAL allow_system_table_mods = on")
        session.execute(HIDE_CHECKS)
        yield session
        session.execute(SHOW_CHECKS)
