"""The declaration of the sealed audit extension, without its implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.event import Subscriber
from holdfast.extension import Extension
from holdfast.store import Component

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.engine.worker.housekeeping import Chore
    from holdfast.operate.doctor.finding import DoctorCheck
    from holdfast.operate.verify.check import Check
    from holdfast.telemetry.gauges import GaugeSet


class SealExtension(Extension):
    """Seals the audit events of each tenant in a hash chain."""

    name = "seal"
    is_default = True
    component = Component("seal", "holdfast.sealed_audit", needs={"core": 19})
    audit_events = frozenset({"audit.exported"})
    # The methods and commands are added to those of the core's audit.
    nouns = {"audit": "holdfast.sealed_audit.operator:SealedAudit"}
    commands = {
        "audit export": "holdfast.sealed_audit.commands:export",
        "audit seal": "holdfast.sealed_audit.commands:seal",
        "audit verify": "holdfast.sealed_audit.commands:verify",
    }

    def maintenance(self, app: Holdfast) -> Sequence[Chore]:
        """Seal in small passes, in a separate thread."""
        from holdfast.engine.worker.housekeeping import Chore
        from holdfast.sealed_audit.seal import PASSES_PER_INTERVAL, seal_backlog, seal_once

        # Looked up in each pass: an application may replace its store and its settings.
        def run(step: Any) -> int:
            sealed: int = step(app.store, app.settings, app.events)
            return sealed

        every = app.settings.rescue_seconds / PASSES_PER_INTERVAL
        return [Chore("seal", every, partial(run, seal_once), partial(run, seal_backlog))]

    def verify_checks(self) -> Sequence[Check]:
        from holdfast.sealed_audit.verify import CHECKS

        return CHECKS

    def doctor_checks(self) -> Mapping[str, DoctorCheck]:
        from holdfast.sealed_audit.doctor import check_sealing

        return {"sealing": check_sealing}

    def metrics(self, registry: Any, labels: Any) -> Subscriber | None:
        from holdfast.sealed_audit.telemetry import count_seals

        return count_seals(registry)

    def gauges(self) -> Sequence[GaugeSet]:
        from holdfast.sealed_audit.telemetry import GAUGES

        return (GAUGES,)
