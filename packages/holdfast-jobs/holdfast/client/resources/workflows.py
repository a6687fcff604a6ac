"""Methods about workflows. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast.client.calls.workflows import (
    WorkflowItem,
    WorkflowReplayed,
    WorkflowShown,
    cancel_workflow,
    get_workflow,
    list_workflows,
    replay_workflow,
    send_workflow_event,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Workflows:
    """The workflows that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WorkflowItem]:
        """List workflows, newest first."""
        return self._call(
            list_workflows(org_id=org_id, state=state, name=name, limit=limit, cursor=cursor)
        )

    def get(self, workflow_id: str) -> WorkflowShown:
        """Return one workflow with its steps."""
        return self._call(get_workflow(workflow_id))

    def cancel(self, workflow_id: str, *, reason: str) -> int:
        """Cancel a workflow: no further step starts, and its jobs are canceled."""
        return self._call(cancel_workflow(workflow_id, reason=reason))

    def replay(
        self, workflow_id: str, *, reason: str, step: str | NotGiven | None = NOT_GIVEN
    ) -> WorkflowReplayed:
        """Replay the failed jobs of a workflow. The steps that depend on them then go on."""
        return self._call(replay_workflow(workflow_id, step=step, reason=reason))

    def send_event(
        self,
        workflow_id: str,
        *,
        name: str,
        reason: str,
        payload: Any | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> bool:
        """Send an event to a workflow, for a job of it that waits."""
        return self._call(
            send_workflow_event(
                workflow_id,
                name=name,
                payload=payload,
                reason=reason,
                idempotency_key=idempotency_key,
            )
        )

    def every(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> Iterator[WorkflowItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(org_id=org_id, state=state, name=name, limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncWorkflows:
    """The workflows that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WorkflowItem]:
        """List workflows, newest first."""
        return await self._call(
            list_workflows(org_id=org_id, state=state, name=name, limit=limit, cursor=cursor)
        )

    async def get(self, workflow_id: str) -> WorkflowShown:
        """Return one workflow with its steps."""
        return await self._call(get_workflow(workflow_id))

    async def cancel(self, workflow_id: str, *, reason: str) -> int:
        """Cancel a workflow: no further step starts, and its jobs are canceled."""
        return await self._call(cancel_workflow(workflow_id, reason=reason))

    async def replay(
        self, workflow_id: str, *, reason: str, step: str | NotGiven | None = NOT_GIVEN
    ) -> WorkflowReplayed:
        """Replay the failed jobs of a workflow. The steps that depend on them then go on."""
        return await self._call(replay_workflow(workflow_id, step=step, reason=reason))

    async def send_event(
        self,
        workflow_id: str,
        *,
        name: str,
        reason: str,
        payload: Any | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> bool:
        """Send an event to a workflow, for a job of it that waits."""
        return await self._call(
            send_workflow_event(
                workflow_id,
                name=name,
                payload=payload,
                reason=reason,
                idempotency_key=idempotency_key,
            )
        )

    async def every(
        self,
        *,
        org_id: str | None = None,
        state: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[WorkflowItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                org_id=org_id, state=state, name=name, limit=limit, cursor=cursor
            )
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
