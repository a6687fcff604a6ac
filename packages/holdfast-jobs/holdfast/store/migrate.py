"""Numbered, forward-only migrations of each component, written once for both databases.

``0002_job.sql`` runs on both; ``0001_schema.postgres.sql`` only on PostgreSQL. A version may have
both: the common file runs first. A migration and the row that records it commit together.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import SchemaMismatch
from holdfast.store import digest
from holdfast.store.component import CORE, Component, in_order
from holdfast.store.dialect import SQLITE, Dialect
from holdfast.store.query import folder_of

_NAME = re.compile(r"^(\d{4})_([a-z_]+)(?:\.(postgres|sqlite))?\.sql$")


Versions = Mapping[str, int]
"""The version of each component in a database; empty if it has no Holdfast schema."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str
    component: str = CORE.name

    def __str__(self) -> str:
        numbered = f"{self.version:04d}_{self.name}"
        return numbered if self.component == CORE.name else f"{self.component} {numbered}"


def migrations(dialect: Dialect, component: Component = CORE) -> list[Migration]:
    """Return the migrations of a component in order, rendered for this database.

    Cached: a process reads and renders each folder once.
    """
    folder = folder_of(component.package) / component.folder
    found = _read.get((str(folder), dialect.name))
    if found is None:
        found = _read[str(folder), dialect.name] = _render_all(folder, dialect, component)
    return list(found)


_read: dict[tuple[str, str], list[Migration]] = {}


def _render_all(folder: Path, dialect: Dialect, component: Component) -> list[Migration]:
    matches = filter(None, (_NAME.match(entry.name) for entry in folder.iterdir()))
    mine = [match for match in matches if match.group(3) in (None, dialect.name)]
    parts: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    for match in sorted(mine, key=lambda match: (int(match.group(1)), match.group(3) or "")):
        version = int(match.group(1))
        text = folder.joinpath(match.group(0)).read_text(encoding="utf-8")
        parts.setdefault(version, []).append(dialect.render(text))
        names[version] = match.group(2)
    return [
        Migration(version, names[version], "\n".join(parts[version]), component.name)
        for version in parts
    ]


def after(
    versions: Versions, dialect: Dialect, components: Sequence[Component] = ()
) -> list[Migration]:
    """Return the migrations of the core and *components* that a database of *versions* lacks.

    Raises SchemaMismatch if a component is newer than this code, or needs a version that would
    still be missing afterwards.
    """
    reached = dict(versions)
    missing: list[Migration] = []
    for component in in_order(components):
        steps = migrations(dialect, component)
        newest = steps[-1].version if steps else 0
        found = versions.get(component.name, 0)
        if found > newest:
            raise SchemaMismatch(_newer(component.name, found, newest, "this database"))
        for name, wanted in component.needs.items():
            if reached.get(name, 0) < wanted:
                raise SchemaMismatch(
                    f"The component {component.name!r} needs {name} {wanted}, and this database"
                    f" has {name} {reached.get(name, 0)}. Upgrade the package of {name}."
                )
        missing += [migration for migration in steps if migration.version > found]
        reached[component.name] = newest
    return missing


def latest(dialect: Dialect, component: Component = CORE) -> int:
    """The version of the last migration, by the names of the files."""
    folder = folder_of(component.package) / component.folder
    matches = filter(None, (_NAME.match(entry.name) for entry in folder.iterdir()))
    own = (None, dialect.name)
    return max((int(match[1]) for match in matches if match[3] in own), default=0)


def check_versions(
    versions: Versions, dialect: Dialect, url: str, components: Sequence[Component] = ()
) -> None:
    """Raise SchemaMismatch unless the core and *components* have the versions of this code."""
    if not versions:
        raise SchemaMismatch(f"No Holdfast schema in {url}. Run 'holdfast migrate' once.")
    for component in in_order(components):
        found, wanted = versions.get(component.name, 0), latest(dialect, component)
        if found < wanted:
            raise SchemaMismatch(
                f"The schema of {component.name} in {url} is version {found}, this code needs"
                f" {wanted}. Run 'holdfast migrate'."
            )
        if found > wanted:
            raise SchemaMismatch(_newer(component.name, found, wanted, url))


def _newer(name: str, found: int, wanted: int, where: str) -> str:
    return (
        f"The schema of {name} in {where} is version {found}, newer than this code ({wanted})."
        " Upgrade the holdfast package on this machine."
    )


def make_in_memory(
    dialect: Dialect, components: Sequence[Component] = ()
) -> sqlite3.Connection | None:
    """Create an in-memory database with the schema, if the dialect supports it."""
    if dialect is not SQLITE:
        return None
    connection = sqlite3.connect(":memory:", isolation_level=None)
    digest.register(connection)
    for migration in after({}, dialect, components):
        for statement in split(migration.text):
            connection.execute(statement)
    return connection


def apply_sqlite(
    connection: sqlite3.Connection,
    components: Sequence[Component],
    versions: Versions | None = None,
) -> list[str]:
    """Apply the migrations that *versions* lack in the open transaction; return their names."""
    missing = after(versions or {}, SQLITE, components)
    for migration in missing:
        for statement in split(migration.text):
            connection.execute(statement)
    connection.executemany(
        "INSERT INTO holdfast_migration (component, version, name) VALUES (?, ?, ?)",
        [(one.component, one.version, one.name) for one in missing],
    )
    return [str(migration) for migration in missing]


def split(script: str) -> Iterator[str]:
    """Split a script into statements for SQLite, which runs one at a time in a transaction."""
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
