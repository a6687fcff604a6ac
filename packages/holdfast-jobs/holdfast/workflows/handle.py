"""The handle of an enqueued workflow, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast.clock import read_instant
from holdfast.document import decode, encode
from holdfast.errors import HoldfastError, NotFound
from holdfast.store import Row, Store, Tx
from holdfast.workflows.budget import to_usd
from holdfast.workflows.enqueue import SQL

if TYPE_CHECKING:
    from holdfast.workflows.workflows import Workflows


class WorkflowState(StrEnum):
    """The state of a workflow."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class StepState(StrEnum):
    """The state of a step. A waiting step has no jobs yet."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class WorkflowNotFound(NotFound):
    """There is no such workflow, or it belongs to another tenant. Check the id."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"There is no workflow {workflow_id}.")
        self.workflow_id = workflow_id


class WorkflowFailed(HoldfastError):
    """The awaited workflow failed or was canceled and has no result. `steps` are the failed steps.
    Replay them with `holdfast workflows replay`."""

    def __init__(self, workflow: WorkflowDetail) -> None:
        self.workflow_id, self.state = workflow.id, workflow.state
        self.steps = tuple(step.name for step in workflow.steps if step.state is StepState.FAILED)
        failed = f": failed steps {', '.join(self.steps)}" if self.steps else ""
        word = "was canceled" if workflow.state is WorkflowState.CANCELED else "failed"
        super().__init__(f"Workflow {workflow.id} ({workflow.name}) {word}{failed}")


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """One step of a stored workflow. *needs* are the steps that it depends on."""

    name: str
    job_type: str
    state: StepState
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
class WorkflowRow:
    """A stored workflow without its steps."""

    id: str
    org_id: str
    name: str
    state: WorkflowState
    actor: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> WorkflowRow:
        return cls(**_columns(row))


@dataclass(frozen=True, slots=True)
class WorkflowDetail(WorkflowRow):
    """A stored workflow with its steps."""

    steps: tuple[WorkflowStep, ...] = field(default=())


def _columns(row: Row) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "org_id": str(row["org_id"]),
        "name": row["name"],
        "state": WorkflowState(row["state"]),
        "actor": f"{row['actor_type']}:{row['actor_id']}",
        "created_at": read_instant(row["created_at"]),
        "updated_at": read_instant(row["updated_at"]),
        "ended_at": _instant(row["ended_at"]),
    }


def read_workflow(tx: Tx, org_id: str | None, workflow_id: str) -> WorkflowDetail:
    """A workflow with its steps. Raises WorkflowNotFound."""
    row = tx.maybe(SQL.find_workflow, org_id=org_id, id=workflow_id)
    if row is None:
        raise WorkflowNotFound(workflow_id)
    key = {"org_id": row["org_id"], "id": workflow_id}
    needs: dict[str, list[str]] = {}
    for edge in tx.many(SQL.list_edges, **key):
        needs.setdefault(edge["step"], []).append(edge["needs"])
    steps = tuple(
        WorkflowStep(
            found["step"],
            found["job_type"],
            StepState("running" if found["state"] == "released" else found["state"]),
            tuple(needs.get(found["step"], ())),
            found["on_failure"],
            bool(found["is_mapped"]),
            found["item_count"],
            found["items_left"],
            found["items_failed"],
            str(found["job_id"]),
            None if found["budget_pico"] is None else to_usd(int(found["budget_pico"])),
            _instant(found["released_at"]),
            _instant(found["deadline_at"]),
            _instant(found["ended_at"]),
        )
        for found in tx.many(SQL.list_steps, **key)
    )
    return WorkflowDetail(**_columns(row), steps=steps)


def find_workflow(store: Store, org_id: str, workflow_id: str) -> WorkflowDetail:
    """A workflow of one tenant. Raises WorkflowNotFound."""
    return store.read(lambda tx: read_workflow(tx, org_id, workflow_id))


def read_results(tx: Tx, org_id: str, workflow_id: str, steps: Sequence[Row]) -> dict[str, Any]:
    """Results by step: a value, or for a mapped step a list. A failed job has the result None."""
    key = {"org_id": org_id, "id": workflow_id}
    texts: dict[str, list[str]] = {row["step"]: [] for row in steps}
    named = [{"step": row["step"]} for row in steps]
    for row in tx.many(SQL.list_results, **key, steps=named) if named else ():
        texts[row["step"]].append(_text(row["result"]))
    # Decoded at once: 10,000 small documents take several times as long.
    found = {step: decode(f"[{','.join(some)}]") for step, some in texts.items()}
    return {
        row["step"]: found[row["step"]] if row["is_mapped"] else found[row["step"]][0]
        for row in steps
    }


def _text(result: Any) -> str:
    if result is None:
        return "null"
    return result if isinstance(result, str) else encode(result)


@dataclass(frozen=True, slots=True)
class EnqueuedWorkflow:
    """The handle of an enqueued workflow. ``created`` is False if its key was known.

    ``handle.result(timeout=10)`` or ``await handle`` wait for the result: that of the last step, or
    a dict of results if several steps are last.
    """

    id: str
    org_id: str
    name: str
    created: bool
    job_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The ids of the jobs of each step; empty if the workflow already existed."""
    workflows: Workflows | None = field(default=None, repr=False, compare=False)

    def get(self) -> WorkflowDetail:
        """The workflow as it is now, with its steps."""
        return self._noun.get(self.id, org_id=self.org_id)

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the workflow has ended and return its result.

        Raises TimeoutError after *timeout* seconds, and WorkflowFailed for a failed or canceled
        workflow. In a handler, waiting occupies a thread of the worker.
        """
        future = self._noun.waiter.wait_for(self.org_id, self.id)
        try:
            ended = future.result(timeout)
        except TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(
                    f"Workflow {self.id} has not ended within {timeout:g} s."
                ) from None
            raise
        return self._noun.result_of(ended)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the result without blocking the event loop."""
        return self._wait().__await__()

    async def _wait(self) -> Any:
        future = self._noun.waiter.wait_for(self.org_id, self.id)
        ended = await asyncio.wrap_future(future)
        return await asyncio.to_thread(self._noun.result_of, ended)

    def cancel(self, *, reason: str = "") -> int:
        """Cancel the workflow; return how many jobs were canceled or asked to stop."""
        return self._noun.cancel(self.id, org_id=self.org_id, reason=reason)

    @property
    def _noun(self) -> Workflows:
        assert self.workflows is not None
        return self.workflows


def _instant(value: Any) -> datetime | None:
    return None if value is None else read_instant(value)
