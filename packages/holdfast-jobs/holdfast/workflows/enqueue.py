"""The rows of a workflow, and the statements that write all of them in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from holdfast.actor import Actor
from holdfast.clock import ms, read_instant
from holdfast.document import encode
from holdfast.engine.audit import Deed, actions_step
from holdfast.engine.due import with_due_time
from holdfast.engine.enqueue import Enqueued, borrowed_steps, insert_steps
from holdfast.engine.request import InsertRows, Options, scope_of
from holdfast.engine.state_hook import STEP_KEY
from holdfast.errors import InvalidJob, StoreBusy
from holdfast.store import Statements
from holdfast.store.caller_connection import Steps
from holdfast.store.dialect import Dialect
from holdfast.workflows.budget import to_pico
from holdfast.workflows.graph import Node, Workflow

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SQL = Statements("holdfast.workflows", "workflow.sql")

# Options that belong to the whole workflow, and options that a step does not have.
_OF_WORKFLOW = ("key", "idempotency_key", "conn", "org_id", "project_id", "unit_key")
_OF_JOBS = (
    *("unique_key", "unique", "replace", "debounce", "debounce_limit"),
    *("deadline", "expires_in", "scheduled_for"),
)


@dataclass(frozen=True, slots=True)
class WorkflowRows:
    """The rows of a workflow. *first* are the jobs that are enqueued at once."""

    workflow: dict[str, Any]
    steps: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    items: list[dict[str, Any]]
    first: InsertRows
    actor: Actor

    @property
    def id(self) -> str:
        found: str = self.workflow["id"]
        return found


@dataclass(frozen=True, slots=True)
class Stored:
    """A workflow in the store, and the jobs that its enqueue created."""

    id: str
    created: bool
    created_at: datetime | None = None
    enqueued: Sequence[Enqueued] = ()


def make_rows(
    app: Holdfast,
    workflow: Workflow,
    *,
    org_id: str,
    key: str | None,
    project_id: str | None,
    actor: Actor,
    correlation_id: str | None,
) -> WorkflowRows:
    """Validate every job of the workflow. Raises InvalidJob with the name of the step."""
    workflow_id = app.ids.new()
    made = WorkflowRows(
        {
            "org_id": org_id,
            "id": workflow_id,
            "project_id": project_id,
            "name": workflow.name,
            "workflow_key": key if key is not None else workflow_id,
            "actor_type": actor.type,
            "actor_id": actor.id,
        },
        [],
        [],
        [],
        InsertRows(),
        actor,
    )
    shared = {
        "org_id": org_id,
        "project_id": project_id,
        "actor": actor,
        "correlation_id": correlation_id or workflow_id,
    }
    for place, node in enumerate(workflow.nodes):
        try:
            _add_node(app, made, node, place, shared)
        except InvalidJob as exc:
            raise InvalidJob(
                {f"{node.name}.{name}": says for name, says in exc.fields.items()}
            ) from exc
    return made


def _add_node(
    app: Holdfast, made: WorkflowRows, node: Node, place: int, shared: dict[str, Any]
) -> None:
    step, job = node.step, node.step.job
    own, delay_ms = _options(app, node)
    given = {**shared, **own}
    ids = app.ids.take(len(step.items))
    org_id, options = given.pop("org_id"), cast(Options, given)
    batch = app._chunks(job.job_type, step.items, org_id, options, ids=ids, trusted=True)[0]()
    frame = batch.shared[0]
    made.workflow.update({name: frame[name] for name in ("org_id", "project_id")})
    key = {"org_id": frame["org_id"], "workflow_id": made.id, "step": node.name}
    scope = scope_of(job.job_type, frame["org_id"], frame["project_id"])
    for number, row in enumerate(batch.jobs):
        # One job per place of a step: the key makes the database refuse a second one.
        row["idempotency_key"] = f"{scope[:-1]}{STEP_KEY}{made.id}/{place}/{number}"
        made.items.append(
            {
                **key,
                "job_id": row["id"],
                "place": number,
                "idempotency_key": row["idempotency_key"],
                "payload": row["payload"] if node.needs else None,
                "payload_hash": row["payload_hash"],
                "turn": row["turn"],
            }
        )
    made.steps.append(
        {
            **key,
            "place": place,
            "job_type": job.job_type,
            "is_mapped": int(step.is_mapped),
            "on_failure": step.on_failure,
            "request": encode(frame),
            "delay_ms": delay_ms,
            "deadline_ms": None if step.deadline is None else ms(step.deadline),
            "budget_pico": _budget(app, node),
            "state": "waiting" if node.needs else "running",
            "item_count": len(step.items),
        }
    )
    made.edges.extend({**key, **edge} for edge in _edges(node))
    if not node.needs:
        offset = len(made.first.shared)
        for mine, rows in ((made.first.shared, batch.shared), (made.first.jobs, batch.jobs)):
            mine.extend({**one, "frame": one["frame"] + offset} for one in rows)


def _budget(app: Holdfast, node: Node) -> int | None:
    """The budget of a step as it is stored. Raises InvalidJob if no extension enforces budgets."""
    budget = node.step.budget
    if budget is not None and not any(one.enforces_budgets for one in app.extensions.available()):
        raise InvalidJob(
            {
                "budget": "is enforced by an extension that records what model calls cost, and none"
                " is installed: pip install holdfast-llm"
            }
        )
    return None if budget is None else to_pico(budget)


def _options(app: Holdfast, node: Node) -> tuple[dict[str, Any], int | None]:
    """The options of the jobs of a step, and the delay after its release. Raises InvalidJob."""
    job = node.step.job
    options: dict[str, Any] = dict(job.options)
    if strange := [name for name in _OF_WORKFLOW if options.pop(name, None) is not None]:
        raise InvalidJob(dict.fromkeys(strange, "is an option of the workflow, not of a step"))
    if strange := [name for name in _OF_JOBS if options.get(name)]:
        raise InvalidJob(
            dict.fromkeys(strange, "is not for steps; Workflow.add takes deadline= for a step")
        )
    if app.registry.get(job.job_type).producer is not None:
        raise InvalidJob({"job_type": f"{job.job_type} is enqueued by its producer only"})
    if not node.needs or options.get("delay") is None:
        return options, None
    now = app.clock.now()
    due = with_due_time({"delay": options.pop("delay")}, now)["not_before_at"]
    return options, ms(due - now)


def _edges(node: Node) -> list[dict[str, str]]:
    """The dependencies of a step, with the arguments that are results."""
    pairs = {(needed, argument) for argument, needed in node.arguments}
    given = {needed for needed, _ in pairs}
    pairs |= {(needed, "") for needed in node.needs if needed not in given}
    return [{"needs": needed, "argument": argument} for needed, argument in sorted(pairs)]


def store_steps(rows: WorkflowRows, dialect: Dialect, *, is_borrowed: bool) -> Steps[Stored]:
    """Write the workflow with its first jobs, or find the one that has its key."""
    found = yield SQL.insert_workflow, {"made": [rows.workflow]}
    if not found:
        old = yield SQL.find_by_key, _key(rows)
        if not old:
            raise StoreBusy("The workflow with this key has just been deleted. Try again.")
        # The same id: an earlier attempt was committed and only its reply was lost.
        existing = str(old[0]["id"])
        return Stored(existing, existing == rows.id, read_instant(old[0]["created_at"]))
    yield SQL.insert_steps, {"made": rows.steps}
    if rows.edges:
        yield SQL.insert_edges, {"made": rows.edges}
    yield SQL.insert_items, {"made": rows.items}
    enqueued = yield from (
        borrowed_steps(rows.first, dialect) if is_borrowed else insert_steps(rows.first)
    )
    deed = Deed(
        rows.actor,
        rows.workflow["org_id"],
        f"workflow:{rows.id}",
        "workflow.enqueued",
        {"name": rows.workflow["name"], "steps": len(rows.steps), "jobs": len(rows.items)},
        project_id=rows.workflow["project_id"],
    )
    yield actions_step([deed])
    return Stored(rows.id, True, None, enqueued)


def _key(rows: WorkflowRows) -> dict[str, Any]:
    return {
        "org_id": rows.workflow["org_id"],
        "workflow_key": rows.workflow["workflow_key"],
    }
