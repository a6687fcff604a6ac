"""Rights and roles: may handlers use the tables that they need, and no more?"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.operate.doctor.finding import SQL, Finding, Severity, Visit
from holdfast.store import Row

OK, NOTICE, WARNING, PROBLEM = Severity

SHOWN = 10


def look_at_grants(visit: Visit) -> Iterator[Finding]:
    """Tables of the application that handlers cannot use, or that every tenant's handlers can."""
    if not visit.store.dialect.has_roles:
        return
    refused = visit.many(SQL.list_refused_tables, limit=SHOWN)
    for row in refused:
        yield Finding(
            "grants",
            WARNING,
            f"{row['jobs']} jobs died because handlers may not use {row['table_name']}:"
            " holdfast_tenant has no right on it.",
            f"Run 'holdfast grant {row['table_name']}', then replay them.",
            {"table": row["table_name"], "jobs": row["jobs"]},
        )
    tables = visit.many(SQL.list_own_tables)
    ungranted = [_name(row) for row in tables if not row["is_granted"]]
    if ungranted:
        yield Finding(
            "grants",
            NOTICE,
            f"Handlers cannot use {_listed(ungranted)} in job.transaction(): holdfast_tenant has no"
            " right on them.",
            "If a handler needs one: holdfast grant TABLE.",
            {"tables": ungranted[:SHOWN]},
        )
    shared = [_name(row) for row in tables if row["is_granted"] and not row["has_policies"]]
    if shared:
        yield Finding(
            "grants",
            NOTICE,
            f"Handlers of every tenant can use all rows of {_listed(shared)}: there is no row-level"
            " security on them.",
            "If rows belong to tenants, enable it: docs/tenancy.md, Your own tables.",
            {"tables": shared[:SHOWN]},
        )
    if not refused and not ungranted and not shared:
        yield Finding("grants", OK, "Handlers can use every table of the application.")


def _name(row: Row) -> str:
    return f"{row['schema_name']}.{row['table_name']}"


def _listed(names: list[str]) -> str:
    more = len(names) - SHOWN
    shown = ", ".join(names[:SHOWN])
    return shown if more <= 0 else f"{shown} and {more} more tables"
