"""holdfast workflows list|show|cancel|replay|budget, holdfast events send"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.given import (
    app_of,
    id_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_fields,
    print_json,
    print_table,
    short_id_argument,
)
from holdfast.document import decode
from holdfast.operate.page import NEWEST
from holdfast.workflows.handle import WorkflowState
from holdfast.workflows.operator import OperatorWorkflows, WorkflowExplanation, WorkflowFilter

COLUMNS = ("id", "name", "state", "created_at", "ended_at", "org_id", "actor")
STEP_COLUMNS = (
    "name",
    "state",
    "job_type",
    "needs",
    "jobs",
    "jobs_left",
    "jobs_failed",
    "budget_usd",
    "job_id",
)
reason_option = click.option("--reason", required=True, help="Why; it is kept in the audit.")


@click.group()
def workflows() -> None:
    """List, inspect, cancel and replay workflows."""


@workflows.command("list")
@click.option(
    "--state", type=click.Choice([state.value for state in WorkflowState]), help="Only this state."
)
@click.option("--name", help="Only workflows with this name.")
@click.option("--limit", default=50, show_default=True, help="Maximum number of rows.")
@click.option("--before", default=NEWEST, help="Only workflows older than this id.")
@operator_options
@json_option
@click.pass_context
def list_workflows(
    ctx: click.Context,
    state: str | None,
    name: str | None,
    limit: int,
    before: str,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """List workflows, newest first."""
    wanted = WorkflowFilter(org_id=org_id, state=state, name=name)
    with app_of(ctx, required=False) as hf:
        noun = _noun(hf, actor, role, org_id)
        found = noun.list(wanted, limit=limit, before=id_of(before, "--before"))
    lines = [asdict(one) for one in found]
    if as_json:
        print_json(lines)
    else:
        print_table(
            lines,
            COLUMNS,
            empty="No workflows. Enqueue one: chain(…).enqueue(), or another Workflow",
        )


@workflows.command()
@short_id_argument("workflow_id", "workflows")
@operator_options
@json_option
@click.pass_context
def show(
    ctx: click.Context, workflow_id: str, actor: str, role: str, org_id: str | None, as_json: bool
) -> None:
    """Show a workflow with its steps, and what each of them waits for."""
    with app_of(ctx, required=False) as hf:
        noun = _noun(hf, actor, role, org_id)
        found, told = noun.get(workflow_id), noun.explain(workflow_id)
    if as_json:
        print_json(asdict(found))
        return
    document = asdict(found)
    document.pop("steps")
    print_fields(document)
    print_table([asdict(step) for step in found.steps], STEP_COLUMNS)
    print_explanation(told)


@workflows.command()
@short_id_argument("workflow_id", "workflows")
@reason_option
@operator_options
@click.pass_context
def cancel(
    ctx: click.Context, workflow_id: str, reason: str, actor: str, role: str, org_id: str | None
) -> None:
    """Cancel a workflow and its jobs.

    No further step starts.
    """
    with app_of(ctx, required=False) as hf:
        canceled = _noun(hf, actor, role, org_id).cancel(workflow_id, reason=reason)
    click.echo(f"The workflow is canceled. Jobs canceled or asked to stop: {canceled}")


@workflows.command()
@short_id_argument("workflow_id", "workflows")
@click.option("--step", help="Only the failed jobs of this step.")
@reason_option
@operator_options
@click.pass_context
def replay(
    ctx: click.Context,
    workflow_id: str,
    step: str | None,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Replay the failed jobs of a workflow. The steps that depend on them then go on."""
    with app_of(ctx, required=False) as hf:
        done = _noun(hf, actor, role, org_id).replay(workflow_id, step=step, reason=reason)
    click.echo(f"Jobs replayed: {done.replayed}")
    if done.refused:
        click.echo(f"Jobs that cannot be replayed: {done.refused}; see holdfast dead-letters list")


@workflows.command()
@short_id_argument("workflow_id", "workflows")
@click.argument("step")
@click.argument("usd")
@reason_option
@operator_options
@click.pass_context
def budget(
    ctx: click.Context,
    workflow_id: str,
    step: str,
    usd: str,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Change the budget of a STEP to USD dollars.

    Then replay the jobs that failed because of it: holdfast workflows replay.
    """
    with app_of(ctx, required=False) as hf:
        _noun(hf, actor, role, org_id).set_budget(workflow_id, step, usd, reason=reason)
    click.echo(f"The budget of {step} is {usd} USD.")


@click.group()
def events() -> None:
    """Send events to jobs and workflows that wait for them."""


@events.command()
@click.argument("name")
@click.argument("payload", default="null")
@click.option("--job", "job_id", help="The job that waits for it.")
@click.option("--workflow", "workflow_id", help="The workflow that waits for it.")
@click.option("--key", help="The key that a job waits for.")
@click.option("--org", "org_id", help="The tenant of the job, the workflow or the key.")
@click.option("--actor", default="user:cli", show_default=True, help="Recorded in the audit.")
@click.pass_context
def send(
    ctx: click.Context,
    name: str,
    payload: str,
    job_id: str | None,
    workflow_id: str | None,
    key: str | None,
    org_id: str | None,
    actor: str,
) -> None:
    """Send an event with a PAYLOAD in JSON to a job, a workflow or a key."""
    try:
        document = decode(payload)
    except ValueError:
        raise click.BadParameter("it must be JSON", param_hint="PAYLOAD") from None
    with app_of(ctx, required=False) as hf:
        if org_id is None and job_id is not None:
            org_id = operator_of(hf).jobs.get(job_id).org_id
        if org_id is None and workflow_id is not None:
            org_id = operator_of(hf).workflows.get(workflow_id).org_id
        is_received = hf.send_event(
            name,
            document,
            job_id=job_id,
            workflow_id=workflow_id,
            key=key,
            org_id=org_id,
            actor=actor,
        )
    click.echo("A waiting job received it." if is_received else "Stored until a job waits for it.")


def print_explanation(told: WorkflowExplanation) -> None:
    """Print the state of a workflow, and a line for each step."""
    click.echo(one_line(told.line))
    width = max((len(one.step.name) for one in told.steps), default=0)
    for one in told.steps:
        after = f"  after {', '.join(one.step.needs)}" if one.step.needs else ""
        click.echo(one_line(f"  {one.step.name:<{width}}  {one.line}{after}"))
    click.echo(one_line(f"Next: {told.next}"))


def _noun(hf: Any, actor: str, role: str, org_id: str | None) -> OperatorWorkflows:
    found: OperatorWorkflows = operator_of(hf, actor, role, org_id).workflows
    return found
