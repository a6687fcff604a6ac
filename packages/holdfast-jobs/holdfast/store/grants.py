"""Privileges on the application's tables: which ones a handler lacks, and how to grant them."""

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
# Privileges that a role gets by default.
DEFAULTS = {TENANT: PRIVILEGES, AUDITOR: ("SELECT", "INSERT")}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the application, as the catalog has it."""

    oid: int
    schema: str
    name: str
    owner: str
    # The current login.
    login: str
    is_table: bool
    # Whether it belongs to Holdfast or to the database system.
    is_ours: bool
    has_policies: bool
    has_tenant: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


_PART = r'"(?:[^"]|"")+"|[^\W\d][\w$]*'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def find_table(tx: Tx, name: str) -> Table | None:
    """Return the table of a SQL name, in its schema or in the search path."""
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
    """Return an identifier as the catalog has it."""
    return part[1:-1].replace('""', '"') if part.startswith('"') else part.lower()


def list_grants(tx: Tx, table: Table, role: str, privileges: Sequence[str]) -> list[str]:
    """Return the GRANT statements that *role* needs for *table* and its sequences."""
    rows = tx.many(SQL.list_grants, oid=table.oid, role=role, privileges="+".join(privileges))
    return [row["statement"] for row in rows]


def missing_grant(tx: Tx, denied: Denied, access: Access) -> Failure | None:
    """Return the failure of a handler that was refused *denied*; None if no grant is missing.

    Only names from the catalog are used, never the server's message.
    """
    if access is Access.AUDIT:
        # The category does not allow writes to this table.
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
