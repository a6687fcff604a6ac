"""holdfast jobs list|show|cancel|count"""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.given import (
    app_of,
    desk_of,
    json_option,
    one_line,
    print_json,
    print_table,
    watch_options,
)
from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.engine.duty import SQL as DUTY_SQL
from holdfast.engine.job import Job, State
from holdfast.errors import JobNotFound
from holdfast.holdfast import SQL, Holdfast
from holdfast.ids import read_uuid
from holdfast.operate.cancel import cancel_job
from holdfast.store import Row

NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
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
    params: dict[str, Any] = {
        "state": state,
        "job_type": job_type,
        "limit": limit,
        "before": _id(before, "--before"),
    }
    statement = SQL.list_all_jobs
    if org_id is not None:
        statement = SQL.list_jobs
        params["org_id"] = _id(org_id, "--org")
    with app_of(ctx, required=False) as hf:
        rows = [dict(row) for row in hf.store.read(lambda tx: tx.many(statement, **params))]
    for row in rows:
        row["attempts"] = f"{row['attempt_count']}/{row['max_attempts']}"
        for name in ("created_at", "updated_at", "finished_at", "not_before_at"):
            row[name] = None if row[name] is None else read_instant(row[name])
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
    job_id = _id(job_id, "JOB_ID")
    with app_of(ctx, required=False) as hf:
        org_id = _org_of(hf, job_id)
        job = hf.get(job_id, org_id=org_id)
        events = hf.store.read(lambda tx: tx.many(SQL.list_events, org_id=org_id, job_id=job_id))
        letter = hf.store.read(
            lambda tx: tx.maybe(SQL.find_dead_letter, org_id=org_id, job_id=job_id)
        )
        notes = hf.store.read(
            lambda tx: tx.many(DUTY_SQL.list_notes, org_id=org_id, subject_id=job_id)
        )
    if as_json:
        dead = (
            None
            if letter is None
            else {**letter, "sanitized_context": decode(letter["sanitized_context"])}
        )
        told = [_told(event) for event in events]
        added = [{**note, "note": decode(note["note"])} for note in notes]
        print_json({**_outline(job), "events": told, "dead_letter": dead, "notes": added})
        return
    for name, value in _outline(job).items():
        if value not in (None, ""):
            click.echo(f"{name:18} {one_line(value)}")
    click.echo()
    lines = [{**event, "at": read_instant(event["at"])} for event in events]
    print_table(lines, ("at", "name", "attempt", "actor_id", "detail"))
    for note in notes:
        said = f"{note['name']} on {note['event_name']} {note['event_id']}: {note['note']}"
        click.echo(f"note {one_line(said)}")
    if letter is not None:
        click.echo(f"\ndead letter: {letter['error_class']} at stage {one_line(letter['stage'])}")
        for line in letter["last_stack"].splitlines():
            click.echo(f"  {one_line(line)}")


@jobs.command()
@click.argument("job_id")
@click.option("--reason", required=True, help="Why; kept in the audit.")
@watch_options
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
    job_id = _id(job_id, "JOB_ID")
    with app_of(ctx, required=False) as hf:
        answer = cancel_job(desk_of(hf, actor, role, org_id).watch, job_id, reason=reason)
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
        rows = hf.store.read(lambda tx: tx.many(SQL.count_jobs))
    if as_json:
        print_json([dict(row) for row in rows])
    else:
        print_table(rows, ("state", "queue", "jobs"))


def _org_of(hf: Holdfast, job_id: str) -> str:
    row = hf.store.read(lambda tx: tx.maybe(SQL.find_org, id=job_id))
    if row is None:
        raise JobNotFound(job_id)
    return str(row["org_id"])


def _outline(job: Job) -> dict[str, Any]:
    """What an operator may see of a job: no payload and no result, which may be private."""
    hidden = ("payload", "result")
    return {name: value for name, value in job.record.items() if name not in hidden}


def _told(event: Row) -> dict[str, Any]:
    detail = event["detail"]
    return {**event, "detail": None if detail is None else decode(detail)}


def _id(text: str, where: str) -> str:
    try:
        return read_uuid(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint=where) from exc
