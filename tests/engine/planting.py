"""Rows that the constraints forbid, inserted without constraints, as a restore might."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.store.dialect import POSTGRES as POSTGRES_DIALECT
from holdfast.store.dialect import SQLITE, to_psycopg


def plant(hf: Holdfast, text: str, **params: Any) -> None:
    """Run *text* without checks and triggers; afterwards they apply to new writes again."""
    if hf.store.dialect is SQLITE:
        _plant_sqlite(hf, SQLITE.render(text), params)
    else:
        _plant_postgres(hf, to_psycopg(POSTGRES_DIALECT.render(text)), params)


def _plant_sqlite(hf: Holdfast, text: str, params: dict[str, Any]) -> None:
    connection = sqlite3.connect(hf.settings.db.removeprefix("sqlite:///"), isolation_level=None)
    try:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("BEGIN IMMEDIATE")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(text, params)
        for _, made_by in triggers:
            connection.execute(made_by)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _plant_postgres(hf: Holdfast, text: str, params: dict[str, Any]) -> None:
    with psycopg.connect(hf.settings.db) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        checks = connection.execute(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)"
            " FROM pg_constraint WHERE contype = 'c' AND connamespace = 'holdfast'::regnamespace"
        ).fetchall()
        for table, name, _ in checks:
            connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}".encode())
        connection.execute(text.encode(), params)
        for table, name, rule in checks:
            rule = rule.removesuffix(" NOT VALID")
            connection.execute(
                f"ALTER TABLE {table} ADD CONSTRAINT {name} {rule} NOT VALID".encode()
            )
        # A restore leaves no trace either: the constraints are assumed to hold for every row.
        connection.execute(
            "UPDATE pg_constraint SET convalidated = true"
            " WHERE connamespace = 'holdfast'::regnamespace"
        )
