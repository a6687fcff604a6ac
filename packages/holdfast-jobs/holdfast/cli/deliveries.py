"""holdfast deliveries list|show|reconcile|confirm|resend|drop, and the last three with -all"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import click

from holdfast.cli.audit import Instant
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
from holdfast.cli.next_command import next_page
from holdfast.cli.run import perform_options, run
from holdfast.operate.deliveries import Deliveries, Delivery
from holdfast.operate.delivery_bulk import LIMIT, LONGEST, DeliveryBulkResult
from holdfast.operate.delivery_filter import DeliveryFilter, State
from holdfast.operate.page import NEWEST
from holdfast.operate.plural import counted

F = TypeVar("F", bound=Callable[..., Any])

NONE = "No deliveries. The application posts them with hf.outbox.post()."
NONE_OPEN = "No deliveries are open. List all: holdfast deliveries list --all"
COLUMNS = (
    "id", "state", "reason", "channel", "subject", "recipient", "version", "attempts",
    "notification_id", "notified_at", "not_before_at", "created_at",
)  # fmt: skip
TRY_COLUMNS = (
    "number",
    "reason",
    "began_at",
    "ended_at",
    "phase",
    "outcome",
    "code",
    "provider_id",
)
GROUP_COLUMNS = ("channel", "state", "reason", "deliveries", "ready")
NAMED_COLUMNS = ("id", "channel", "state", "reason", "subject", "recipient", "created_at")
WORD_COLUMNS = ("at", "source", "verdict", "after_attempt", "provider_id", "code")


@click.group()
def deliveries() -> None:
    """Inspect deliveries and resolve the undecided ones."""


@contextmanager
def deliveries_of(ctx: click.Context, who: Mapping[str, Any]) -> Iterator[Deliveries]:
    """The deliveries that the actor of the options may see."""
    with app_of(ctx, required=False) as hf:
        yield operator_of(hf, who["actor"], who["role"], who["org_id"]).deliveries


def filter_options(*reason: str) -> Callable[[F], F]:
    """Options of a :class:`DeliveryFilter`; *reason* is the name of that option."""

    def decorate(command: F) -> F:
        made: Any = command
        for option in (
            click.option(
                "--until", type=Instant(), help="Only deliveries created before this time."
            ),
            click.option(
                "--since", type=Instant(), help="Only deliveries created at or after this time."
            ),
            click.option(
                "--job", "job_id", type=ShortId("jobs"), help="Only deliveries of this job."
            ),
            click.option("--subject", help="Only this subject; a trailing * matches a prefix."),
            click.option("--recipient", help="Only this recipient."),
            click.option(*reason, "why", help="Only deliveries held or failed for this reason."),
            click.option("--channel", help="Only this channel."),
            click.option(
                "--state",
                type=click.Choice([state.value for state in State]),
                help="Only this state.",
            ),
        ):
            made = option(made)
        decorated: F = made
        return decorated

    return decorate


@deliveries.command("list")
@filter_options("--reason", "--with-reason")
@click.option("--all", "with_ended", is_flag=True, help="Include sent and dropped deliveries.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--before",
    type=ShortId("deliveries"),
    default=NEWEST,
    help="Only deliveries older than this id, for the next page.",
)
@operator_options
@json_option
@click.pass_context
def list_deliveries(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """List deliveries, newest first.

    Neither texts nor addresses are shown.
    """
    who = {name: given.pop(name) for name in ("actor", "role", "org_id")}
    given["reason"] = given.pop("why")
    page = {name: given.pop(name) for name in ("with_ended", "limit", "before")}
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, **who)
        found = operator.deliveries.list(DeliveryFilter(**given), **page)
        rows = [asdict(row) for row in found]
        if as_json:
            print_json(rows)
            return
        ids = shorten(operator, "deliveries", [row["id"] for row in rows])
    print_table(rows, COLUMNS, ids=ids, empty=NONE_OPEN if not page["with_ended"] else NONE)
    if rows:
        click.echo(f"\n{counted(len(rows), 'delivery', 'deliveries')}")
    if found.next is not None:
        click.echo(f"More: {next_page(ctx, '--before', ids.get(found.next, found.next))}")


@deliveries.command()
@short_id_argument("delivery_id", "deliveries")
@operator_options
@json_option
@click.pass_context
def show(ctx: click.Context, /, delivery_id: str, as_json: bool, **who: Any) -> None:
    """Show a delivery with its attempts and evidence."""
    with deliveries_of(ctx, who) as found:
        view = found.show(delivery_id)
    if as_json:
        print_json(asdict(view))
        return
    print_fields(asdict(view.delivery))
    print_table([asdict(each) for each in view.attempts], TRY_COLUMNS)
    print_table([asdict(each) for each in view.evidence], WORD_COLUMNS)


@deliveries.command()
@perform_options
@click.pass_context
def reconcile(ctx: click.Context, /, **given: Any) -> None:
    """Look up deliveries with an unknown outcome now.

    It starts the run outbox_reconciler.
    """
    # An application that has not used its outbox yet has not declared the run.
    app_of(ctx, required=True).outbox.declare()
    ctx.invoke(run, name="outbox_reconciler", **given)


def decide_options(command: F) -> F:
    """The options of every decision."""
    made: Any = click.pass_context(command)
    reason = click.option("--reason", required=True, help="Reason recorded in the audit.")
    for option in (
        json_option,
        operator_options,
        reason,
        short_id_argument("delivery_id", "deliveries"),
    ):
        made = option(made)
    decorated: F = made
    return decorated


@deliveries.command()
@click.option("--provider-id", help="Id of the message at the channel, if known.")
@decide_options
def confirm(
    ctx: click.Context,
    /,
    delivery_id: str,
    provider_id: str | None,
    reason: str,
    as_json: bool,
    **who: Any,
) -> None:
    """Confirm that a delivery arrived.

    It counts as sent and is not sent again.
    """
    with deliveries_of(ctx, who) as found:
        _tell(found.confirm(delivery_id, reason=reason, provider_id=provider_id), as_json)


@deliveries.command()
@decide_options
def resend(ctx: click.Context, /, delivery_id: str, reason: str, as_json: bool, **who: Any) -> None:
    """Send a delivery again."""
    with deliveries_of(ctx, who) as found:
        _tell(found.resend(delivery_id, reason=reason), as_json)


@deliveries.command()
@decide_options
def drop(ctx: click.Context, /, delivery_id: str, reason: str, as_json: bool, **who: Any) -> None:
    """Do not send a delivery, or not again."""
    with deliveries_of(ctx, who) as found:
        _tell(found.drop(delivery_id, reason=reason), as_json)


def bulk_options(command: F) -> F:
    """The options of every bulk decision."""
    made: Any = click.pass_context(command)
    for option in (
        json_option,
        operator_options,
        click.option(
            "--limit",
            default=LIMIT,
            show_default=True,
            type=click.IntRange(1, LONGEST),
            help="Maximum number of rows.",
        ),
        click.option("--confirm", type=int, help="Number of items that --all affects."),
        click.option(
            "--all", "everything", is_flag=True, help="Apply to everything; needs --confirm."
        ),
        click.option(
            "--dry-run",
            "is_dry_run",
            is_flag=True,
            help="Print what would be done, and change nothing.",
        ),
        filter_options("--with-reason"),
        click.option("--reason", required=True, help="Reason recorded in the audit of each item."),
    ):
        made = option(made)
    decorated: F = made
    return decorated


@deliveries.command("confirm-all")
@bulk_options
def confirm_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Confirm all held and failed deliveries that match."""
    _decide_all(ctx, Deliveries.confirm_all, given, as_json)


