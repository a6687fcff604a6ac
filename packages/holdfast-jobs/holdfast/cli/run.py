"""holdfast run, holdfast runs list|show"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import click

from holdfast.cli.given import (
    ShortId,
    actor_option,
    app_of,
    async_concurrency_option,
    concurrency_option,
    json_option,
    log_level_option,
    operator_of,
    print_fields,
    print_json,
    print_table,
    short_id_argument,
    shorten,
)
from holdfast.cli.logged import logged, watch
from holdfast.cli.next_command import next_page
from holdfast.cli.signals import drain_on_signals
from holdfast.operate.operator import Operator
from holdfast.operate.page import NEWEST
from holdfast.operate.runs import BoundedRun, RunFilter, RunOutcome, RunReport

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = (
    "run_id", "name", "trigger", "started_at", "outcome", "claimed_count", "succeeded_count",
    "failed_count", "requeued_count",
)  # fmt: skip


@click.command()
@click.argument("name")
@click.option("--reason", help="Reason for the manual start, recorded in the audit.")
@click.option("--cron", is_flag=True, help="Started by a timer: --reason is not required.")
@actor_option
@click.option(
    "--max-jobs",
    type=click.IntRange(1, 100_000),
    help="Maximum number of jobs; overrides max_jobs_per_run.",
)
@concurrency_option
@async_concurrency_option
@log_level_option
@json_option
@click.pass_context
@logged
def run(ctx: click.Context, /, **given: Any) -> None:
    """Start one bounded run of jobs.

    NAME is declared in holdfast.toml as [runs.NAME]. The run ends at its job limit or time limit;
    the remaining jobs wait for the next run. If nothing is pending, the run is skipped, which is
    not an error.
    """
    name = given.pop("name")
    perform(ctx, lambda operator, **how: operator.runs.prepare(name, **how), **given)


def perform_options(command: F) -> F:
    """Options for the actor and the reason of a run."""
    for option in reversed(run.params[1:]):
        if not hasattr(command, "__click_params__"):
            command.__click_params__ = []  # type: ignore[attr-defined]
        command.__click_params__.append(option)  # type: ignore[attr-defined]
    return command


def perform(
    ctx: click.Context,
    prepare: Callable[..., BoundedRun],
    *,
    reason: str | None,
    cron: bool,
    actor: str,
    max_jobs: int | None,
    concurrency: int,
    async_concurrency: int,
    log_level: str | None,
    as_json: bool,
    after: Callable[[Operator], Mapping[str, Any]] = lambda _: {},
) -> None:
    """Perform the run of *prepare* and print its report, with the fields of *after*."""
    if cron == bool((reason or "").strip()):
        raise click.UsageError("Give --reason TEXT, or --cron if a timer starts the run.")
    with app_of(ctx, required=True) as hf:
        watch(hf, log_level)
        operator = operator_of(hf, actor)
        running = prepare(
            operator,
            reason=reason or "",
            by_timer=cron,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
            max_jobs=max_jobs,
        )
        drain_on_signals(running)
        report = running.perform()
        told = {**_report_fields(report), **after(operator)}
    if as_json:
        print_json(told)
    else:
        _print(told)
    ctx.exit(1 if report.outcome in (RunOutcome.FAILED, RunOutcome.LOST) else 0)


@click.group()
def runs() -> None:
    """Inspect past bounded runs."""


@runs.command("list")
@click.option("--name", help="Only runs with this name.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--before",
    type=ShortId("runs"),
    default=NEWEST,
    help="Only runs older than this id, for the next page.",
)
@json_option
@click.pass_context
def list_runs(ctx: click.Context, name: str | None, limit: int, before: str, as_json: bool) -> None:
    """List runs, newest first."""
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf)
        found = operator.runs.list(RunFilter(name), limit=limit, before=before)
        rows = [_report_fields(report) for report in found]
        if as_json:
            print_json(rows)
            return
        ids = shorten(operator, "runs", [row["run_id"] for row in rows])
    shown = [{**row, "outcome": row["outcome"] or "unfinished"} for row in rows]
    empty = "No runs yet. Start one: holdfast run NAME --reason TEXT"
    print_table(shown, COLUMNS, ids=ids, empty=empty)
    if found.next is not None:
        click.echo(f"More: {next_page(ctx, '--before', ids.get(found.next, found.next))}")


@runs.command()
@short_id_argument("run_id", "runs")
@json_option
@click.pass_context
def show(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show one run with the settings that it used."""
    with app_of(ctx, required=False) as hf:
        report = operator_of(hf).runs.get(run_id)
    if as_json:
        print_json(_report_fields(report))
    else:
        _print(_report_fields(report))


def _report_fields(report: RunReport) -> dict[str, Any]:
    """The fields of a run report."""
    told = asdict(report)
    actor, kind = told.pop("actor"), told.pop("trigger_kind")
    return {**told, "trigger": kind, "actor": f"{actor['type']}:{actor['id']}"}


def _print(told: Mapping[str, Any]) -> None:
    plain = {name: value for name, value in told.items() if not isinstance(value, dict)}
    print_fields({**plain, "outcome": plain["outcome"] or "unfinished"})
    for name, value in told.items():
        if isinstance(value, dict):
            print_fields(value, title=name.replace("_", " ").capitalize())
