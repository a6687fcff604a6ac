"""``holdfast keys``: the API keys of the HTTP API and the console."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from holdfast.cli.given import (
    ShortId,
    actor_option,
    app_of,
    json_option,
    operator_of,
    print_json,
    print_table,
)
from holdfast.operate.api_keys import ApiKey, CreatedKey

_COLUMNS = ("id", "name", "prefix", "role", "scopes", "org_id", "last_used_at", "state")
reason_option = click.option("--reason", required=True, help="Reason recorded in the audit.")


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="Role of the key.",
)
@click.option("--org", "org_id", type=ShortId("tenants"), help="Tenant that the key is bound to.")
@click.option(
    "--scope", "scopes", multiple=True, help="Scope such as jobs:read; repeat it for several."
)
@click.option("--expires-in-days", type=click.IntRange(1, 3650), help="Days until it expires.")
@click.option(
    "--requests-per-minute", type=click.IntRange(1, 10_000_000), help="Limit of this key."
)
@reason_option
@actor_option
@json_option
@click.pass_context
def create(
    ctx: click.Context,
    name: str,
    role: str,
    org_id: str | None,
    scopes: tuple[str, ...],
    expires_in_days: int | None,
    requests_per_minute: int | None,
    reason: str,
    actor: str,
    as_json: bool,
) -> None:
    """Create a key and print it. It cannot be printed again.

    Without --org it is a key of operations, which sees every tenant.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        until = None
        if expires_in_days is not None:
            until = hf.clock.now() + timedelta(days=expires_in_days)
        made = operator_of(hf, actor).api_keys.create(
            name,
            role=role,
            reason=reason,
            org_id=org_id,
            scopes=scopes,
            expires_at=until,
            requests_per_minute=requests_per_minute,
        )
    _print_made(made, as_json)


@keys.command(name="list")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Rows.")
@json_option
@click.pass_context
def list_keys(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List keys, newest first."""
    with app_of(ctx, required=False) as hf:
        found = [_row(key) for key in operator_of(hf).api_keys.list(limit=limit)]
    if as_json:
        print_json(found)
    else:
        print_table(
            found,
            _COLUMNS,
            empty="No API keys. Create one: holdfast keys create NAME --reason TEXT",
        )


@keys.command()
@click.argument("key_id")
@click.option(
    "--overlap-hours",
    default=24.0,
    show_default=True,
    type=click.FloatRange(0, 24 * 90),
    help="How long the old key stays valid.",
)
@reason_option
@actor_option
@json_option
@click.pass_context
def rotate(
    ctx: click.Context,
    key_id: str,
    overlap_hours: float,
    reason: str,
    actor: str,
    as_json: bool,
) -> None:
    """Replace a key by a new one with the same permissions.

    Prints the new key. It cannot be printed again.
    """
    with app_of(ctx, required=False) as hf:
        made = operator_of(hf, actor).api_keys.rotate(
            key_id, reason=reason, overlap=timedelta(hours=overlap_hours)
        )
    _print_made(made, as_json)


@keys.command()
@click.argument("key_id")
@reason_option
@actor_option
@click.pass_context
def revoke(ctx: click.Context, key_id: str, reason: str, actor: str) -> None:
    """Revoke a key and end its sessions, at once."""
    with app_of(ctx, required=False) as hf:
        done = operator_of(hf, actor).api_keys.revoke(key_id, reason=reason)
    click.echo(f"{key_id}  {'revoked' if done else 'was revoked already'}")


def _print_made(made: CreatedKey, as_json: bool) -> None:
    if as_json:
        print_json({**_row(made.key), "secret": made.secret})
        return
    click.echo(made.secret)
    click.echo(f"Key {made.key.id} was created. It is shown once: store it now.", err=True)


def _row(key: ApiKey) -> dict[str, Any]:
    found = asdict(key)
    return {**found, "scopes": " ".join(key.scopes), "state": _state(key)}


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        return "expired"
    return "replaced" if key.replaced_by is not None else "valid"
