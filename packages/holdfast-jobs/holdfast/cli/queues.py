"""holdfast queues list|wait|show|set|pause|resume|reset|tenants|tenant|keys|key"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from holdfast import KeySettings, QueueSettings, Rate, TenantSettings
from holdfast.cli.given import (
    actor_option,
    app_of,
    every_page,
    json_option,
    one_line,
    operator_of,
    print_json,
    print_table,
)
from holdfast.operate.queues import QueueView

COLUMNS = (
    "queue", "weight", "running_cap", "tenant_cap", "depth_cap", "rate", "waiting", "deferred",
    "oldest_at", "paused", "set_by",
)  # fmt: skip

reason_option = click.option("--reason", required=True, help="Reason recorded in the audit.")
without_option = click.option(
    "--without", multiple=True, help="Limit to remove, such as max-running."
)
reset_option = click.option(
    "--reset", "is_reset", is_flag=True, help="Return to the declared values."
)
cap_option = click.IntRange(1, 1_000_000_000)


class RateType(click.ParamType):  # type: ignore[type-arg]
    """A rate, such as 100/minute."""

    name = "rate"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Rate:
        if isinstance(value, Rate):
            return value
        try:
            return Rate.read(value)
        except ValueError:
            self.fail(f"{value!r} is not a rate such as 100/minute", param, ctx)


rate_option = click.option(
    "--rate", type=RateType(), help="Maximum start rate, such as 100/minute."
)


@click.group()
def queues() -> None:
    """Inspect, limit, pause and resume queues."""


@queues.command("list")
@json_option
@click.pass_context
def list_queues(ctx: click.Context, as_json: bool) -> None:
    """List queues with their limits and depths."""
    with app_of(ctx, required=False) as hf:
        found = [_whole(queue) for queue in every_page(operator_of(hf).queues.list)]
    if as_json:
        print_json(found)
    else:
        print_table([_line(queue) for queue in found], COLUMNS)


@queues.command()
@json_option
@click.pass_context
def wait(ctx: click.Context, as_json: bool) -> None:
    """Print how long the oldest ready job of each queue waits.

    Scale workers by this figure, not by depth.
    """
    from holdfast.telemetry.waits import queue_waits

    with app_of(ctx, required=False) as hf:
        waits = [asdict(one) for one in queue_waits(hf)]
    if as_json:
        print_json(waits)
    else:
        print_table(waits, ("queue", "wait_seconds", "ready", "is_paused"))


@queues.command()
@click.argument("queue")
@json_option
@click.pass_context
def show(ctx: click.Context, queue: str, as_json: bool) -> None:
    """Show one queue."""
    with app_of(ctx, required=False) as hf:
        whole = _whole(operator_of(hf).queues.get(queue))
    if as_json:
        print_json(whole)
        return
    for name, value in whole.items():
        if value is not None:
            click.echo(f"{name:24} {one_line(value)}")


@queues.command("set")
@click.argument("queue")
@click.option("--weight", type=click.IntRange(1, 100), help="Share of the workers.")
@click.option(
    "--max-running", type=cap_option, help="Maximum number of running jobs, over all tenants."
)
@click.option(
    "--max-running-per-tenant", type=cap_option, help="Maximum number of running jobs per tenant."
)
@click.option("--max-depth", type=cap_option, help="Maximum number of waiting jobs.")
@click.option(
    "--max-depth-per-tenant", type=cap_option, help="Maximum number of waiting jobs per tenant."
)
@click.option(
    "--small-depth", type=cap_option, help="Depth above which the queue_crowded alert is raised."
)
@rate_option
@without_option
@actor_option
@click.pass_context
def set_queue(
    ctx: click.Context, /, queue: str, without: tuple[str, ...], actor: str, **given: Any
) -> None:
    """Change limits of a queue; other limits stay.

    They take precedence over the limits that code declares.
    """
    changes = _changes(given, without, QueueSettings)
    if not changes:
        raise click.UsageError("Nothing to change: give at least one option.")
    with app_of(ctx, required=False, creates=True) as hf:
        operator_of(hf, actor).queues.set(queue, reason=ctx.command_path, **changes)
    click.echo(f"{queue}  set")


@queues.command()
@click.argument("queue")
@reason_option
@actor_option
@click.pass_context
def pause(ctx: click.Context, queue: str, reason: str, actor: str) -> None:
    """Pause a queue; running jobs continue."""
    with app_of(ctx, required=False, creates=True) as hf:
        paused = operator_of(hf, actor).queues.pause(queue, reason=reason)
    click.echo(f"{queue}  {'paused' if paused else 'was paused already'}")


@queues.command()
@click.argument("queue")
@reason_option
@actor_option
@click.pass_context
def resume(ctx: click.Context, queue: str, reason: str, actor: str) -> None:
    """Resume a paused queue."""
    with app_of(ctx, required=False, creates=True) as hf:
        resumed = operator_of(hf, actor).queues.resume(queue, reason=reason)
    click.echo(f"{queue}  {'resumed' if resumed else 'was not paused'}")


@queues.command()
@click.argument("queue")
@actor_option
@click.pass_context
def reset(ctx: click.Context, queue: str, actor: str) -> None:
    """Return a queue to its declared limits.

    Limits that only an application declares are restored when its worker starts.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        done = operator_of(hf, actor).queues.reset(queue, reason=ctx.command_path)
    click.echo(f"{queue}  {'reset' if done else 'already has its declared limits'}")


