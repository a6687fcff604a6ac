"""The owner of each table: a tenant, by a column, or the cell that all tenants share.

``tables.toml`` beside this module declares the core's tables. An extension has its own file in its
package; callers pass the packages to read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources

from holdfast.errors import ConfigError

FILE = "tables.toml"
CORE = "holdfast.store"


@dataclass(frozen=True, slots=True)
class Key:
    """A unique or foreign key of a table; *references* is empty for a unique key."""

    table: str
    name: str
    columns: tuple[str, ...]
    references: str = ""


@dataclass(frozen=True, slots=True)
class Tables:
    """The declared tables."""

    # The tenant column, by table.
    tenant: Mapping[str, str] = field(default_factory=dict)
    # The table's contents, by table.
    cell: Mapping[str, str] = field(default_factory=dict)
    # Why a key of a tenant table is unique across tenants, by table and first column.
    unique_in_cell: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, table: str) -> bool:
        return table in self.tenant or table in self.cell

    def undeclared(self, tables: Iterable[str]) -> list[str]:
        """Return the tables that no file declares."""
        return sorted(table for table in tables if table not in self)

    def wrong_keys(self, keys: Iterable[Key]) -> Iterator[Key]:
        """Yield keys of tenant tables that neither start with the tenant nor give a reason."""
        for key in keys:
            if key.table not in self.tenant or key.columns[0] == self.tenant[key.table]:
                continue
            if key.references:
                is_shared = key.references not in self.tenant
            else:
                is_shared = f"{key.table}.{key.columns[0]}" in self.unique_in_cell
            if not is_shared:
                yield key


def read_tables(packages: Iterable[str] = (CORE,)) -> Tables:
    """Read the tables that these packages declare, each in its ``tables.toml``."""
    tenant: dict[str, str] = {}
    cell: dict[str, str] = {}
    unique_in_cell: dict[str, str] = {}
    for package in packages:
        place = resources.files(package).joinpath(FILE)
        if not place.is_file():
            continue  # Its tables are undeclared, which the build refuses.
        declared = tomllib.loads(place.read_text(encoding="utf-8"))
        for name in (*declared.get("tenant", {}), *declared.get("cell", {})):
            if name in tenant or name in cell:
                raise ConfigError(f"{package} declares the table {name} a second time in {FILE}.")
        tenant |= declared.get("tenant", {})
        cell |= declared.get("cell", {})
        unique_in_cell |= declared.get("unique_in_cell", {})
        if twice := tenant.keys() & cell.keys():
            raise ConfigError(
                f"{package} declares {sorted(twice)} both as tenant and as cell in {FILE}."
            )
    return Tables(tenant, cell, unique_in_cell)
