"""Grants: let handlers use the application's own tables.

On PostgreSQL a handler runs as holdfast_tenant inside ``job.transaction()``. That role can use no
table of the application until it is granted. SQLite has no roles, and nothing to grant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.engine.audit import record_action
from holdfast.errors import Forbidden, HoldfastError, RuleBroken
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.refusal import InvalidAction, TableNotFound
from holdfast.store import Tx
from holdfast.store.grants import DEFAULTS, PRIVILEGES, Table, find_table, list_grants
from holdfast.store.grants import TENANT as TENANT

ROLES = tuple(DEFAULTS)
LONGEST_NAME = 200
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Granted:
    """The grants on one table, or in a dry run the grants that would be made."""

    table: str
    role: str
    privileges: tuple[str, ...]
    # Empty if the role has all of them.
    statements: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def grant_tables(
    context: OperatorContext,
    names: Sequence[str],
    *,
    to: str = TENANT,
    privileges: Sequence[str] = (),
    dry_run: bool = False,
    reason: str = "",
) -> list[Granted]:
    """Grant a role of Holdfast the missing privileges on these tables: all of them or none.

    Their schemas and the sequences of their columns are included. A database without roles changes
    nothing and returns an empty list.
    """
    context.check(Action.GRANT, org_id=None, subject="store:all")
    wanted = _read_privileges(to, privileges)
    if not names or any(not 1 <= len(name) <= LONGEST_NAME for name in names):
        raise InvalidAction({"table": f"must be one or more names of 1 to {LONGEST_NAME} letters"})
    if reason:
        (reason,) = read_texts(reason=(reason, LONGEST_REASON))
    if not context.store.dialect.has_roles:
        return []
    tables = context.store.read(lambda tx: [_find(tx, name) for name in dict.fromkeys(names)])
    for table in tables:
        if table.is_ours:
            error = Forbidden(f"{table} is not a table of the application. Nothing was granted.")
            context.refuse(Action.GRANT, error, org_id=None, subject=f"table:{table}")

    def work(tx: Tx) -> list[Granted]:
        done = [_plan(tx, table, to, wanted) for table in tables]
        if not dry_run:
            for table, one in zip(tables, done, strict=True):
                _apply(tx, context, table, one, reason)
        return done

    try:
        return context.store.read(work) if dry_run else context.store.write(work)
    except RuleBroken as exc:
        raise _may_not(context, tables, to, wanted) from exc


def _read_privileges(to: str, privileges: Sequence[str]) -> tuple[str, ...]:
    bad: dict[str, str] = {}
    if to not in ROLES:
        bad["to"] = f"must be one of {', '.join(ROLES)}"
    words = [word.strip().upper() for word in privileges]
    if any(word not in PRIVILEGES for word in words):
        bad["privileges"] = f"must be one or more of {', '.join(PRIVILEGES)}"
    if bad:
        raise InvalidAction(bad)
    return tuple(word for word in PRIVILEGES if word in words) or DEFAULTS[to]


def _find(tx: Tx, name: str) -> Table:
    table = find_table(tx, name)
    if table is None or not table.is_table:
        raise TableNotFound(name)
    return table


def _plan(tx: Tx, table: Table, to: str, wanted: tuple[str, ...]) -> Granted:
    statements = tuple(list_grants(tx, table, to, wanted))
    return Granted(str(table), to, wanted, statements, tuple(_warnings(table)))


def _warnings(table: Table) -> list[str]:
    if table.has_policies:
        return []
    tenant = "" if table.has_tenant else ", and has no column org_id"
    return [
        f"{table} has no row-level security{tenant}: handlers of every tenant can use all its rows."
    ]


def _apply(tx: Tx, context: OperatorContext, table: Table, one: Granted, reason: str) -> None:
    if not one.statements:
        return
    for statement in one.statements:
        tx.command(statement)
    # A GRANT without the grant option may only raise a warning.
    if list_grants(tx, table, one.role, one.privileges):
        raise RuleBroken("grant", "the login has no right to grant this")
    detail = {"to": one.role, "privileges": list(one.privileges), "role": context.role}
    if reason:
        detail["reason"] = reason
    record_action(tx, context.actor, subject=f"table:{table}", name="table.granted", detail=detail)


def _may_not(
    context: OperatorContext, tables: Sequence[Table], to: str, wanted: tuple[str, ...]
) -> HoldfastError:
    planned = context.store.read(lambda tx: [_plan(tx, table, to, wanted) for table in tables])
    owners = sorted({table.owner for table in tables})
    sql = " ".join(f"{statement};" for one in planned for statement in one.statements)
    return Forbidden(
        f"The login {tables[0].login} may not grant this: it belongs to {', '.join(owners)}."
        f" Nothing was granted. Run as the owner or as a superuser: {sql}"
    )
