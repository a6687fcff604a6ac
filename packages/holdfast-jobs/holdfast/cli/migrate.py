"""holdfast migrate"""

from __future__ import annotations

import click

from holdfast.cli.given import app_of, json_option, print_json, settings_of
from holdfast.engine.category import sync_categories
from holdfast.engine.declared import sync_declared
from holdfast.engine.handler import Registry
from holdfast.store import open_store

_ONE_LOGIN = (
    "Handlers run on the login of db: between tenants that is a guard rail and not a wall."
    " 'holdfast handler-login NAME' prints the SQL for a login of their own."
)


@click.command()
@json_option
@click.pass_context
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Bring the database's schema up to this version. Safe to run twice, and by two at once.

    Queue limits of the settings are written too, and with an application its queues, categories
    and job type rules, so that they hold before the first worker starts.
    """
    settings, registry = settings_of(ctx), Registry()
    if ctx.obj["app"] or settings.app:
        app = app_of(ctx, required=True)
        settings, registry = app.settings, app.registry
    store = open_store(settings.db, check=False)
    try:
        applied = store.migrate()
        store.check_schema()
        sync_categories(store, registry.categories.values())
        sync_declared(store, settings, registry)
        version, has_roles = store.version(), store.dialect.has_roles
    finally:
        store.close()
    if as_json:
        print_json({"database": version, "applied": applied})
        return
    for name in applied:
        click.echo(f"applied {name}")
    if applied and has_roles and settings.handler_db is None:
        click.echo(_ONE_LOGIN)
    click.echo(f"{version}: the schema is up to date.")
