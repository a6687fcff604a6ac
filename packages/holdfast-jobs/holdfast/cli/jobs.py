"""holdfast jobs list|show|cancel|count"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast import State
from holdfast.cli.given import (
    app_of,
    id_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    print_table,
)
from holdfast.document import encode
from holdfast.operate.audit import AuditEvent
from holdfast.operate.jobs import JobFilter
from holdfast.operate.page import NEWEST

COLUMNS = ("id", "job_type", "state", "queue", "stage", "attempts", "created_at", "error_class")


@click.group()
def jobs() -> None:
    """Look at jobs, and stop one."""


@jobs.command("list")
@click.option("--org", "org_id", help="Only this tenant's.")
@click.option("--state", type=click.Choice([state.value for state in State]))
@click.option("--type", "job_type", help="Only this job type.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--before", default=NEWEST, help="Only jobs older than this id: the next page.")
@json_option
@click.pass_context
def list_jobs(
    ctx: click.Context,
    org_id: str | None,
    state: str | None,
    job_type: str | None,
    limit: int,
    before: str,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    before = id_of(before, "--before")
    org_id = None if org_id is None else id_of(org_id, "--org")
    wanted = JobFilter(org_id=org_id, state=state, job_type=job_type)
    with app_of(ctx, required=False) as hf:
        found = operator_of(hf).jobs.list(wanted, limit=limit, before=before)
    rows = [{**asdict(job), "attempts": f"{job.attempt_count}/{job.max_attempts}"} for job in found]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, COLUMNS)


@jobs.command()
@click.argument("job_id")
@json_option
@click.pass_context
def show(ctx: click.Context, job_id: str, as_json: bool) -> None:
    """Show one job with its timeline."""
    job_id = id_of(job_id, "JOB_ID")
    with app_of(ctx, required=False) as hf:
        job = operator_of(hf).jobs.get(job_id)
    if as_json:
        events = [_event(event) for event in job.events]
        notes = [asdict(note) for note in job.notes]
        print_json({**job.record, "events": events, "dead_letter": job.dead_letter, "notes": notes})
        return
    for name, value in job.record.items():
        if value not in (None, ""):
            click.echo(f"{name:18} {one_line(value)}")
    click.echo()
    print_table(
        [_event(event) for event in job.events], ("at", "name", "attempt", "actor_id", "detail")
    )
    for note in job.notes:
        said = f"{note.name} on {note.event_name} {note.event_id}: {encode(note.note)}"
        click.echo(f"note {one_line(said)}")
    letter = job.dead_letter
    if letter is not None:
        click.echo(f"\ndead letter: {letter['error_class']} at stage {one_line(letter['stage'])}")
        for line in letter["last_stack"].splitlines():
            click.echo(f"  {one_line(line)}")


@jobs.command()
@click.argument("job_id")
@click.option("--reason", required=True, help="Why; kept in the audit.")
@operator_options
@json_option
@click.pass_context
def cancel(
    ctx: click.Context,
    job_id: str,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Stop a job: at once if it waits, at its next step if it runs."""
    job_id = id_of(job_id, "JOB_ID")
    with app_of(ctx, required=False) as hf:
        answer = operator_of(hf, actor, role, org_id).jobs.cancel(job_id, reason=reason)
    if as_json:
        print_json({"job_id": job_id, "answer": answer})
    else:
        click.echo(f"{job_id}  {answer.replace('_', ' ')}")
    ctx.exit(1 if answer == "too_late" else 0)


@jobs.command()
@json_option
@click.pass_context
def count(ctx: click.Context, as_json: bool) -> None:
    """Count jobs by state and queue."""
    with app_of(ctx, required=False) as hf:
        rows = [asdict(count) for count in operator_of(hf).jobs.counts()]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("state", "queue", "jobs"))


def _event(event: AuditEvent) -> dict[str, Any]:
    """An event with the actor in two columns, as it is stored."""
    found: dict[str, Any] = {}
    for name in AuditEvent.__slots__:
        if name == "actor":
            found |= {"actor_type": event.actor.type, "actor_id": event.actor.id}
        else:
            found[name] = getattr(event, name)
    return found