@deliveries.command("resend-all")
@bulk_options
def resend_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Resend all held and failed deliveries that match."""
    _decide_all(ctx, Deliveries.resend_all, given, as_json)


@deliveries.command("drop-all")
@bulk_options
def drop_all(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Drop all held and failed deliveries that match."""
    _decide_all(ctx, Deliveries.drop_all, given, as_json)


def _decide_all(
    ctx: click.Context,
    decide: Callable[..., DeliveryBulkResult],
    given: dict[str, Any],
    as_json: bool,
) -> None:
    who = {name: given.pop(name) for name in ("actor", "role", "org_id")}
    names = ("state", "channel", "recipient", "subject", "job_id", "since", "until")
    conditions = {name: given.pop(name) for name in names}
    wanted = DeliveryFilter(who["org_id"], reason=given.pop("why"), **conditions)
    with deliveries_of(ctx, who) as found:
        result = decide(found, wanted, **given)
    if as_json:
        print_json(asdict(result))
    else:
        _print_bulk(result)
    if not (result.ready if result.is_dry_run else result.done):
        says = f"Nothing was done: of {result.matched} that match, none can be decided now."
        click.echo(f"holdfast: {says} Their states are listed above.", err=True)
        ctx.exit(1)


def _print_bulk(result: DeliveryBulkResult) -> None:
    done = f"{result.ready} would be done" if result.is_dry_run else f"{result.done} done"
    click.echo(f"{result.action}: {result.matched} match, {result.ready} ready, {done}")
    print_table([asdict(group) for group in result.groups], GROUP_COLUMNS)
    print_table(result.named, NAMED_COLUMNS)


def _tell(delivery: Delivery, as_json: bool) -> None:
    if as_json:
        print_json(asdict(delivery))
    else:
        print_fields(asdict(delivery))
