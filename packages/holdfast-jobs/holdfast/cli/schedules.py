"""holdfast schedules list|show|next|add|set|pause|resume|remove|reset|dispatch"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, TypeVar

import click

from holdfast.cli.given import (
    actor_option,
    app_of,
    async_concurrency_option,
    concurrency_option,
    every_page,
    json_option,
    log_level_option,
    one_line,
    operator_of,
    print_json,
    print_table,
)
from holdfast.cli.logged import logged, watch
from holdfast.cli.signals import drain_on_signals
from holdfast.document import BadDocument, parse
from holdfast.errors import InvalidSchedule
from holdfast.operate.plural import counted
from holdfast.operate.processes import dispatch_all, make_dispatcher
from holdfast.operate.reader import missing_file
from holdfast.operate.schedules import NOT_STORED, MisfirePolicy

COLUMNS = (
    "name", "target", "rhythm", "zone", "catch_up", "next_fire_at", "last_outcome", "set_by",
    "paused",
)  # fmt: skip
NO_SCHEDULES = "No schedules stored. To include declared ones: --app MODULE:hf"
START_DISPATCHER = "start a dispatcher, holdfast worker --dispatch"
TICK_COLUMNS = ("fire_at", "outcome", "ticks", "job_id", "run_id", "detail")

F = TypeVar("F", bound=Callable[..., Any])


def rhythm_options(function: F) -> F:
    """Options for the cadence and the target of a schedule; `set` takes those that change."""
    for option in reversed(
        (
            click.option("--cron", help="Cron expression, such as '0 3 * * *', or @daily."),
            click.option("--every", help="Interval, such as 90s, 15m, 2h or 1d."),
            click.option("--zone", help="IANA time zone of the cron expression.  [default: UTC]"),
            click.option("--starts-at", help="First possible tick (ISO 8601 with zone)."),
            click.option(
                "--catch-up",
                type=click.Choice([policy.value for policy in MisfirePolicy]),
                help="Misfire policy for missed ticks.",
            ),
            click.option("--job-type", help="Job type to enqueue: maintenance or a notification."),
            click.option("--payload", help="Payload, a JSON object; - reads standard input."),
            click.option("--org", "org_id", help="Tenant of the job (UUID or name)."),
            click.option(
                "--tenants",
                type=click.Choice(["all"]),
                help="One job for every tenant that has jobs or rules, instead of --org.",
            ),
            click.option("--project", "project_id", help="Project of the job (UUID or name)."),
            click.option("--run", help="Bounded run to start, as declared in the settings."),
        )
    ):
        function = option(function)
    return function


@click.group()
def schedules() -> None:
    """Inspect and change schedules."""


@schedules.command("list")
@json_option
@click.pass_context
def list_schedules(ctx: click.Context, as_json: bool) -> None:
    """List schedules with their next and latest tick.

    With --app, declared schedules are listed before the first dispatcher has stored them.
    """
    app = app_of(ctx, required=False, creates=True)
    if missing_file(app.settings) is not None:
        # There is nothing to read yet; the declarations are listed without a database.
        app.settings = replace(app.settings, db="sqlite:")
    with app as hf:
        rows = [asdict(schedule) for schedule in every_page(operator_of(hf).schedules.list)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["rhythm"] = row["cron"] or f"every {row['every']}"
        row["paused"] = row["pause_reason"]
    print_table(rows, COLUMNS, empty=NO_SCHEDULES)
    waiting = sum(row["last_detail"] == NOT_STORED for row in rows)
    if waiting:
        click.echo(f"\n{counted(waiting, 'schedule')} not stored yet: {START_DISPATCHER}")


@schedules.command()
@click.argument("name")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, limit: int, as_json: bool) -> None:
    """Show one schedule and its ticks, newest first.

    A tick with the outcome taken is still in progress.
    """
    with app_of(ctx, required=False) as hf:
        schedules = operator_of(hf).schedules
        schedule = asdict(schedules.get(name))
        ticks = [asdict(tick) for tick in schedules.ticks(name, limit=limit)]
    if as_json:
        print_json({**schedule, "ticks": ticks})
        return
    for key, value in schedule.items():
        if value is not None:
            click.echo(f"{key:14} {one_line(value)}")
    click.echo()
    print_table(ticks, TICK_COLUMNS)


@schedules.command("next")
@click.argument("name")
@click.option(
    "--count", default=5, show_default=True, type=click.IntRange(1, 1000), help="Number of ticks."
)
@json_option
@click.pass_context
def next_ticks(ctx: click.Context, name: str, count: int, as_json: bool) -> None:
    """Print the next ticks of a schedule.

    Times are in UTC and in the zone of the schedule. A pause is ignored.
    """
    with app_of(ctx, required=False) as hf:
        rows = [asdict(tick) for tick in operator_of(hf).schedules.next(name, count=count)]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("fire_at", "local"))


@schedules.command()
@click.argument("name")
@rhythm_options
@actor_option
@click.pass_context
def add(ctx: click.Context, /, name: str, actor: str, **given: Any) -> None:
    """Add a schedule.

    It needs --cron or --every, and either --job-type with --org or --tenants, or --run.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        options = _options(name, given)
        made = operator_of(hf, actor).schedules.add(name, reason=ctx.command_path, **options)
    click.echo(f"{name}  added; next at {made.next_fire_at:%Y-%m-%d %H:%M:%S} UTC")


