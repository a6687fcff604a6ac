"""Calls about workflows. Written by tools/client_code.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.client.models import read
from holdfast.client.operations import (
    NOT_GIVEN,
    Call,
    NotGiven,
    Page,
    given,
    new_key,
    read_page,
)


@dataclass(frozen=True, slots=True)
class WorkflowItem:
    """A workflow without its steps."""

    id: str
    org_id: str
    name: str
    state: str
    actor: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowShown:
    """A workflow with its steps."""

    id: str
    org_id: str
    name: str
    state: str
    actor: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    steps: tuple[WorkflowStepItem, ...]


@dataclass(frozen=True, slots=True)
class WorkflowStepItem:
    """One step of a workflow. A waiting step has no jobs yet."""

    name: str
    job_type: str
    state: str
    needs: tuple[str, ...]
    on_failure: str
    is_mapped: bool
    jobs: int
    jobs_left: int
    jobs_failed: int
    job_id: str
    budget_usd: str | None
    released_at: datetime | None
    deadline_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowReplayed:
    """The effect of a replay."""

    replayed: int
    refused: int


def list_workflows(
    *,
    org_id: str | None = None,
    state: str | None = None,
    name: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[WorkflowItem]]:
    """List workflows, newest first."""
    return Call(
        "list_workflows",
        "GET",
        "/v1/workflows",
        lambda found: read_page(WorkflowItem, found),
        query={"org_id": org_id, "state": state, "name": name, "limit": limit, "cursor": cursor},
    )


def get_workflow(workflow_id: str) -> Call[WorkflowShown]:
    """Return one workflow with its steps."""
    return Call(
        "get_workflow",
        "GET",
        "/v1/workflows/{workflow_id}",
        lambda found: read(WorkflowShown, found),
        names={"workflow_id": workflow_id},
    )


def cancel_workflow(workflow_id: str, *, reason: str) -> Call[int]:
    """Cancel a workflow: no further step starts, and its jobs are canceled."""
    return Call(
        "cancel_workflow",
        "POST",
        "/v1/workflows/{workflow_id}/cancel",
        lambda found: int(found["jobs"]),
        names={"workflow_id": workflow_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def replay_workflow(
    workflow_id: str, *, reason: str, step: str | NotGiven | None = NOT_GIVEN
) -> Call[WorkflowReplayed]:
    """Replay the failed jobs of a workflow. The steps that depend on them then go on."""
    return Call(
        "replay_workflow",
        "POST",
        "/v1/workflows/{workflow_id}/replay",
        lambda found: read(WorkflowReplayed, found),
        names={"workflow_id": workflow_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"step": step, "reason": reason}),
    )


def send_workflow_event(
    workflow_id: str,
    *,
    name: str,
    reason: str,
    payload: Any | NotGiven = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[bool]:
    """Send an event to a workflow, for a job of it that waits."""
    return Call(
        "send_workflow_event",
        "POST",
        "/v1/workflows/{workflow_id}/events",
        lambda found: bool(found["received"]),
        names={"workflow_id": workflow_id},
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given({"name": name, "payload": payload, "reason": reason}),
    )
