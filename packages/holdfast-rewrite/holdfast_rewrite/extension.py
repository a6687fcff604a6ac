"""The complaint rewrite as an extension: declares its parts without importing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.config import Settings
from holdfast.event import Only, Subscriber
from holdfast.extension import Extension
from holdfast.store import Component, Statements, StateStatement
from holdfast_llm.settings import COLLECTOR, SUBMITTER
from holdfast_rewrite.enums import JOB_TYPE, JUDGE_TYPE
from holdfast_rewrite.settings import (
    BATCH_COLLECTOR,
    BATCH_SUBMITTER,
    REWRITE_RUNS,
    RewriteSettings,
    unknown_providers,
)

if TYPE_CHECKING:
    from holdfast.operate.doctor.finding import DoctorCheck as DoctorCheck
    from holdfast.operate.verify.check import Check
    from holdfast.telemetry.gauges import GaugeSet


class RewriteExtension(Extension):
    """Declares the complaint rewrite; :class:`Rewrites` is the object that applications enable."""

    name = "rewrite"
    component = Component("rewrite", "holdfast_rewrite", needs={"core": 19, "batch": 4})
    requires = ("batch",)
    settings = {"rewrite": RewriteSettings}
    runs = REWRITE_RUNS
    replaces_runs = {SUBMITTER: BATCH_SUBMITTER, COLLECTOR: BATCH_COLLECTOR}
    command_group = "Applications"
    commands = {"rewrite": "holdfast_rewrite.cli:rewrite"}
    api = "holdfast_rewrite.api:router"
    console = "holdfast_rewrite.console:PAGES"
    demo_acts = {"Rewrite": "holdfast_rewrite.demo:run"}

    def load(self) -> Extension:
        from holdfast_rewrite.rewrites import Rewrites

        return Rewrites()

    def state_statements(self) -> Sequence[StateStatement]:
        sql = Statements("holdfast_rewrite", "follow.sql")
        judges = frozenset({JUDGE_TYPE})
        ended = frozenset({"completed", "failed", "canceled"})
        return (
            StateStatement(frozenset({JOB_TYPE}), sql.follow_jobs),
            StateStatement(judges, sql.follow_judges, ended),
            StateStatement(judges, sql.hold_drafts, frozenset({"failed", "canceled"})),
        )

    def check_settings(self, settings: Settings) -> Sequence[str]:
        return unknown_providers(settings.rewrite, settings.providers)

    def provider_accounts(self, settings: Settings) -> set[tuple[str, str]]:
        section: RewriteSettings = settings.rewrite
        found = {(route.provider, route.adapter_kind) for route in section.routes}
        classifier = section.classifier_route
        if classifier.provider is not None and classifier.adapter_kind is not None:
            found.add((classifier.provider, classifier.adapter_kind))
        judge = section.judge_route
        if judge.provider is not None and judge.adapter_kind is not None:
            found.add((judge.provider, judge.adapter_kind))
        return found

    def verify_checks(self) -> Sequence[Check]:
        from holdfast_rewrite.verify import CHECKS

        return CHECKS

    def doctor_checks(self) -> Mapping[str, DoctorCheck]:
        from holdfast_rewrite.doctor import check_rewrites

        return {"rewrites": check_rewrites}

    def gauges(self) -> Sequence[GaugeSet]:
        from holdfast_rewrite.metrics import GAUGES

        return (GAUGES,)

    def metrics(self, registry: Any, labels: Any) -> Subscriber:
        from holdfast_rewrite.event import RewriteJudged, RewriteMoved
        from holdfast_rewrite.metrics import RewriteCounts

        return Only((RewriteJudged, RewriteMoved), RewriteCounts(registry, labels).count)
