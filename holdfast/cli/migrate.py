"""holdfast migrate"""

from __future__ import annotations

import click

from holdfast.cli.given import json_option, print_json, settings_of
from holdfast.store import open_store


@click.command()
@json_option
@click.pass_context
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Bring the database's schema up to this version. Safe to run twice, and by two at once."""
    store = open_store(settings_of(ctx).db, check=False)
    try:
        applied = store.migrate()
        store.check_schema()
        version = store.version()
    finally:
        store.close()
    if as_json:
        print_json({"database": version, "applied": applied})
        return
    for name in applied:
        click.echo(f"applied {name}")
    click.echo(f"{version}: the schema is up to date.")
