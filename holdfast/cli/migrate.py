"""holdfast migrate"""

from __future__ import annotations

import click

from holdfast.cli.given import app_of, json_option, print_json, settings_of
from holdfast.engine.category import Category, sync_categories
from holdfast.store import open_store


@click.command()
@json_option
@click.pass_context
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Bring the database's schema up to this version. Safe to run twice, and by two at once.

    With an application, its own categories are written too.
    """
    settings = settings_of(ctx)
    declared: list[Category] = []
    if ctx.obj["app"] or settings.app:
        declared = list(app_of(ctx, required=True).registry.categories.values())
    store = open_store(settings.db, check=False)
    try:
        applied = store.migrate()
        store.check_schema()
        sync_categories(store, declared)
        version = store.version()
    finally:
        store.close()
    if as_json:
        print_json({"database": version, "applied": applied})
        return
    for name in applied:
        click.echo(f"applied {name}")
    click.echo(f"{version}: the schema is up to date.")
