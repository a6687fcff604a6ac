"""Rights on the application's own tables: what a handler lacks, and how an operator gives it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import ConfigInvalid, Failure
from holdfast.store.denied import Denied
from holdfast.store.guards import refusal
from holdfast.store.query import Statements
from holdfast.store.store import Access, Tx

SQL = Statements("holdfast.store", "grants.sql")

TENANT = "holdfast_tenant"
AUDITOR = "holdfast_auditor"
OWN_SCHEMA = "holdfast"
PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
# What a role is given unless somebody says otherwise.
DEFAULTS = {TENANT: PRIVILEGES, AUDITOR: ("SELECT", "INSERT")}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the application, as the catalog has it."""

    oid: int
    schema: str
    name: str
    owner: str
    # The login that asks.
    login: str
    is_table: bool
    # Holdfast's own, or the database's.
    is_ours: bool
    has_policies: bool
    has_tenant: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


_PART = r'"(?:[^"]|"")+"|[^\W\d][\w$]*'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def find_table(tx: Tx, name: str) -> Table | None:
    """The table that a name, written as in SQL, means: in its schema, or in the search path."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    schema, table = (None if part is None else _plain(part) for part in parts.groups())
    row = tx.maybe(SQL.find_table, schema=schema, name=table)
    if row is None:
        return None
    return Table(
        oid=int(row["oid"]),
        schema=row["schema_name"],
        name=row["table_name"],
        owner=row["owner"],
        login=row["asked_by"],
        is_table=row["is_table"],
        is_ours=row["is_ours"],
        has_policies=row["has_policies"],
        has_tenant=row["has_tenant"],
    )


def _plain(part: str) -> str:
    """An identifier as the catalog has it."""
    return part[1:-1].replace('""', '"') if part.startswith('"') else part.lower()


def list_grants(tx: Tx, table: Table, role: str, privileges: Sequence[str]) -> list[str]:
    """The statements that give *role* what it lacks to use *table* and its sequences."""
    rows = tx.many(SQL.list_grants, oid=table.oid, role=role, privileges="+".join(privileges))
    return [row["statement"] for row in rows]


def missing_grant(tx: Tx, denied: Denied, access: Access) -> Failure | None:
    """The failure of a handler that was refused *denied*; None if no grant is missing.

    Only names that are in the catalog come from here, and none of the server's words.
    """
    if access is Access.AUDIT:
        # A table that it may not write is beyond what its category allows.
        return None
    for row in tx.many(SQL.find_denied, name=denied.name, role=TENANT):
        if row["schema_name"] == OWN_SCHEMA:
            return refusal(access, f"{OWN_SCHEMA}.{row['table_name']}")
        if row["missing"]:
            return _lacks(table=f"{row['schema_name']}.{row['table_name']}", missing=row["missing"])
    if tx.maybe(SQL.find_schema, name=denied.name, role=TENANT) is not None:
        return _lacks(schema=denied.name, missing="USAGE")
    return None


def _lacks(*, missing: str, **named: str) -> ConfigInvalid:
    (name,) = named.values()
    remedy = f"holdfast grant {name}" if "table" in named else f"holdfast grant {name}.TABLE"
    return ConfigInvalid(
        f"{TENANT} lacks {missing} on {name}. Handlers run in this role inside job.transaction()."
        f" Run: {remedy}",
        **named,
        role=TENANT,
        missing=missing,
        remedy=remedy,
    )
