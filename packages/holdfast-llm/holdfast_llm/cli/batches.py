"""holdfast batches list|show|submit|collect|cancel|adopt|release|accept|probe"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import click

from holdfast.cli.given import (
    ShortId,
    app_of,
    json_option,
    operator_of,
    operator_options,
    print_fields,
    print_json,
    print_table,
    short_id_argument,
    shorten,
)
from holdfast.cli.logged import logged
from holdfast.cli.next_command import next_page
from holdfast.cli.run import perform, perform_options
from holdfast.operate.page import NEWEST
from holdfast.operate.plural import counted
from holdfast_llm.operate.batches import AnswerFilter, Batches, BatchFilter, BatchRow

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = (
    "id", "state", "provider", "model", "items", "provider_batch_id", "provider_status",
    "created_at", "next_at", "error_code",
)  # fmt: skip
ITEM_COLUMNS = (
    "batch_item_index", "org_id", "job_id", "attempt", "state", "error_class", "error_code",
    "recorded_at",
)  # fmt: skip
KEPT_COLUMNS = ("job_type", "error_class", "answers", "batches")
STATES = (
    "prepared", "uploaded", "creating", "submitted", "ended", "collected", "released",
    "quarantined",
)  # fmt: skip


NONE = "No batches. Jobs declared with hf.batch are sent by: holdfast batches submit"
NONE_OPEN = "No batches are open. List all: holdfast batches list --all"


@click.group()
def batches() -> None:
    """Submit, collect and inspect provider batches."""


@contextmanager
def batches_of(
    ctx: click.Context, who: Mapping[str, Any], *, required: bool = False
) -> Iterator[Batches]:
    """The batches that the actor of the options may see."""
    with app_of(ctx, required=required) as hf:
        yield operator_of(hf, who["actor"], who["role"], who["org_id"]).batches


@batches.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only this state.")
@click.option(
    "--mode",
    type=click.Choice(("batch", "async")),
    help="Only provider batches, or only direct calls.",
)
@click.option("--all", "with_ended", is_flag=True, help="Include finished batches.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--before",
    type=ShortId("batches"),
    default=NEWEST,
    help="Only batches older than this id, for the next page.",
)
@operator_options
@json_option
@click.pass_context
def list_batches(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """List batches, newest first."""
    who = {name: given.pop(name) for name in ("actor", "role", "org_id")}
    wanted = BatchFilter(given.pop("state"), given.pop("mode"))
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, **who)
        found = operator.batches.list(wanted, **given)
        rows = [asdict(row) for row in found]
        if as_json:
            print_json(rows)
            return
        ids = shorten(operator, "batches", [row["id"] for row in rows])
    print_table(rows, COLUMNS, ids=ids, empty=NONE if given["with_ended"] else NONE_OPEN)
    if rows:
        click.echo(f"\n{counted(len(rows), 'batch', 'batches')}")
    if found.next is not None:
        click.echo(f"More: {next_page(ctx, '--before', ids.get(found.next, found.next))}")


@batches.command()
@short_id_argument("batch_id", "batches")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--after", default=-1, type=int, help="Only items after this position, for the next page."
)
@operator_options
@json_option
@click.pass_context
def show(
    ctx: click.Context, /, batch_id: str, limit: int, after: int, as_json: bool, **who: Any
) -> None:
    """Show a batch with its items."""
    with batches_of(ctx, who) as found:
        view = found.show(batch_id, limit=limit, after=after)
    if as_json:
        print_json(asdict(view))
        return
    print_fields(asdict(view.batch))
    print_fields(view.counts, title="Items")
    click.echo()
    print_table([asdict(item) for item in view.items], ITEM_COLUMNS)


@batches.command()
@perform_options
@click.pass_context
@logged
def submit(ctx: click.Context, /, **given: Any) -> None:
    """Submit waiting model requests to providers now.

    It starts the run batch_submitter. With --cron it submits at most max_jobs_per_run jobs.
    The report says how many jobs remain, due or deferred.
    """
    perform(
        ctx,
        lambda operator, **how: operator.batches.submitter(**how),
        after=lambda operator: operator.batches.remaining(),
        **given,
    )


@batches.command()
@perform_options
@click.pass_context
@logged
def collect(ctx: click.Context, /, **given: Any) -> None:
    """Collect the results of batches now.

    It starts the run batch_collector for every batch, also for those whose next poll is
    later. With --cron only due batches are polled.
    """

    perform(
        ctx,
        lambda operator, **how: operator.batches.collector(**how),
        after=lambda operator: operator.batches.outstanding(),
        **given,
    )


def move_options(command: F) -> F:
    """The options of every action."""
    made: Any = click.pass_context(command)
    reason = click.option("--reason", required=True, help="Reason recorded in the audit.")
    batch_id = short_id_argument("batch_id", "batches")
    for option in (json_option, operator_options, reason, batch_id):
        made = option(made)
    decorated: F = made
    return decorated


@batches.command()
@move_options
def cancel(ctx: click.Context, /, batch_id: str, reason: str, as_json: bool, **who: Any) -> None:
    """Cancel a batch at the provider.

    Items that are already finished are paid and collected.
    """
    with batches_of(ctx, who) as found:
        canceled = found.cancel(batch_id, reason=reason)
        _print_batch(canceled, as_json)
        if not found.can_reach(canceled.id):
            click.echo(
                f"No credential for {canceled.provider} here, so the provider was not contacted."
                " The cancel is recorded; a collector that has the credential sends it.",
                err=True,
            )


@batches.command()
@click.option("--provider-batch-id", help="Id of the batch at the provider, if it is not recorded.")
@move_options
def adopt(
    ctx: click.Context,
    /,
    batch_id: str,
    provider_batch_id: str | None,
    reason: str,
    as_json: bool,
    **who: Any,
) -> None:
    """Adopt a quarantined batch that exists at the provider."""
    with batches_of(ctx, who, required=True) as found:
        _print_batch(
            found.adopt(batch_id, provider_batch_id=provider_batch_id, reason=reason), as_json
        )


@batches.command()
@move_options
def release(ctx: click.Context, /, batch_id: str, reason: str, as_json: bool, **who: Any) -> None:
    """Release the jobs of a quarantined batch.

    The jobs are queued again and may be paid again.
    """
    with batches_of(ctx, who, required=True) as found:
        _print_batch(found.release(batch_id, reason=reason), as_json)


WHERE = {
    "batch": "batch_id",
    "job": "job_id",
    "org": "org_id",
    "type": "job_type",
    "error": "error_class",
    "provider": "provider",
}


def read_where(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> AnswerFilter:
    """Parse the repeatable option ``--where NAME=VALUE`` into a filter."""
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or name not in WHERE or not value:
            known = ", ".join(f"{one}=…" for one in WHERE)
            raise click.BadParameter(f"{text!r} must be one of {known}.")
        if found.setdefault(WHERE[name], value) != value:
            raise click.BadParameter(f"{name} is passed twice; give each condition once.")
    return AnswerFilter(**found)


@batches.command()
@click.option(
    "--where",
    multiple=True,
    callback=read_where,
    metavar="NAME=VALUE",
    help="Only stored answers of this batch, job, org, type, error or provider; repeatable.",
)
@click.option("--reason", required=True, help="Reason recorded in the audit.")
@click.option("--dry-run", is_flag=True, help="Only print their number.")
@operator_options
@json_option
@click.pass_context
def accept(
    ctx: click.Context,
    /,
    where: AnswerFilter,
    reason: str,
    dry_run: bool,
    as_json: bool,
    **who: Any,
) -> None:
    """Pass stored answers to the application again.

    Use it after the application's code was fixed. It costs nothing.
    """
    with batches_of(ctx, who, required=True) as found:
        report = found.accept(where, reason=reason, dry_run=dry_run)
    if as_json:
        print_json(asdict(report))
        return
    print_table([asdict(one) for one in report.matched], KEPT_COLUMNS)
    if report.is_dry_run:
        click.echo(f"{report.answers} answers would be passed to accept() again.")
        return
    done = report.done
    click.echo(
        f"{done.accepted} of {report.answers} answers have an outcome now; {done.held} are still"
        f" held, {done.unreadable} cannot be read, {done.skipped_batches} batches were skipped."
    )


@batches.command()
@click.argument("account")
@click.option("--reason", required=True, help="Reason recorded in the audit.")
@operator_options
@click.pass_context
def probe(ctx: click.Context, /, account: str, reason: str, **who: Any) -> None:
    """Allow one request to an account with an open circuit."""
    with batches_of(ctx, who) as found:
        found.probe(account, reason=reason)
    click.echo(f"One request to {account} is allowed; the next due job is sent.")


def _print_batch(batch: BatchRow, as_json: bool) -> None:
    if as_json:
        print_json(asdict(batch))
    else:
        print_fields(asdict(batch))
