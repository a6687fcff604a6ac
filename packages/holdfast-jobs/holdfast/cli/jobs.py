"""holdfast jobs list|show|cancel|count"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast import State
from holdfast.cli.format import moment, tallied
from holdfast.cli.given import (
    ShortId,
    app_of,
    context_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_fields,
    print_json,
    print_table,
    reader_of,
    short_id_argument,
    shorten,
)
from holdfast.cli.next_command import next_command, next_page
from holdfast.clock import read_instant
from holdfast.document import encode
from holdfast.operate.job_rows import JobFilter, attempts_made, list_jobs
from holdfast.operate.page import NEWEST
from holdfast.operate.plural import counted
from holdfast.operate.short_ids import JOBS, TENANTS, names_of, short_ids

if TYPE_CHECKING:
    from holdfast.operate.audit import AuditEvent
    from holdfast.operate.jobs import JobView

NO_JOBS = "No jobs yet. Enqueue one: holdfast --app MODULE:hf enqueue JOB_TYPE PAYLOAD"
COLUMNS = (
    "id", "job_type", "state", "queue", "stage", "attempts", "created_at", "org_id", "error_class",
)  # fmt: skip
# The fields of a job by subject; fields that are not listed come last.
GROUPS = {
    "": (
        "state", "queue", "stage", "attempts", "org_id", "project_id", "priority", "created_at",
        "not_before_at", "finished_at", "progress",
    ),
    "Error": ("error_class", "last_error", "first_failed_at", "last_error_at"),
    "Origin": (
        "actor", "request_id", "correlation_id", "idempotency_key", "unit_key", "replay_of",
        "scheduled_for", "category", "origin_queue", "payload_hash",
    ),
    "Lease": ("claimed_by", "claimed_at", "lease_expires_at", "lease_token"),
}  # fmt: skip
# Printed as part of another field, or internal: turn is the position in the queue.
_OMITTED = ("id", "job_type", "actor_type", "actor_id", "attempt_count", "max_attempts", "turn")


@click.group()
def jobs() -> None:
    """List, inspect and cancel jobs."""


@jobs.command("list")
@click.option("--org", "org_id", type=ShortId("tenants"), help="Only this tenant.")
@click.option(
    "--state", type=click.Choice([state.value for state in State]), help="Only this state."
)
@click.option("--type", "job_type", help="Only this job type.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--before",
    type=ShortId("jobs"),
    default=NEWEST,
    help="Only jobs older than this id, for the next page.",
)
@json_option
@click.pass_context
def list_command(
    ctx: click.Context,
    org_id: str | None,
    state: str | None,
    job_type: str | None,
    limit: int,
    before: str,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(org_id=org_id, state=state, job_type=job_type)
    with reader_of(ctx) as found_in:
        context = context_of(found_in)
        found = list_jobs(context, wanted, limit=limit, before=before)
        rows = [{**asdict(job), "attempts": attempts_of(asdict(job))} for job in found]
        if as_json:
            print_json(rows)
            return
        ids = short_ids(context, JOBS, [job.id for job in found])
        ids |= short_ids(context, TENANTS, {job.org_id for job in found})
    empty = "No jobs match." if wanted != JobFilter() else NO_JOBS
    print_table(rows, COLUMNS, ids=ids, empty=empty)
    if found:
        click.echo(f"\n{counted(len(found), 'job')}: {tallied(job.state for job in found)}")
    failed = next((job for job in found if job.state is State.FAILED), None)
    if failed is not None:
        click.echo(f"Why one failed: {next_command(ctx, 'explain', ids[failed.id])}")
    if found.next is not None:
        cursor = ids.get(found.next, found.next)
        click.echo(f"More: {next_page(ctx, '--before', cursor)}")


def attempts_of(job: Mapping[str, Any]) -> str:
    """The attempts that were made or are under way, of those that are allowed.

    The stored count has failed attempts only.
    """
    return f"{attempts_made(job['state'], job['attempt_count'])}/{job['max_attempts']}"


def progress_of(progress: object) -> str:
    """Reported progress as text, like ``3 of 10, third page``. Accepts any stored value."""
    if not isinstance(progress, Mapping) or "done" not in progress:
        return "" if progress is None else encode(progress)
    done, total, note = (progress.get(name) for name in ("done", "total", "note"))
    text = _amount(done) if total is None else f"{_amount(done)} of {_amount(total)}"
    return f"{text}, {note}" if note else text


def _amount(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


@jobs.command()
@short_id_argument("job_id", "jobs")
@json_option
@click.pass_context
def show(ctx: click.Context, job_id: str, as_json: bool) -> None:
    """Show one job with its timeline."""
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf)
        job = operator.jobs.get(job_id)
        short = shorten(operator, "jobs", [job.id])[job.id]
        names = names_of(operator.context, (job.org_id, job.record["project_id"]))
    if as_json:
        events = [_event(event) for event in job.events]
        notes = [asdict(note) for note in job.notes]
        print_json({**job.record, "events": events, "dead_letter": job.dead_letter, "notes": notes})
        return
    _print_view(ctx, job, short, names)


def _print_view(ctx: click.Context, job: JobView, short: str, names: Mapping[str, str]) -> None:
    record = job.record
    click.echo(one_line(f"{record['job_type']}  {job.id}"))
    values = {
        **{name: value for name, value in record.items() if name not in _OMITTED},
        "attempts": attempts_of(record).replace("/", " of "),
        "actor": f"{record['actor_type']}:{record['actor_id']}",
        "progress": progress_of(record.get("progress")),
    }
    for column in ("org_id", "project_id"):
        if (name := names.get(record[column])) is not None:
            values[column] = f"{name} ({record[column]})"
    listed = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "Other": tuple(name for name in values if name not in listed)}
    for title, group in groups.items():
        print_fields({name: values.get(name) for name in group}, title=title)
    click.echo("\nTimeline")
    for event in job.events:
        after = (event.at - job.events[0].at).total_seconds()
        who = f"{event.actor.type}:{event.actor.id}"
        detail = f"  {encode(event.detail)}" if event.detail else ""
        line = f"{after:+10.3f}s  {event.name:18} attempt {event.attempt}  {who}{detail}"
        click.echo(f"  {one_line(line)}")
    for note in job.notes:
        line = f"{note.name} on {note.event_name} {note.event_id}: {encode(note.note)}"
        click.echo(f"  note {one_line(line)}")
    letter = job.dead_letter
    if letter is not None:
        click.echo(f"\nDead letter: {letter['error_class']} at stage {one_line(letter['stage'])}")
        for line in letter["last_stack"].splitlines():
            click.echo(f"  {one_line(line)}")
        click.echo(f"\nNext: {next_command(ctx, 'dead-letters', 'show', short)}")
    elif record["state"] not in (State.COMPLETED, State.CANCELED):
        click.echo(f"\nNext: {next_command(ctx, 'explain', short)}")


@jobs.command()
@short_id_argument("job_id", "jobs")
@click.option("--reason", required=True, help="Reason recorded in the audit.")
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
    """Cancel a job.

    A waiting job is canceled at once, a running job at its next step. Exits with 1 if the job has
    ended.
    """
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, actor, role, org_id)
        answer = operator.jobs.cancel(job_id, reason=reason)
        ended = operator.jobs.get(job_id).record if answer == "too_late" else None
    if as_json:
        more = {} if ended is None else {name: ended[name] for name in ("state", "finished_at")}
        print_json({"job_id": job_id, "answer": answer, **more})
    elif ended is not None:
        since = moment(read_instant(ended["finished_at"]))
        says = (
            f"too late: the job is {ended['state']} since {since}. Ended jobs cannot be canceled."
        )
        click.echo(f"{job_id}  {says}")
    else:
        click.echo(f"{job_id}  {answer}")
    ctx.exit(0 if ended is None else 1)


@jobs.command()
@json_option
@click.pass_context
def count(ctx: click.Context, as_json: bool) -> None:
    """Count jobs by state and queue.

    A failed job is a problem until its replay starts again, or its dead letter is closed.
    """
    with app_of(ctx, required=False) as hf:
        rows = [asdict(count) for count in operator_of(hf).jobs.counts()]
    if as_json:
        # Only failed jobs can be problems.
        for row in rows:
            if row["state"] != State.FAILED:
                del row["problems"]
        print_json(rows)
    else:
        print_table(rows, ("state", "queue", "jobs", "problems"), empty=NO_JOBS)
        if rows:
            problems = sum(row["problems"] for row in rows)
            total = counted(sum(row["jobs"] for row in rows), "job")
            click.echo(f"\n{total}, {counted(problems, 'problem')}")
            if problems:
                click.echo(f"Next: {next_command(ctx, 'dead-letters', 'list')}")


def _event(event: AuditEvent) -> dict[str, Any]:
    """An event with the actor in two columns, as it is stored."""
    found: dict[str, Any] = {}
    for name in type(event).__slots__:
        if name == "actor":
            found |= {"actor_type": event.actor.type, "actor_id": event.actor.id}
        else:
            found[name] = getattr(event, name)
    return found
