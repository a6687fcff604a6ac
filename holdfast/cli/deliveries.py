"""holdfast deliveries list|show|reconcile|confirm|resend|drop"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import click

from holdfast.cli.batches import perform_options
from holdfast.cli.given import (
    app_of,
    desk_of,
    json_option,
    print_fields,
    print_json,
    print_table,
    watch_options,
)
from holdfast.cli.run import run
from holdfast.operate.deliveries import NEWEST, Deliveries
from holdfast.outbox.delivery import Delivery, State

F = TypeVar("F", bound=Callable[..., Any])

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
WORD_COLUMNS = ("at", "source", "verdict", "after_attempt", "provider_id", "code")


@click.group()
def deliveries() -> None:
    """Look at what people and programs are told, and decide what nobody else can."""


@contextmanager
def deliveries_of(ctx: click.Context, who: Mapping[str, Any]) -> Iterator[Deliveries]:
    """The deliveries as the person named by the options sees them."""
    with app_of(ctx, required=False) as hf:
        yield desk_of(hf, who["actor"], who["role"], who["org_id"]).deliveries


@deliveries.command("list")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    help="Only those that stand there.",
)
@click.option("--channel", help="Only those that go by this channel.")
@click.option("--job", "job_id", help="Only those that this job intended or sends.")
@click.option("--all", "with_ended", is_flag=True, help="Also those that are sent or dropped.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--before", default=NEWEST, help="Only those older than this id: the next page.")
@watch_options
@json_option
@click.pass_context
def list_deliveries(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """List deliveries, newest first. No text and no address is shown."""
    who = {name: given.pop(name) for name in ("actor", "role", "org_id")}
    with deliveries_of(ctx, who) as found:
        rows = [asdict(row) for row in found.list(**given)]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, COLUMNS)


@deliveries.command()
@click.argument("delivery_id")
@watch_options
@json_option
@click.pass_context
def show(ctx: click.Context, /, delivery_id: str, as_json: bool, **who: Any) -> None:
    """Show a delivery with every try and what was ever said of it."""
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
    """Ask the channels about what nobody knows of: the run outbox_reconciler, now."""
    # An application that has not used its outbox yet does not know the run.
    app_of(ctx, required=True).outbox.declare()
    ctx.invoke(run, name="outbox_reconciler", **given)


def decide_options(command: F) -> F:
    """What every decision takes."""
    made: Any = click.pass_context(command)
    reason = click.option("--reason", required=True, help="Why; kept in the audit.")
    for option in (json_option, watch_options, reason, click.argument("delivery_id")):
        made = option(made)
    decorated: F = made
    return decorated


@deliveries.command()
@click.option("--provider-id", help="The channel's name for it, if somebody found it there.")
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
    """Say that a delivery arrived: it counts as sent, and is not sent again."""
    with deliveries_of(ctx, who) as found:
        _tell(found.confirm(delivery_id, reason=reason, provider_id=provider_id), as_json)


@deliveries.command()
@decide_options
def resend(ctx: click.Context, /, delivery_id: str, reason: str, as_json: bool, **who: Any) -> None:
    """Say that a delivery goes out again, whatever became of the tries so far."""
    with deliveries_of(ctx, who) as found:
        _tell(found.resend(delivery_id, reason=reason), as_json)


@deliveries.command()
@decide_options
def drop(ctx: click.Context, /, delivery_id: str, reason: str, as_json: bool, **who: Any) -> None:
    """Say that a delivery does not go out, or not again."""
    with deliveries_of(ctx, who) as found:
        _tell(found.drop(delivery_id, reason=reason), as_json)


def _tell(delivery: Delivery, as_json: bool) -> None:
    if as_json:
        print_json(asdict(delivery))
    else:
        print_fields(asdict(delivery))