@schedules.command("set")
@click.argument("name")
@rhythm_options
@actor_option
@click.pass_context
def set_schedule(ctx: click.Context, /, name: str, actor: str, **given: Any) -> None:
    """Change a schedule; other values stay.

    The declaration in code is ignored until a reset.
    """
    changes = _options(name, given)
    if not changes:
        raise click.UsageError("Nothing to change: give at least one option.")
    with app_of(ctx, required=False, creates=True) as hf:
        made = operator_of(hf, actor).schedules.set(name, reason=ctx.command_path, **changes)
    click.echo(f"{name}  changed; next at {made.next_fire_at:%Y-%m-%d %H:%M:%S} UTC")


@schedules.command()
@click.argument("name")
@click.option("--reason", required=True, help="Reason recorded in the audit.")
@actor_option
@click.pass_context
def pause(ctx: click.Context, name: str, reason: str, actor: str) -> None:
    """Pause a schedule."""
    with app_of(ctx, required=False, creates=True) as hf:
        paused = operator_of(hf, actor).schedules.pause(name, reason=reason)
    click.echo(f"{name}  {'paused' if paused else 'was paused already'}")


@schedules.command()
@click.argument("name")
@actor_option
@click.pass_context
def resume(ctx: click.Context, name: str, actor: str) -> None:
    """Resume a paused schedule.

    Its misfire policy decides about the missed ticks.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        resumed = operator_of(hf, actor).schedules.resume(name, reason=ctx.command_path)
    click.echo(f"{name}  {'resumed' if resumed else 'was not paused'}")


@schedules.command()
@click.argument("name")
@actor_option
@click.pass_context
def remove(ctx: click.Context, name: str, actor: str) -> None:
    """Remove a schedule.

    A schedule that code or settings declare cannot be removed: it would return.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        removed = operator_of(hf, actor).schedules.remove(name, reason=ctx.command_path)
    click.echo(f"{name}  removed")
    if removed.set_by == "code":
        click.echo("If code still declares it, the next dispatcher recreates it.", err=True)


@schedules.command()
@click.argument("name")
@actor_option
@click.pass_context
def reset(ctx: click.Context, name: str, actor: str) -> None:
    """Return a schedule to its declaration."""
    with app_of(ctx, required=False, creates=True) as hf:
        operator_of(hf, actor).schedules.reset(name, reason=ctx.command_path)
    click.echo(f"{name}  reset to its declaration")


@schedules.command()
@concurrency_option
@async_concurrency_option
@log_level_option
@json_option
@click.pass_context
@logged
def dispatch(
    ctx: click.Context,
    concurrency: int,
    async_concurrency: int,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Fire all due schedules once, then exit.

    Use it with cron or a systemd timer. Due runs are executed one after the other. The first
    SIGTERM lets started jobs finish and releases the others; the second stops at once. `holdfast
    worker --dispatch` does the same continuously.
    """
    with app_of(ctx, required=True) as hf:
        watch(hf, log_level)
        dispatcher = make_dispatcher(
            hf, concurrency=concurrency, async_concurrency=async_concurrency
        )
        drain_on_signals(dispatcher)
        counts = dispatch_all(dispatcher)
    if as_json:
        print_json(counts)
    else:
        click.echo("  ".join(f"{key} {value}" for key, value in counts.items()))


def _options(name: str, given: dict[str, Any]) -> Any:
    """The given options of a schedule."""
    options = {key: value for key, value in given.items() if value is not None}
    if "payload" in options:
        text = sys.stdin.read() if options["payload"] == "-" else options["payload"]
        try:
            options["payload"] = parse(text)
        except BadDocument as exc:
            raise InvalidSchedule(name, {"payload": str(exc)}) from exc
    if "starts_at" in options:
        try:
            options["starts_at"] = datetime.fromisoformat(options["starts_at"])
        except ValueError as exc:
            says = "must be an instant such as 2026-05-01T03:00:00Z"
            raise InvalidSchedule(name, {"starts_at": says}) from exc
    return options
