"""Examine: every look once, each on its own, so that what one may not see harms no other."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import StoreBusy, StoreDown, StoreError
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.doctor import database, deliveries, files, roles, workplace
from holdfast.operate.doctor.finding import Finding, Limits, Look, Severity, Visit

_DATABASE: Mapping[str, Look] = {
    "schema": database.look_at_schema,
    "settings": database.look_at_settings,
    "connections": database.look_at_connections,
    "clock": database.look_at_clock,
    "transactions": database.look_at_transactions,
    "bloat": database.look_at_bloat,
    "file": files.look_at_file,
}
_WORKPLACE: Mapping[str, Look] = {
    "workers": workplace.look_at_workers,
    "queues": workplace.look_at_queues,
    "rescue": workplace.look_at_rescue,
    "sealing": workplace.look_at_audit,
    "dead_letters": workplace.look_at_letters,
    "isolation": roles.look_at_isolation,
    "grants": roles.look_at_grants,
    "schedules": workplace.look_at_schedules,
    "deliveries": deliveries.look_at_deliveries,
    "channels": deliveries.look_at_channels,
}


def examine(
    context: OperatorContext, limits: Limits | None = None, *, probes: bool = False
) -> list[Finding]:
    """What was found, in the order in which it was looked at. For administrators only.

    With *probes*, services outside are asked too, a free question each.
    """
    context.check(Action.DOCTOR, org_id=None, subject="store:all")
    extensions = tuple(context.available_extensions)
    visit = Visit(context.store, context.settings, limits or Limits(), extensions)
    found = _look(_DATABASE, visit)
    if any(one.check == "schema" and one.severity is not Severity.OK for one in found):
        # What is not the schema that this code knows cannot be asked about its contents.
        return found
    found += _look(_WORKPLACE, visit)
    migrated = context.migrated_extensions
    for extension in migrated:
        found += _look(extension.doctor_checks(), visit)
    for extension in migrated if probes else ():
        found += _look(extension.doctor_probes(), visit)
    return found


def _look(looks: Mapping[str, Look], visit: Visit) -> list[Finding]:
    found: list[Finding] = []
    for name, look in looks.items():
        try:
            found += look(visit)
        except (StoreDown, StoreBusy):
            raise
        except StoreError as exc:
            found.append(
                Finding(
                    name,
                    Severity.NOTICE,
                    f"Could not be looked at: {exc}",
                    "Grant the role that asks what it lacks, or ask as an administrator.",
                )
            )
    return found