@queues.command()
@json_option
@click.pass_context
def tenants(ctx: click.Context, as_json: bool) -> None:
    """List the tenants that have a weight or limit."""
    with app_of(ctx, required=False) as hf:
        found = list(every_page(operator_of(hf).tenants.list))
    listed = [
        {"org_id": rule.org_id, **asdict(rule.settings), "set_by": rule.set_by} for rule in found
    ]
    _print_all(listed, ("org_id", "weight", "max_running", "set_by"), as_json)


@queues.command()
@json_option
@click.pass_context
def keys(ctx: click.Context, as_json: bool) -> None:
    """List the limit keys and their limits."""
    with app_of(ctx, required=False) as hf:
        found = list(every_page(operator_of(hf).limit_keys.list))
    listed = [{**asdict(rule), "key": rule.name, "rate": _rate(rule.rate)} for rule in found]
    _print_all(listed, ("key", "max_running", "rate", "set_by"), as_json)


@queues.command()
@click.argument("org_id")
@click.option("--weight", type=click.IntRange(1, 10), help="Share of the workers.")
@click.option(
    "--max-running", type=cap_option, help="Maximum number of running jobs, over all queues."
)
@without_option
@reset_option
@actor_option
@json_option
@click.pass_context
def tenant(
    ctx: click.Context,
    /,
    org_id: str,
    without: tuple[str, ...],
    is_reset: bool,
    actor: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Show or change the weight and limit of a tenant."""
    changes = _changes(given, without, TenantSettings)
    org_id = org_id.lower()
    with app_of(ctx, required=False, creates=True) as hf:
        tenants = operator_of(hf, actor).tenants
        if is_reset:
            done = tenants.reset(org_id, reason=ctx.command_path)
            click.echo(f"{org_id}  {'reset' if done else 'has no rule'}")
            return
        if changes:
            rule = tenants.set(org_id, reason=ctx.command_path, **changes)
        else:
            rule = tenants.get(org_id)
    _print({"org_id": org_id, **asdict(rule.settings)}, as_json)


@queues.command()
@click.argument("name")
@click.option(
    "--max-running", type=cap_option, help="Maximum number of running jobs, over all tenants."
)
@rate_option
@without_option
@reset_option
@actor_option
@json_option
@click.pass_context
def key(
    ctx: click.Context,
    /,
    name: str,
    without: tuple[str, ...],
    is_reset: bool,
    actor: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Show or change the limits of a limit key."""
    changes = _changes(given, without, KeySettings)
    with app_of(ctx, required=False, creates=True) as hf:
        keys = operator_of(hf, actor).limit_keys
        if is_reset:
            done = keys.reset(name, reason=ctx.command_path)
            click.echo(f"{one_line(name)}  {'reset' if done else 'has no rule'}")
            return
        rule = keys.set(name, reason=ctx.command_path, **changes) if changes else keys.get(name)
    _print({"key": name, "max_running": rule.max_running, "rate": rule.rate}, as_json)


def _changes(given: dict[str, Any], without: tuple[str, ...], of: type) -> dict[str, Any]:
    """The given changes, with limits to remove as None."""
    changes = {name: value for name, value in given.items() if value is not None}
    lifted = [_limit(name, of) for name in without]
    if both := sorted(set(changes) & set(lifted)):
        option = both[0].replace("_", "-")
        raise click.UsageError(f"--{option} and --without {option} are mutually exclusive.")
    return changes | dict.fromkeys(lifted)


def _limit(text: str, of: Any) -> str:
    name = text.replace("-", "_")
    if name not in of.__slots__ or name == "weight":
        raise click.BadParameter(f"{text!r} is not a limit", param_hint="--without")
    return name


def _rate(rate: Rate | None) -> str | None:
    return None if rate is None else str(rate)


def _print_all(rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print_json([{name: row[name] for name in columns} for row in rows])
    else:
        print_table(rows, columns)


def _print(rule: dict[str, Any], as_json: bool) -> None:
    rule = {name: str(value) if isinstance(value, Rate) else value for name, value in rule.items()}
    if as_json:
        print_json(rule)
    else:
        print_table([rule], tuple(rule))


def _whole(queue: QueueView) -> dict[str, Any]:
    """All fields of a queue, as one table."""
    found = asdict(queue)
    settings = {**found.pop("settings"), "rate": _rate(queue.settings.rate)}
    return {"queue": found.pop("name"), **settings, **found}


def _line(whole: dict[str, Any]) -> dict[str, Any]:
    return {
        **whole,
        "running_cap": whole["max_running"],
        "tenant_cap": whole["max_running_per_tenant"],
        "depth_cap": whole["max_depth"],
        "paused": whole["pause_reason"],
    }
