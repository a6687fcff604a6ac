"""Schedules that enqueue one job for each of several tenants at every tick."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.schedule.schedule import Schedule
from holdfast.engine.schedule.tenants import read_tenants
from holdfast.errors import InvalidSchedule
from holdfast.store import Statements, Tx

SQL = Statements("holdfast.engine.schedule", "schedule.sql")

TENANT_LIMIT = 100_000


class TenantLists:
    """The tenants of due schedules whose application lists them, read before a transaction.

    The lists come from the application's code, which does not run inside a transaction.
    """

    def __init__(self, declared: Mapping[str, Schedule], due: Collection[str]) -> None:
        self._lists: dict[str, list[str] | str] = {}
        for name in due:
            listing = declared[name].list_tenants if name in declared else None
            if listing is None:
                self._lists[name] = "its tenants are listed by code that does not run here"
                continue
            try:
                self._lists[name] = read_tenants(listing())
            except Exception as exc:
                why = str(exc) if isinstance(exc, ValueError) else type(exc).__qualname__
                self._lists[name] = f"its list of tenants failed: {why}"

    def has(self, schedule: Schedule) -> bool:
        """Whether the tenants of a schedule are known in this pass."""
        return schedule.tenants != "declared" or schedule.name in self._lists

    def tenants_of(self, tx: Tx, schedule: Schedule) -> list[str]:
        """The tenants of a tick. Raises InvalidSchedule if they could not be listed."""
        match schedule.tenants:
            case None:
                return [schedule.org_id]
            case "all":
                return list_all(tx)
            case _:
                found = self._lists[schedule.name]
                if isinstance(found, str):
                    raise InvalidSchedule(schedule.name, {"tenants": found})
                return found


NO_LISTS = TenantLists({}, ())


def list_all(tx: Tx) -> list[str]:
    """Every tenant that has jobs or rules."""
    rows = tx.many(SQL.list_known_tenants, platform=PLATFORM_ORG, limit=TENANT_LIMIT)
    return [str(row["org_id"]) for row in rows]
