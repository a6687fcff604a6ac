"""Shared input of the pages: every module of the distributions, and a migrated database."""

from __future__ import annotations

import importlib
import pkgutil
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from holdfast.config.extensions import installed
from holdfast.extension import components_of
from holdfast.store import open_store
from holdfast.store.component import in_order

ROOT = Path(__file__).resolve().parent.parent.parent
DISTRIBUTIONS = {
    "holdfast": "holdfast-jobs",
    "holdfast_llm": "holdfast-llm",
    "holdfast_rewrite": "holdfast-rewrite",
    "holdfast_review": "holdfast-review",
    "holdfast_simulator": "holdfast-simulator",
}


@cache
def import_everything() -> None:
    """Import every module, so that every subclass is known."""
    for package, distribution in DISTRIBUTIONS.items():
        folder = ROOT / "packages" / distribution / package
        for found in pkgutil.walk_packages([str(folder)], f"{package}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def subclasses(kind: type) -> Iterator[type]:
    """Yield all subclasses of a class that the distributions define, parents first."""
    import_everything()
    seen: set[type] = set()

    def walk(parent: type) -> Iterator[type]:
        for child in parent.__subclasses__():
            if child in seen or child.__module__.partition(".")[0] not in DISTRIBUTIONS:
                continue
            seen.add(child)
            yield child
            yield from walk(child)

    return walk(kind)


@cache
def schema() -> tuple[tuple[str, str, str, str], ...]:
    """Return type, name, table and SQL of everything in a SQLite database with all extensions."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reference.db"
        store = open_store(f"sqlite:///{file}", check=False)
        store.components = (*store.components, *in_order(components_of(installed().values())))
        store.migrate()
        store.close()
        connection = sqlite3.connect(file)
        rows = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
            " ORDER BY tbl_name, type, name"
        ).fetchall()
        connection.close()
    return tuple((kind, name, plain(table), sql) for kind, name, table, sql in rows)


def plain(table: str) -> str:
    """Return the name of a table without its SQLite prefix."""
    return table.removeprefix("holdfast_")
