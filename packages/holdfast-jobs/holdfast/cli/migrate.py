"""holdfast migrate"""

from __future__ import annotations

import click

from holdfast.cli.given import app_of, json_option, print_json, settings_of
from holdfast.operate.database import migrate_database

_ONE_LOGIN = (
    "Handlers use the login of db, so handler SQL can bypass the tenant isolation. 'holdfast"
    " handler-login NAME' prints the SQL for a separate login."
)


@click.command()
@json_option
@click.pass_context
def migrate(ctx: click.Context, as_json: bool) -> None:
    """Create or upgrade the database schema.

    Safe to run twice and concurrently. The core and every enabled or installed extension are
    migrated, each with its own versions; `extensions` in the settings file restricts them.

    Queue limits of the settings are written too, and with an application its queues, categories and
    job type rules, so that they apply before the first worker starts.
    """
    app = app_of(ctx, required=bool(ctx.obj["app"] or settings_of(ctx).app), creates=True)
    done = migrate_database(app)
    if as_json:
        versions = dict(done.versions)
        print_json({"database": done.database, "applied": list(done.applied), "versions": versions})
        return
    for name in done.applied:
        click.echo(f"applied {name}")
    if done.applied and done.has_roles and app.settings.handler_db is None:
        click.echo(_ONE_LOGIN)
    for name, version in done.versions.items():
        click.echo(f"{name} {version}")
    click.echo(f"{done.database}: the schema is up to date.")
