"""Checks of roles and grants: handlers can use the tables that they need, and no others."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import StoreError
from holdfast.operate.doctor.finding import SQL, CheckContext, Finding, Severity
from holdfast.operate.plural import counted
from holdfast.store import Row

OK, NOTICE, WARNING, PROBLEM = Severity

SHOWN = 10


_GUARD_RAIL = (
    "Handlers use the engine's login, so handler SQL can bypass the tenant isolation with RESET"
    " ROLE or set_config()."
)
_OWN_LOGIN = (
    "To isolate tenants, give handlers a separate login: 'holdfast handler-login NAME' prints the"
    " SQL, then set handler_db. See docs/concepts/tenancy.md."
)
_SQLITE = (
    "SQLite has no roles: handler SQL can read all rows of the file. PostgreSQL with handler_db"
    " isolates tenants."
)


def check_isolation(context: CheckContext) -> Iterator[Finding]:
    """Check that a handler's SQL cannot reach rows of another tenant."""
    if not context.store.dialect.has_roles:
        yield Finding("isolation", OK, _SQLITE)
        return
    for row in context.many(SQL.list_unbound_logins):
        yield Finding(
            "isolation",
            NOTICE,
            f"The engine's login {row['name']} is a superuser or has BYPASSRLS: row-level security"
            " does not apply to it.",
            "Run workers with a login that is only a member of holdfast_engine.",
        )
    url = context.settings.handler_db
    if url is None:
        yield Finding("isolation", NOTICE, _GUARD_RAIL, _OWN_LOGIN)
        return
    try:
        login = context.store.read_handler_login(url)
    except StoreError as exc:
        yield Finding(
            "isolation",
            PROBLEM,
            f"The login of handler_db cannot connect, so no handler can open a transaction: {exc}",
            "Check the address, the password and pg_hba.conf.",
        )
        return
    if login.fault is not None:
        yield Finding(
            "isolation",
            PROBLEM,
            f"The login {login.name} of handler_db {login.fault}: tenants are not isolated, and"
            " job.transaction() is refused.",
            _OWN_LOGIN,
        )
        return
    yield Finding(
        "isolation",
        OK,
        f"Handlers use the login {login.name}, which cannot change its role or tenant.",
    )


def check_grants(context: CheckContext) -> Iterator[Finding]:
    """Check for tables that handlers cannot use, and for tables without tenant isolation."""
    if not context.store.dialect.has_roles:
        return
    refused = context.many(SQL.list_refused_tables, limit=SHOWN)
    for row in refused:
        yield Finding(
            "grants",
            WARNING,
            f"{counted(row['jobs'], 'job')} failed because holdfast_tenant lacks privileges on"
            f" {row['table_name']}.",
            f"Run 'holdfast grant {row['table_name']}', then replay them.",
            {"table": row["table_name"], "jobs": row["jobs"]},
        )
    tables = context.many(SQL.list_own_tables)
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
            "If rows belong to tenants, enable it: docs/concepts/tenancy.md.",
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
