"""The extension that adds batch processing. It imports the implementation on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.config import Settings
from holdfast.config.setting_type import PLAIN_NAME, rows, table
from holdfast.event import BatchAlert, BatchChanged, ModelUsed, Only, Subscriber
from holdfast.extension import Extension
from holdfast.store import Component, Statements, StateStatement
from holdfast_llm.batch.failure import ERROR_CLASSES
from holdfast_llm.settings import (
    BATCH_RUNS,
    BUDGETED,
    BUILT_IN_PROVIDERS,
    BatchSettings,
    BudgetSettings,
    CommonProviderSettings,
    PriceSettings,
    ProviderSettings,
    doubled_prices,
    provider_settings_class,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.operate.doctor.finding import DoctorCheck
    from holdfast.operate.explanation import ExtensionReasons, Situation
    from holdfast.operate.verify.check import Check
    from holdfast.store import Tx
    from holdfast.telemetry.gauges import GaugeSet
    from holdfast.testing_faults import Kit


class BatchExtension(Extension):
    """Declares batch processing; :class:`Batching` is the object that is enabled."""

    name = "batch"
    component = Component("batch", "holdfast_llm", needs={"core": 19, "workflows": 2})
    requires = ("workflows",)
    enforces_budgets = True
    settings = {
        "batch": BatchSettings,
        "providers": table(
            ProviderSettings,
            PLAIN_NAME,
            BUILT_IN_PROVIDERS,
            merges=True,
            accepts=CommonProviderSettings,
            class_of_kind=provider_settings_class,
        ),
        "prices": rows("[[prices]]", PriceSettings),
        "budgets": table(BudgetSettings, BUDGETED),
    }
    runs = BATCH_RUNS
    error_classes = ERROR_CLASSES
    nouns = {
        "batches": "holdfast_llm.operate.batches:Batches",
        "costs": "holdfast_llm.operate.costs:Costs",
    }
    console = "holdfast_llm.console:PAGES"
    command_group = "Batch processing"
    commands = {
        "batches": "holdfast_llm.cli.batches:batches",
        "costs": "holdfast_llm.cli.costs:costs",
    }

    api = "holdfast_llm.api:router"

    def state_statements(self) -> Sequence[StateStatement]:
        sql = Statements("holdfast_llm.batch", "maintenance.sql")
        return (StateStatement(None, sql.forget_answers, frozenset({"canceled"})),)

    def load(self) -> Extension:
        from holdfast_llm.batch.declare import Batching

        return Batching()

    def check_settings(self, settings: Settings) -> Sequence[str]:
        return doubled_prices(settings.prices)

    def verify_checks(self) -> Sequence[Check]:
        from holdfast_llm.operate.verify import CHECKS

        return CHECKS

    def doctor_checks(self) -> Mapping[str, DoctorCheck]:
        from holdfast_llm.operate.doctor import CHECKS

        return CHECKS

    def doctor_probes(self) -> Mapping[str, DoctorCheck]:
        from holdfast_llm.operate.probe import probe_configured

        return {"providers": probe_configured}

    def explain(self, tx: Tx, situation: Situation) -> ExtensionReasons | None:
        from holdfast_llm.operate.explain import explain_batched

        return explain_batched(tx, situation)

    def metrics(self, registry: Any, labels: Any) -> Subscriber | None:
        from holdfast_llm.telemetry import BatchCounts

        return Only((BatchChanged, BatchAlert, ModelUsed), BatchCounts(registry, labels).count)

    def gauges(self) -> Sequence[GaugeSet]:
        from holdfast_llm.telemetry import GAUGES

        return (GAUGES,)

    def testing(self, app: Holdfast) -> Kit | None:
        from holdfast_llm.testing import BatchKit

        return BatchKit(app)
