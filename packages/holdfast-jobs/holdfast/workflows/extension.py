"""The declaration of the workflows extension, without its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import WaitTimedOut
from holdfast.extension import Extension
from holdfast.store import Component, StateStatement
from holdfast.workflows.settings import WorkflowSettings

if TYPE_CHECKING:
    pass


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
            "workflow.cancel_requested",
            "workflow.enqueued",
            "workflow.replay_requested",
        }
    )

    def load(self) -> Extension:
        from holdfast.workflows.workflows import Workflows

        return Workflows()

    def state_statements(self) -> Sequence[StateStatement]:
        from holdfast.workflows.release import STATEMENTS

        return STATEMENTS
