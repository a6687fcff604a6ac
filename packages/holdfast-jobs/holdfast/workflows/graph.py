"""Workflow, chain, group and chord: build a graph of steps, and enqueue it in one transaction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.actor import SYSTEM, Actor
from holdfast.declared_job import DeclaredJob
from holdfast.errors import ConfigError, InvalidJob
from holdfast.step import OnFailure, Step, make_step

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.workflows.handle import EnqueuedWorkflow

R = TypeVar("R")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
MOST_STEPS = 10_000
AnyJob = DeclaredJob[..., ..., Any, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A named step with the names of the steps that it needs; *arguments* maps argument to step."""

    name: str
    step: Step[Any]
    needs: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]


class Workflow:
    """A graph of jobs. A step starts when all steps that it depends on have completed.

        workflow = Workflow("order")
        charge = workflow.add("charge", charge_card.step(order=7))
        workflow.add("ship", ship_order.step(order=7, receipt=charge.output))
        workflow.enqueue(org_id=ORG)

    Nothing is written before :meth:`enqueue`.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            raise InvalidJob({"name": "must be letters, digits, '_', '.' and '-', up to 100"})
        self.name = name
        self._nodes: dict[str, Node] = {}
        self._names: dict[Step[Any], str] = {}

    @property
    def nodes(self) -> Sequence[Node]:
        """The steps in the order in which they were added."""
        return tuple(self._nodes.values())

    def add(
        self,
        name: str,
        step: Step[R],
        *,
        deps: Iterable[Step[Any] | str] = (),
        on_failure: OnFailure | str | None = None,
        deadline: timedelta | float | None = None,
        budget: Decimal | float | str | None = None,
    ) -> Step[R]:
        """Add a step under a unique name, and return it for ``deps=`` and ``.output``.

        *deps* are steps, or their names, that must complete first. A step whose ``output`` is an
        argument is a dependency too. *on_failure* is ``fail``, ``continue`` or ``ignore``.
        *deadline* is the time after its start at which its unfinished jobs are canceled.
        *budget* is the maximum cost of its model calls in US dollars.
        """
        if not isinstance(step, Step):
            raise InvalidJob({"step": "must be made with job.step(…) or job.map(…)"})
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            raise InvalidJob({"name": "must be letters, digits, '_', '.' and '-', up to 100"})
        if name in self._nodes:
            raise InvalidJob({"name": f"{name!r} is taken by another step of {self.name!r}"})
        if len(self._nodes) >= MOST_STEPS:
            raise InvalidJob({"steps": f"are more than {MOST_STEPS}; use job.map(…)"})
        # A copy, so that one step can be added twice.
        added = replace(step, name=name).configure(
            on_failure=on_failure, deadline=deadline, budget=budget
        )
        arguments = tuple((key, self._find(one.of)) for key, one in step.outputs.items())
        named = (self._find(one) for one in (*step.deps, *deps))
        needs = dict.fromkeys((*named, *(needed for _, needed in arguments)))
        self._nodes[name] = Node(name, added, tuple(needs), arguments)
        self._names[added] = name
        # A step that is added once can be named as it was made.
        self._names.setdefault(step, name)
        return added

    def map(
        self,
        name: str,
        job: DeclaredJob[..., ..., Any, R],
        items: Iterable[Any],
        *,
        deps: Iterable[Step[Any] | str] = (),
        on_failure: OnFailure | str | None = None,
        deadline: timedelta | float | None = None,
        budget: Decimal | float | str | None = None,
    ) -> Step[list[R]]:
        """Add a step with one job for each item. A step that depends on it runs once, after all."""
        mapped = job.map(items)
        return self.add(
            name, mapped, deps=deps, on_failure=on_failure, deadline=deadline, budget=budget
        )

    def enqueue(
        self,
        *,
        org_id: str | None = None,
        conn: Any = None,
        key: str | None = None,
        project_id: str | None = None,
        actor: Actor | str = SYSTEM,
        correlation_id: str | None = None,
    ) -> EnqueuedWorkflow:
        """Store the workflow and enqueue its first steps, in one transaction.

        A known *key* returns the stored workflow, with ``created=False``. With *conn* the workflow
        is part of the caller's transaction.
        """
        return self._app.extensions.get("workflows").enqueue(  # type: ignore[no-any-return,attr-defined]
            self,
            org_id=org_id,
            conn=conn,
            key=key,
            project_id=project_id,
            actor=actor,
            correlation_id=correlation_id,
        )

    async def aenqueue(
        self,
        *,
        org_id: str | None = None,
        conn: Any = None,
        key: str | None = None,
        project_id: str | None = None,
        actor: Actor | str = SYSTEM,
        correlation_id: str | None = None,
    ) -> EnqueuedWorkflow:
        """The asynchronous form of :meth:`enqueue`. *conn* may be a connection that is awaited."""
        return await self._app.extensions.get("workflows").aenqueue(  # type: ignore[no-any-return,attr-defined]
            self,
            org_id=org_id,
            conn=conn,
            key=key,
            project_id=project_id,
            actor=actor,
            correlation_id=correlation_id,
        )

    @property
    def _app(self) -> Holdfast:
        apps = {id(node.step.job.holdfast): node.step.job.holdfast for node in self.nodes}
        if len(apps) != 1:
            raise ConfigError(
                f"The workflow {self.name!r} has no steps."
                if not apps
                else f"The steps of the workflow {self.name!r} belong to different applications."
            )
        return next(iter(apps.values()))

    def _find(self, step: Step[Any] | str) -> str:
        if isinstance(step, str):
            if step in self._nodes:
                return step
            raise InvalidJob({"deps": f"{step!r} is not a step that was added before"})
        found = self._names.get(step) if isinstance(step, Step) else None
        if found is None:
            raise InvalidJob(
                {"deps": "must be steps that Workflow.add or Workflow.map returned, or their names"}
            )
        return found


def chain(*steps: Step[Any] | AnyJob, name: str = "chain") -> Workflow:
    """A workflow whose steps run one after the other.

    A declared job without ``.step(…)`` takes the result of the step before it as its first
    argument.
    """
    workflow, last = Workflow(name), None
    for label, one in _labeled(steps):
        step = _continued(one, last)
        last = workflow.add(label, step, deps=() if last is None else (last,))
    return workflow


def group(steps: Iterable[Step[Any]], name: str = "group") -> Workflow:
    """A workflow whose steps run in parallel. Steps of one job type are one mapped step."""
    workflow = Workflow(name)
    _add_group(workflow, steps)
    return workflow


def chord(
    steps: Iterable[Step[Any]] | Step[Any], join: Step[Any] | AnyJob, name: str = "chord"
) -> Workflow:
    """A workflow whose *join* runs once, when all *steps* have completed.

    A declared job without ``.step(…)`` takes the list of their results as its first argument.
    """
    workflow = Workflow(name)
    header = _add_group(workflow, steps)
    if isinstance(join, DeclaredJob):
        if len(header) > 1:
            raise InvalidJob(
                {"join": "takes one list, and the steps are of several job types: pass"
                 " job.step(…) and read job.results"}
            )  # fmt: skip
        join = _continued(join, header[0])
    workflow.add("join", join, deps=header)
    return workflow


def _add_group(workflow: Workflow, steps: Iterable[Step[Any]] | Step[Any]) -> list[Step[Any]]:
    found = [steps] if isinstance(steps, Step) else list(steps)
    if not found or not all(isinstance(one, Step) for one in found):
        raise InvalidJob({"steps": "must be one or more steps made with job.step(…)"})
    if len(found) > 1 and _is_uniform(found):
        first = found[0]
        items = tuple(item for one in found for item in one.items)
        found = [replace(first, items=items, is_mapped=True)]
    names = [label for label, _ in _labeled(found)]
    return [workflow.add(label, one) for label, one in zip(names, found, strict=True)]


def _is_uniform(steps: Sequence[Step[Any]]) -> bool:
    """Whether the steps differ in nothing but their arguments."""
    first = steps[0]
    return all(
        one.job.job_type == first.job.job_type
        and one.job.options == first.job.options
        and (one.on_failure, one.deadline, one.budget)
        == (first.on_failure, first.deadline, first.budget)
        and not (one.name or one.deps or one.outputs or one.is_mapped)
        for one in steps
    )


def _continued(step: Step[Any] | AnyJob, last: Step[Any] | None) -> Step[Any]:
    if isinstance(step, Step):
        return step
    if not isinstance(step, DeclaredJob):
        raise InvalidJob({"steps": f"must be steps, not {type(step).__name__}"})
    names = list(step.signature.parameters)
    if last is None or not names:
        return make_step(step, (), {})
    if step.signature.payload is not None:
        raise InvalidJob(
            {
                step.signature.payload: "cannot be the result of the step before: the handler takes"
                " a whole payload. Pass it by name: job.step(name=step.output)"
            }
        )
    return make_step(step, (), {names[0]: last.output})


def _labeled(steps: Iterable[Step[Any] | AnyJob]) -> list[tuple[str, Step[Any] | AnyJob]]:
    """Steps with names: their own, or the last word of the job type, numbered if repeated."""
    found, used = [], Counter[str]()
    for one in steps:
        job = one.job if isinstance(one, Step) else one
        own = one.name if isinstance(one, Step) else None
        if not isinstance(job, DeclaredJob):
            raise InvalidJob({"steps": f"must be steps, not {type(one).__name__}"})
        label = own or job.job_type.rpartition(".")[2]
        used[label] += 1
        found.append((label if used[label] == 1 else f"{label}-{used[label]}", one))
    return found
