"""Workflows for operators: list, show, explain, cancel, replay, and send events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.arguments import anything, checked, instance, text
from holdfast.engine.audit import record_action
from holdfast.errors import InvalidJob
from holdfast.ids import read_uuid
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_steps import Decision, Walk, take_steps
from holdfast.operate.dead_letter import DeadLetter, DeadLetterKind
from holdfast.operate.page import NEWEST, Page, check_limit, one_of, page_of, read_filter, read_id
from holdfast.operate.refusal import InvalidAction, StepRefused
from holdfast.operate.replay import Replays, make_replays
from holdfast.operate.short_ids import IdSpace
from holdfast.step import read_budget
from holdfast.store import Row, Tx
from holdfast.workflows.budget import to_pico
from holdfast.workflows.cancel import SQL, cancel_workflow
from holdfast.workflows.enqueue import SQL as WORKFLOW_SQL
from holdfast.workflows.handle import (
    StepState,
    WorkflowDetail,
    WorkflowNotFound,
    WorkflowRow,
    WorkflowState,
    WorkflowStep,
    read_workflow,
)

# Each replay has its own shared columns; see operate/bulk.py for the cost of a page.
REPLAY_PAGE = 50
_REPLAY = (Action.TRIAGE, Action.REMEDIATE, Action.VALIDATE, Action.REPLAY)


@dataclass(frozen=True, slots=True)
class WorkflowFilter:
    """Which workflows to list; None matches all."""

    org_id: str | None = None
    state: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class StepExplanation:
    """One step of a workflow, and what it waits for."""

    step: WorkflowStep
    line: str


@dataclass(frozen=True, slots=True)
class WorkflowExplanation:
    """The state of a workflow in one *line*, what has to happen *next*, and its steps."""

    workflow_id: str
    state: WorkflowState
    line: str
    next: str
    steps: tuple[StepExplanation, ...]


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """How many jobs are replayed, and how many could not be."""

    replayed: int
    refused: int


_FILTER = {"org_id": read_uuid, "state": one_of(*WorkflowState), "name": text}


@checked(
    InvalidAction,
    checks={
        "wanted": instance(WorkflowFilter),
        "workflow_id": text,
        "before": text,
        "payload": anything,
        # Checked by the methods, so that a refusal is audited.
        **dict.fromkeys(("reason", "step", "usd", "name", "key", "job_id"), anything),
    },
)
class OperatorWorkflows:
    """The workflows that *context* may see."""

    id_space: ClassVar[IdSpace] = IdSpace("workflow", SQL.find_workflows)

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: WorkflowFilter | None = None, *, limit: int = 50, before: str = NEWEST
    ) -> Page[WorkflowRow]:
        """Workflows, newest first."""
        asked = read_filter(wanted or WorkflowFilter(), _FILTER)
        tenant = self.context.tenant_for(Action.LOOK, asked.org_id, subject="workflows")
        rows = self.context.store.many(
            WORKFLOW_SQL.list_workflows,
            org_id=tenant,
            state=asked.state,
            name=asked.name,
            before=read_id("before", before),
            limit=check_limit(limit) + 1,
        )
        return page_of([WorkflowRow.from_row(row) for row in rows], limit, lambda one: one.id)

    def get(self, workflow_id: str) -> WorkflowDetail:
        """One workflow with its steps. Raises WorkflowNotFound."""
        return self._locate(Action.LOOK, workflow_id)

    def explain(self, workflow_id: str) -> WorkflowExplanation:
        """The state of a workflow, and what each step waits for."""
        return explain_workflow(self._locate(Action.LOOK, workflow_id))

    def cancel(self, workflow_id: str, *, reason: str) -> int:
        """Cancel a workflow; return how many jobs were canceled or asked to stop.

        No further step starts. Raises StepRefused if it has completed.
        """
        found, reason = self._admit(Action.CANCEL, workflow_id, reason)
        if found.state is WorkflowState.COMPLETED:
            raise StepRefused(f"Workflow {found.id} has completed. Nothing was done.")
        return cancel_workflow(
            self.context.app,  # type: ignore[arg-type]
            found,
            actor=self.context.actor,
            reason=reason,
            role=self.context.role,
        )

    def replay(self, workflow_id: str, *, reason: str, step: str | None = None) -> ReplayAnswer:
        """Replay the failed jobs of one step, or of all; their dependents then go on.

        Each job goes through the audited steps of its dead letter. Raises StepRefused if nothing
        could be replayed.
        """
        found, reason = self._admit(Action.REPLAY, workflow_id, reason)
        if found.state is WorkflowState.CANCELED:
            raise StepRefused(f"Workflow {found.id} was canceled and cannot be replayed.")
        step = None if step is None else _step_of(found, step)
        replayed = 0
        while made := self._replay_page(found, reason, step):
            replayed += made
        refused = len(self._failed(found, step))
        if not replayed:
            raise StepRefused(
                f"Workflow {found.id} has no failed job that can be replayed."
                if not refused
                else f"{refused} failed jobs of workflow {found.id} cannot be replayed. See"
                " holdfast dead-letters list."
            )
        return ReplayAnswer(replayed, refused)

    def set_budget(self, workflow_id: str, step: str, usd: str, *, reason: str) -> None:
        """Change the budget of a step, in US dollars. Replay its failed jobs afterwards."""
        found, reason = self._admit(Action.REPLAY, workflow_id, reason)
        step = _step_of(found, step)
        try:
            budget = read_budget(usd)
        except InvalidJob as exc:
            raise InvalidAction({"usd": exc.fields["budget"]}) from None

        def work(tx: Tx) -> None:
            key = {"org_id": found.org_id, "id": found.id, "step": step}
            tx.affected(WORKFLOW_SQL.set_budget, **key, budget_pico=to_pico(budget))
            detail = {"reason": reason, "step": step, "usd": str(budget), "role": self.context.role}
            record_action(
                tx,
                self.context.actor,
                subject=f"workflow:{found.id}",
                name="workflow.budget_changed",
                detail=detail,
                org_id=found.org_id,
            )

        self.context.store.write(work)

    def send_event(self, workflow_id: str, name: str, payload: Any = None, *, reason: str) -> bool:
        """Send an event to a workflow; return whether a job waited for it."""
        found, reason = self._admit(Action.SEND_EVENT, workflow_id, reason)
        sent: bool = self._extension.send_event(
            name,
            payload,
            workflow_id=found.id,
            org_id=found.org_id,
            actor=self.context.actor,
            reason=reason,
        )
        return sent

    # -- parts

    @property
    def _extension(self) -> Any:
        return self.context.app.extensions.get("workflows")

    def _admit(self, action: Action, workflow_id: str, reason: str) -> tuple[WorkflowDetail, str]:
        found = self._locate(action, workflow_id)
        subject = f"workflow:{found.id}"
        return found, admit(self.context, action, reason, org_id=found.org_id, subject=subject)

    def _locate(self, action: Action, workflow_id: str) -> WorkflowDetail:
        """Another tenant's workflow and an unknown id raise the same error."""
        try:
            wanted = read_uuid(workflow_id)
        except ValueError:
            raise WorkflowNotFound(workflow_id[:100]) from None
        found = self.context.store.read(lambda tx: read_workflow(tx, self.context.org_id, wanted))
        self.context.check(action, org_id=found.org_id, subject=f"workflow:{wanted}")
        return found

    def _failed(self, found: WorkflowDetail, step: str | None) -> Sequence[Row]:
        return self.context.store.many(
            SQL.list_failed, org_id=found.org_id, id=found.id, step=step, limit=1_000
        )

    def _replay_page(self, found: WorkflowDetail, reason: str, step: str | None) -> int:
        context, key = self.context, {"org_id": found.org_id, "id": found.id}
        why = f"replay of workflow {found.id}"
        walk = Walk(_REPLAY, Decision(why, DeadLetterKind.TRANSIENT))
        ids = context.ids.take(REPLAY_PAGE)

        def work(tx: Tx) -> Replays | None:
            tx.maybe(SQL.lock_workflow, **key)
            handlers = context.registry.handlers
            rows = tx.many(SQL.list_failed, **key, step=step, limit=REPLAY_PAGE)
            letters = [
                (letter, letter.standing)
                for letter in map(DeadLetter.from_row, rows)
                if walk.why_not(letter.standing, handlers.get(letter.job_type)) is None
            ]
            if not letters:
                return None
            _, ready = take_steps(tx, context, letters, walk, {})
            made = make_replays(
                tx, context, ready, ids=ids[: len(ready)], reason=why, full_restart=False
            )
            again = [{"org_id": row["org_id"], "job_id": row["job_id"]} for row in made.made]
            tx.affected(SQL.reopen_steps, letters=again)
            tx.affected(SQL.reopen_items, letters=again)
            tx.affected(SQL.reopen_workflow, **key)
            record_action(
                tx,
                context.actor,
                subject=f"workflow:{found.id}",
                name="workflow.replay_requested",
                detail={"reason": reason, "step": step, "jobs": len(again), "role": context.role},
                org_id=found.org_id,
            )
            return made

        replays = context.store.write(work)
        if replays is None:
            return 0
        replays.announce(context)
        return len(replays.made)


def _step_of(found: WorkflowDetail, step: object) -> str:
    if not isinstance(step, str) or step not in [one.name for one in found.steps]:
        raise InvalidAction({"step": f"is not a step of the workflow: {str(step)[:100]}"})
    return step


def explain_workflow(found: WorkflowDetail) -> WorkflowExplanation:
    """What a workflow and each of its steps wait for. Pure."""
    states = {step.name: step.state for step in found.steps}
    steps = tuple(StepExplanation(step, _line(step, states, found.state)) for step in found.steps)
    done = sum(step.state is StepState.COMPLETED for step in found.steps)
    line = f"Workflow {found.name} is {found.state}: {done} of {len(found.steps)} steps completed."
    match found.state:
        case WorkflowState.RUNNING:
            running = [step.name for step in found.steps if step.state is StepState.RUNNING]
            then = f"The jobs of {', '.join(running[:5]) or 'the first steps'} end."
        case WorkflowState.FAILED:
            then = f"Fix the cause, then: holdfast workflows replay {found.id} --reason TEXT"
        case _:
            then = "Nothing: it has ended."
    return WorkflowExplanation(found.id, found.state, line, then, steps)


def _line(step: WorkflowStep, states: dict[str, StepState], of: WorkflowState) -> str:
    jobs = "" if step.jobs == 1 else f" ({step.jobs - step.jobs_left} of {step.jobs} jobs ended)"
    match step.state:
        case StepState.WAITING:
            pending = [name for name in step.needs if states[name] is not StepState.COMPLETED]
            waits = ", ".join(f"{name} ({states[name]})" for name in pending)
            if of is not WorkflowState.RUNNING:
                return f"does not start: the workflow is {of}" + (
                    f"; it needs {waits}" if waits else ""
                )
            return f"waits for {waits}"
        case StepState.RUNNING:
            return f"runs as job {step.job_id}" if step.jobs == 1 else f"runs{jobs}"
        case StepState.FAILED:
            return f"failed: {step.jobs_failed} of {step.jobs} jobs; see holdfast dead-letters list"
        case _:
            return f"{step.state}{jobs if step.state is StepState.CANCELED else ''}"
