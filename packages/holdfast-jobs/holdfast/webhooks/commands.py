"""holdfast webhooks list|add|rotate|pause|resume|remove"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    operator_of,
    operator_options,
    print_fields,
    print_json,
    print_table,
)
from holdfast.webhooks.operator import OLDEST, OperatorWebhooks, WebhookSecret

COLUMNS = ("id", "org_id", "url", "events", "paused_at", "created_by", "created_at")
NONE = "No webhooks. Register one: holdfast webhooks add URL --reason TEXT"
reason_option = click.option("--reason", required=True, help="Reason recorded in the audit.")


@click.group()
def webhooks() -> None:
    """Send signed messages about changes to your endpoints."""


@webhooks.command("list")
@click.option("--limit", default=50, show_default=True, help="Maximum number of rows.")
@click.option("--after", default=OLDEST, help="Only endpoints after this id, for the next page.")
@operator_options
@json_option
@click.pass_context
def list_webhooks(
    ctx: click.Context,
    limit: int,
    after: str,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """List endpoints, oldest first, without their secrets."""
    with app_of(ctx, required=False) as hf:
        found = _noun(hf, actor, role, org_id).list(limit=limit, after=after)
    lines = [asdict(one) for one in found]
    if as_json:
        print_json(lines)
    else:
        print_table(lines, COLUMNS, empty=NONE)


@webhooks.command()
@click.argument("url")
@click.option(
    "--event",
    "events",
    multiple=True,
    help="Only this event, such as job.succeeded or job.*. Repeat it for others.",
)
@reason_option
@operator_options
@json_option
@click.pass_context
def add(
    ctx: click.Context,
    url: str,
    events: tuple[str, ...],
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Register an endpoint and print its secret.

    The secret is not shown again.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        made = _noun(hf, actor, role, org_id).add(url, events=events, reason=reason)
    _print_secret(made, as_json=as_json)


@webhooks.command()
@click.argument("webhook_id")
@reason_option
@operator_options
@json_option
@click.pass_context
def rotate(
    ctx: click.Context,
    webhook_id: str,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Give an endpoint a new secret.

    The previous secret signs messages as well for a while.
    """
    with app_of(ctx, required=False) as hf:
        made = _noun(hf, actor, role, org_id).rotate(webhook_id, reason=reason)
    _print_secret(made, as_json=as_json)


def _verb(name: str, summary: str, done: str, already: str) -> None:
    @webhooks.command(name, help=summary)
    @click.argument("webhook_id")
    @reason_option
    @operator_options
    @click.pass_context
    def command(
        ctx: click.Context, webhook_id: str, reason: str, actor: str, role: str, org_id: str | None
    ) -> None:
        with app_of(ctx, required=False) as hf:
            is_done = getattr(_noun(hf, actor, role, org_id), name)(webhook_id, reason=reason)
        click.echo(done if is_done else already)


_verb("pause", "Store no more deliveries for an endpoint.", "Paused.", "It is paused already.")
_verb("resume", "Store deliveries of new changes again.", "Resumed.", "It is not paused.")
_verb("remove", "Remove an endpoint with its secrets.", "Removed.", "It is removed already.")


def _noun(hf: Any, actor: str, role: str, org_id: str | None) -> OperatorWebhooks:
    found: OperatorWebhooks = operator_of(hf, actor, role, org_id).webhooks
    return found


def _print_secret(made: WebhookSecret, *, as_json: bool) -> None:
    document = {**asdict(made.endpoint), "secret": made.secret}
    if as_json:
        print_json(document)
        return
    print_fields(document)
    click.echo("Store the secret now. It is not shown again.")
