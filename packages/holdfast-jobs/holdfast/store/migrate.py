"""Numbered, forward-only migrations, written once for both databases.

``0002_job.sql`` runs on both; ``0001_schema.postgres.sql`` only on PostgreSQL, because the other
has no such thing. A version may have both: what is common first, then what is one database's own.
A migration and the row that records it commit together.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from holdfast.errors import SchemaMismatch
from holdfast.store import digest
from holdfast.store.dialect import SQLITE, Dialect

_NAME = re.compile(r"^(\d{4})_([a-z_]+)(?:\.(postgres|sqlite))?\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.version:04d}_{self.name}"


def migrations(dialect: Dialect) -> list[Migration]:
    """Every migration of this database in order, rendered."""
    folder = resources.files("holdfast.store").joinpath("migrations")
    matches = filter(None, (_NAME.match(entry.name) for entry in folder.iterdir()))
    mine = [match for match in matches if match.group(3) in (None, dialect.name)]
    parts: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    for match in sorted(mine, key=lambda match: (int(match.group(1)), match.group(3) or "")):
        version = int(match.group(1))
        text = folder.joinpath(match.group(0)).read_text(encoding="utf-8")
        parts.setdefault(version, []).append(dialect.render(text))
        names[version] = match.group(2)
    return [Migration(version, names[version], "\n".join(parts[version])) for version in parts]


def after(version: int, dialect: Dialect) -> list[Migration]:
    """The migrations that a schema of *version* has not had."""
    return [migration for migration in migrations(dialect) if migration.version > version]


def latest(dialect: Dialect) -> int:
    return migrations(dialect)[-1].version


def check_version(found: int | None, dialect: Dialect, url: str) -> None:
    """Raise SchemaMismatch unless *found* is the version this code was written for."""
    wanted = latest(dialect)
    if found is None:
        raise SchemaMismatch(f"No Holdfast schema in {url}. Run 'holdfast migrate' once.")
    if found < wanted:
        raise SchemaMismatch(
            f"The schema in {url} is version {found}, this code needs {wanted}. "
            "Run 'holdfast migrate'."
        )
    if found > wanted:
        raise SchemaMismatch(
            f"The schema in {url} is version {found}, newer than this code ({wanted}). "
            "Upgrade the holdfast package on this machine."
        )


def make_in_memory(dialect: Dialect) -> sqlite3.Connection | None:
    """A new database in memory with our schema, where the database can be in memory."""
    if dialect is not SQLITE:
        return None
    connection = sqlite3.connect(":memory:", isolation_level=None)
    digest.register(connection)
    for migration in migrations(dialect):
        for statement in split(migration.text):
            connection.execute(statement)
    return connection


def split(script: str) -> Iterator[str]:
    """The statements of a script, for SQLite, which takes one at a time inside a transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        if not pending and (not line.strip() or line.lstrip().startswith("--")):
            continue
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending
