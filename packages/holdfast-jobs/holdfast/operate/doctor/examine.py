"""Runs every check of the doctor independently, so that a failed query does not affect others."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import StoreBusy, StoreDown, StoreError
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.doctor import database, deliveries, files, roles, workers
from holdfast.operate.doctor.finding import CheckContext, DoctorCheck, Finding, Limits, Severity

_DATABASE: Mapping[str, DoctorCheck] = {
    "schema": database.check_schema,
    "settings": database.check_settings,
    "connections": database.check_connections,
    "clock": database.check_clock,
    "transactions": database.check_transactions,
    "bloat": database.check_bloat,
    "file": files.check_file,
}
_WORKERS: Mapping[str, DoctorCheck] = {
    "workers": workers.check_workers,
    "queues": workers.check_queues,
    "rescue": workers.check_rescue,
    "dead_letters": workers.check_letters,
    "isolation": roles.check_isolation,
    "grants": roles.check_grants,
    "schedules": workers.check_schedules,
    "deliveries": deliveries.check_deliveries,
    "channels": deliveries.check_channels,
}


def examine(
    context: OperatorContext, limits: Limits | None = None, *, probes: bool = False
) -> list[Finding]:
    """Return the findings in the order of the checks. For administrators only.

    With *probes*, external services are probed too, with one free request each.
    """
    context.check(Action.DOCTOR, org_id=None, subject="store:all")
    extensions = tuple(context.available_extensions)
    visit = CheckContext(context.store, context.settings, limits or Limits(), extensions)
    found = _run_checks(_DATABASE, visit)
    if any(one.check == "schema" and one.severity is not Severity.OK for one in found):
        # The tables of an unknown schema cannot be queried.
        return found
    found += _run_checks(_WORKERS, visit)
    migrated = context.migrated_extensions
    for extension in migrated:
        found += _run_checks(extension.doctor_checks(), visit)
    for extension in migrated if probes else ():
        found += _run_checks(extension.doctor_probes(), visit)
    return found


def _run_checks(checks: Mapping[str, DoctorCheck], context: CheckContext) -> list[Finding]:
    found: list[Finding] = []
    for name, look in checks.items():
        try:
            found += look(context)
        except (StoreDown, StoreBusy):
            raise
        except StoreError as exc:
            found.append(
                Finding(
                    name,
                    Severity.NOTICE,
                    f"The check failed: {exc}",
                    "Grant the missing privilege, or run doctor as an administrator.",
                )
            )
    return found
