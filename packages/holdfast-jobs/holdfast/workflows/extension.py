"""The declaration of the workflows extension, without its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.extension import Extension
from holdfast.store import Component, StateStatement, Tx
from holdfast.workflows.failure import WaitTimedOut
from holdfast.workflows.settings import WorkflowSettings

if TYPE_CHECKING:
    from holdfast.operate.explanation import ExtensionReasons, Situation
    from holdfast.operate.verify.check import Check


class WorkflowsExtension(Extension):
    """Declares workflows; :class:`~holdfast.workflows.workflows.Workflows` implements them."""

    name = "workflows"
    is_default = True
    component = Component("workflows", "holdfast.workflows", needs={"core": 19})
    settings = {"workflows": WorkflowSettings}
    error_classes = (WaitTimedOut,)
    audit_events = frozenset(
        {
            "event.sent",
            "workflow.budget_changed",
            "workflow.cancel_requested",
            "workflow.enqueued",
            "workflow.replay_requested",
        }
    )

    command_group = "Operations"
    commands = {
        "workflows": "holdfast.workflows.commands:workflows",
        "events": "holdfast.workflows.commands:events",
    }
    api = "holdfast.workflows.api:router"
    console = "holdfast.workflows.console:PAGES"
    nouns = {"workflows": "holdfast.workflows.operator:OperatorWorkflows"}

    def load(self) -> Extension:
        from holdfast.workflows.workflows import Workflows

        return Workflows()

    def state_statements(self) -> Sequence[StateStatement]:
        from holdfast.workflows.release import STATEMENTS

        return STATEMENTS

    def verify_checks(self) -> Sequence[Check]:
        from holdfast.workflows.verify import CHECKS

        return CHECKS

    def explain(self, tx: Tx, situation: Situation) -> ExtensionReasons | None:
        from holdfast.workflows.explain import explain_wait

        return explain_wait(tx, situation)
