"""holdfast migrate"""

from __future__ import annotations

import click

from holdfast.cli.given import app_of, json_option, print_json, settings_of
from holdfast.engine.category import sync_categories
from holdfast.engine.declared import sync_declared
from holdfast.extension import components_of
from holdfast.store import open_store
from holdfast.store.component import in_order

_ONE_LOGIN = (
    "Handlers run on the login of db: between tenants that is a guard rail and not a wall."
    " 'holdfast handler-login NAME' prints the SQL for a login of their own."
)


@click.command()
@json_option
@click.pass_context
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Bring the database's schema up to this version. Safe to run twice, and by two at once.

    The core and every extension that is enabled or installed are migrated, each with versions of
    its own; `extensions` in the settings file names the ones to migrate instead.

    Queue limits of the settings are written too, and with an application its queues, categories
    and job type rules, so that they hold before the first worker starts.
    """
    app = app_of(ctx, required=bool(ctx.obj["app"] or settings_of(ctx).app))
    settings, registry = app.settings, app.registry
    components = in_order(components_of(app.extensions.available()))
    store = open_store(settings.db, check=False, components=components)
    try:
        applied = store.migrate()
        store.check_schema()
        sync_categories(store, registry.categories.values())
        sync_declared(store, settings, registry)
        database, has_roles = store.version(), store.dialect.has_roles
        versions = store.component_versions()
    finally:
        store.close()
    if as_json:
        print_json({"database": database, "applied": applied, "versions": versions})
        return
    for name in applied:
        click.echo(f"applied {name}")
    if applied and has_roles and settings.handler_db is None:
        click.echo(_ONE_LOGIN)
    for component in components:
        click.echo(f"{component.name} {versions[component.name]}")
    click.echo(f"{database}: the schema is up to date.")
