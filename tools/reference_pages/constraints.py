"""docs/reference/constraints.md: what the database rejects, by table.

Names and tables are read from a migrated SQLite database and from the recorded definitions of
PostgreSQL; the meanings are in constraints.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict

from holdfast.config.extensions import installed
from reference_pages.page import HERE, Page, code, introduction
from reference_pages.source import ROOT, schema

KEYS = re.compile(r"_pkey$|_fkey$")
UNIQUE = re.compile(r"CREATE UNIQUE INDEX \w+ ON holdfast\.(?P<table>\w+)")


def build() -> Page:
    page = Page()
    meanings: dict[str, str] = tomllib.loads((HERE / "constraints.toml").read_text())
    page.add(introduction("constraints"))
    on_sqlite, on_postgres = _on_sqlite(), _on_postgres()
    # A trigger that raises the name of another rule has its own name on PostgreSQL.
    triggers = {(table, name) for kind, name, table, _ in schema() if kind == "trigger"}
    only_sqlite = {key for key in on_sqlite.keys() & triggers if key not in on_postgres}
    tables: dict[str, list[list[str]]] = defaultdict(list)
    for (table, name), kind in sorted((on_postgres | on_sqlite).items()):
        where = "SQLite" if (table, name) in only_sqlite else "both"
        where = where if (table, name) in on_sqlite else "PostgreSQL"
        meaning = page.need(name, meanings.get(name))
        tables[table].append([code(name), kind, where, meaning])
    for title, owned in table_owners().items():
        page.add(f"## Tables of {title}")
        for table in sorted(owned & tables.keys()):
            page.add(f"### `{table}`")
            page.table(("Name", "Kind", "Database", "Rejects"), tables.pop(table))
    page.problems += [f"table {table} belongs to no component" for table in tables]
    named = {name for _, name in on_postgres | on_sqlite}
    unknown = meanings.keys() - named
    page.problems += [f"constraints.toml: {name} does not exist" for name in unknown]
    return page


def table_owners() -> dict[str, set[str]]:
    """Return the tables of the core and of each extension, by title."""
    folders = {"the core": "holdfast-jobs/holdfast/store"}
    for extension in sorted(installed().values(), key=lambda one: one.name):
        package = type(extension).__module__.rpartition(".")[0]
        folder = package.replace(".", "/")
        distribution = next((ROOT / "packages").glob(f"*/{folder}/tables.toml"), None)
        if distribution is not None:
            path = distribution.parent.relative_to(ROOT / "packages")
            folders[f"the extension `{extension.name}`"] = str(path)
    owners = {}
    for title, folder in folders.items():
        declared = tomllib.loads((ROOT / "packages" / folder / "tables.toml").read_text())
        owners[title] = {name for part in declared.values() for name in part}
    return owners


def _on_sqlite() -> dict[tuple[str, str], str]:
    """Return the kind of every named rule, by table and name."""
    found: dict[tuple[str, str], str] = {}
    for kind, name, table, sql in schema():
        if kind == "table":
            for inner, rule in re.findall(r"CONSTRAINT (\w+) (CHECK|UNIQUE)", sql):
                found[table, inner] = rule.lower()
        elif kind == "trigger" and "RAISE(" in sql:
            raised = set(re.findall(r"RAISE\(ABORT, '(\w+):", sql))
            found |= {(table, one): "trigger" for one in raised - _names(found, table)}
        elif kind == "index" and "CREATE UNIQUE INDEX" in sql:
            found[table, name] = "unique"
    return found


def _names(found: dict[tuple[str, str], str], table: str) -> set[str]:
    return {name for owner, name in found if owner == table}


def _on_postgres() -> dict[tuple[str, str], str]:
    """Return the same from the recorded PostgreSQL definitions."""
    found: dict[tuple[str, str], str] = {}
    known = {name for _, name in _on_sqlite()}
    for path in (ROOT / "packages").glob("*/holdfast*/**/definitions.postgres.txt"):
        for line in path.read_text().splitlines():
            part, _, text = line.partition("\t")
            kind, _, place = part.partition(":")
            table, _, name = place.partition(".")
            if kind == "index" and (unique := UNIQUE.match(text)):
                table, name = unique["table"], place
            if KEYS.search(name) or not name:
                continue
            if kind == "constraint" and not text.startswith("NOT NULL"):
                found[table, name] = text.split()[0].lower()
            elif kind == "trigger" and (name in known or name.endswith(NEVER)):
                found[table, name] = "trigger"
            elif kind == "index":
                found.setdefault((table, name), "unique")
    return found


# Triggers that only PostgreSQL has: SQLite has neither TRUNCATE nor deferred constraint triggers,
# and its triggers on job_submitted have other names.
NEVER = ("_never_truncated", "_completed_has_output", "job_submitted_follows")
