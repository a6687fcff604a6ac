"""Workflows over HTTP: list, show, cancel and replay them, and send events to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.page import NEWEST
from holdfast.workflows.handle import StepState, WorkflowState
from holdfast.workflows.operator import WorkflowFilter

router = Resource("workflows")


class WorkflowItem(Model):
    """A workflow without its steps."""

    id: str
    org_id: str
    name: str
    state: WorkflowState
    actor: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class WorkflowStepItem(Model):
    """One step of a workflow. A waiting step has no jobs yet."""

    name: str
    job_type: str
    state: StepState
    needs: list[str] = Field(description="The steps that it depends on.")
    on_failure: str
    is_mapped: bool
    jobs: int
    jobs_left: int
    jobs_failed: int
    job_id: str = Field(description="Its job; of a map, the first one.")
    budget_usd: str | None = Field(description="The maximum cost of its model calls.")
    released_at: datetime | None
    deadline_at: datetime | None
    ended_at: datetime | None


class WorkflowShown(WorkflowItem):
    """A workflow with its steps."""

    steps: list[WorkflowStepItem]


class WorkflowCanceled(Model):
    """The effect of a cancel."""

    jobs: int = Field(description="How many jobs were canceled or asked to stop.")


class WorkflowReplay(Body):
    """Which failed jobs to replay."""

    step: str | None = Field(
        default=None, max_length=100, description="Only those of this step; otherwise all."
    )
    reason: Reason


class WorkflowReplayed(Model):
    """The effect of a replay."""

    replayed: int
    refused: int


class NewEvent(Body):
    """An event to send to a workflow."""

    name: str = Field(min_length=1, max_length=100)
    payload: Any = None
    reason: Reason


class EventSent(Model):
    """Whether a job waited for the event. Otherwise the next one that waits receives it."""

    received: bool


@router.read("", operation_id="list_workflows")
def list_workflows(
    caller: CallerOf,
    org_id: NamedId | None = None,
    state: WorkflowState | None = None,
    name: str | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[WorkflowItem]:
    """List workflows, newest first."""
    pages = caller.pages("workflows", org_id=org_id, state=state, name=name)
    wanted = WorkflowFilter(org_id=org_id, state=state, name=name)
    found = _noun(caller).list(wanted, limit=limit, before=pages.start(cursor, NEWEST))
    return Listing[WorkflowItem].model_validate(pages.page(found, WorkflowItem.model_validate))


@router.read("/{workflow_id}", operation_id="get_workflow")
def get_workflow(workflow_id: str, caller: CallerOf) -> WorkflowShown:
    """Return one workflow with its steps."""
    return WorkflowShown.model_validate(_noun(caller).get(workflow_id))


@router.write("/{workflow_id}/cancel", operation_id="cancel_workflow")
def cancel_workflow(workflow_id: str, action: Action, caller: CallerOf) -> WorkflowCanceled:
    """Cancel a workflow: no further step starts, and its jobs are canceled."""
    return WorkflowCanceled(jobs=_noun(caller).cancel(workflow_id, reason=action.reason))


@router.write("/{workflow_id}/replay", operation_id="replay_workflow")
def replay_workflow(workflow_id: str, wanted: WorkflowReplay, caller: CallerOf) -> WorkflowReplayed:
    """Replay the failed jobs of a workflow. The steps that depend on them then go on."""
    done = _noun(caller).replay(workflow_id, step=wanted.step, reason=wanted.reason)
    return WorkflowReplayed.model_validate(done)


@router.write("/{workflow_id}/events", operation_id="send_workflow_event", status_code=201)
def send_workflow_event(workflow_id: str, event: NewEvent, caller: CallerOf) -> EventSent:
    """Send an event to a workflow, for a job of it that waits."""
    received = _noun(caller).send_event(workflow_id, event.name, event.payload, reason=event.reason)
    return EventSent(received=received)


def _noun(caller: Any) -> Any:
    return caller.operator.workflows
