"""holdfast rewrite held list|show|approve|edit|reject"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    operator_of,
    operator_options,
    print_json,
    print_table,
    short_id_argument,
)
from holdfast.cli.next_command import next_command
from holdfast.operate.short_ids import TENANTS, short_ids
from holdfast_rewrite.cli_text import text_option
from holdfast_rewrite.held import HELD, HeldRewrites
from holdfast_rewrite.verdict import HoldReason

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = (
    "rewrite_request_id",
    "home_id",
    "reason",
    "held_at",
    "gate",
    "findings",
    "output_language",
    "surface",
)


def reason_option(command: F) -> F:
    return click.option("--reason", required=True, help="Reason recorded in the audit.")(command)


@contextmanager
def held_of(
    ctx: click.Context, actor: str, role: str, org_id: str | None
) -> Iterator[HeldRewrites]:
    with app_of(ctx, required=False) as hf:
        yield HeldRewrites(operator_of(hf, actor, role, org_id).context)


@click.group()
def held() -> None:
    """Decide about rewrites that are held for a person.

    Only list works for operators; the others need an admin, and print JSON.
    """


@held.command("list")
@click.option(
    "--reason", type=click.Choice([reason.value for reason in HoldReason]), help="Reason."
)
@click.option("--limit", type=int, default=50, show_default=True, help="Maximum number.")
@json_option
@operator_options
@click.pass_context
def list_held(
    ctx: click.Context,
    reason: str | None,
    limit: int,
    as_json: bool,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """List held rewrites without text, oldest first."""
    with app_of(ctx, required=False) as hf:
        context = operator_of(hf, actor, role, org_id).context
        found = HeldRewrites(context).list(reason=reason, limit=limit)
        if as_json:
            print_json([asdict(one) for one in found])
            return
        ids = short_ids(context, HELD, [one.rewrite_request_id for one in found])
        ids |= short_ids(context, TENANTS, {one.home_id for one in found})
    rows = [{**asdict(one), "findings": ", ".join(one.findings or ())} for one in found]
    print_table(rows, COLUMNS, ids=ids, empty="No held rewrites: none waits for a person.")
    if found:
        oldest = ids[found[0].rewrite_request_id]
        click.echo(f"\nNext: {next_command(ctx, 'rewrite', 'held', 'show', oldest)}")


@held.command()
@short_id_argument("rewrite_request_id", HELD)
@operator_options
@click.pass_context
def show(
    ctx: click.Context, rewrite_request_id: str, actor: str, role: str, org_id: str | None
) -> None:
    """Show a held rewrite with both texts. The audit records who read it."""
    with held_of(ctx, actor, role, org_id) as rewrites:
        print_json(asdict(rewrites.show(rewrite_request_id)))


@held.command()
@short_id_argument("rewrite_request_id", HELD)
@reason_option
@operator_options
@click.pass_context
def approve(
    ctx: click.Context,
    rewrite_request_id: str,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Deliver a held rewrite as it is."""
    with held_of(ctx, actor, role, org_id) as rewrites:
        print_json(asdict(rewrites.approve(rewrite_request_id, reason=reason)))


@held.command()
@short_id_argument("rewrite_request_id", HELD)
@text_option("--text", "The text to deliver instead")
@reason_option
@operator_options
@click.pass_context
def edit(
    ctx: click.Context,
    rewrite_request_id: str,
    text: str,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Deliver an edited text instead. It must pass the gate."""
    with held_of(ctx, actor, role, org_id) as rewrites:
        print_json(asdict(rewrites.edit(rewrite_request_id, text=text, reason=reason)))


@held.command()
@short_id_argument("rewrite_request_id", HELD)
@reason_option
@operator_options
@click.pass_context
def reject(
    ctx: click.Context,
    rewrite_request_id: str,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Reject a held rewrite. It is never delivered, and its text is erased."""
    with held_of(ctx, actor, role, org_id) as rewrites:
        print_json(asdict(rewrites.reject(rewrite_request_id, reason=reason)))
