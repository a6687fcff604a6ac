"""Pages of the console: workflows, each with its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.console.visit import LONGEST_PAGE, ConsolePages, Go, Page, PageContext, Shown
from holdfast.operate.page import NEWEST, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.workflows.handle import WorkflowStep
from holdfast.workflows.operator import OperatorWorkflows, WorkflowFilter

# The size of a box of the graph, and the distance between two.
WIDTH, HEIGHT, GAP_X, GAP_Y = 200, 44, 60, 20
MOST_DRAWN = 200


@dataclass(frozen=True, slots=True)
class Box:
    """A step at its place in the graph."""

    step: WorkflowStep
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The boxes of a workflow and the lines between them."""

    boxes: Sequence[Box]
    lines: Sequence[tuple[int, int, int, int]]
    width: int
    height: int


def draw(steps: Sequence[WorkflowStep]) -> Graph | None:
    """Each step one column after the last step that it needs. None for large graphs."""
    if len(steps) > MOST_DRAWN:
        return None
    column: dict[str, int] = {}
    rows: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    # Steps are stored after the steps that they need.
    for step in steps:
        column[step.name] = place = max((column[name] + 1 for name in step.needs), default=0)
        row = rows[place] = rows.get(place, -1) + 1
        boxes[step.name] = Box(step, place * (WIDTH + GAP_X) + 1, row * (HEIGHT + GAP_Y) + 1)
    lines = [
        (start.x + WIDTH, start.y + HEIGHT // 2, box.x, box.y + HEIGHT // 2)
        for box in boxes.values()
        for start in (boxes[name] for name in box.step.needs)
    ]
    return Graph(
        list(boxes.values()),
        lines,
        max((box.x for box in boxes.values()), default=0) + WIDTH + 1,
        max((box.y for box in boxes.values()), default=0) + HEIGHT + 1,
    )


def list_workflows(visit: PageContext) -> Shown:
    """Workflows, newest first."""
    kept, before = visit.kept("state", "name"), visit.maybe("before")
    found = _noun(visit).list(
        WorkflowFilter(state=kept.get("state"), name=kept.get("name")),
        limit=LONGEST_PAGE,
        before=NEWEST if before is None else read_id("before", before),
    )
    values = {"workflows": found, "kept": kept, "first": before is None}
    return Shown("workflows.html", "Workflows", values)


def show_workflow(visit: PageContext) -> Shown:
    """One workflow: its graph, its steps and what each of them waits for."""
    noun, workflow_id = _noun(visit), visit.path["workflow_id"]
    found, told = noun.get(workflow_id), noun.explain(workflow_id)
    values = {"workflow": found, "told": told, "graph": draw(found.steps), "box": (WIDTH, HEIGHT)}
    return Shown("workflow.html", found.name, values)


def act_on_workflow(visit: PageContext) -> Go:
    """Cancel or replay a workflow."""
    workflow_id, verb = visit.path["workflow_id"], visit.path["verb"]
    noun, reason = _noun(visit), visit.text("reason")
    here = f"/workflows/{workflow_id}"
    match verb:
        case "cancel":
            jobs = noun.cancel(workflow_id, reason=reason)
            return Go(here, f"The workflow is canceled. Jobs canceled or asked to stop: {jobs}.")
        case "replay":
            done = noun.replay(workflow_id, reason=reason)
            return Go(here, f"Jobs replayed: {done.replayed}.")
        case _:
            raise InvalidAction({"verb": "must be cancel or replay"})


def _noun(visit: PageContext) -> OperatorWorkflows:
    operator: Any = visit.operator
    found: OperatorWorkflows = operator.workflows
    return found


PAGES = ConsolePages(
    pages=(
        Page("/workflows", list_workflows, title="Workflows", group="Work"),
        Page("/workflows/{workflow_id}", show_workflow),
        Page("/workflows/{workflow_id}/{verb}", act_on_workflow, "POST"),
    ),
    package="holdfast.workflows",
)
