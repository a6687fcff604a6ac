"""holdfast handler-login"""

from __future__ import annotations

import re

import click

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@click.command("handler-login")
@click.argument("name")
def handler_login(name: str) -> None:
    """Print SQL that creates a PostgreSQL login for handlers.

    Run it once as an administrator: holdfast handler-login NAME | psql. Then set a password with
    \\password NAME in psql, and set handler_db. The login has the rights of one tenant at a time,
    and Holdfast selects the tenant of each transaction. This command changes nothing.
    """
    if _NAME.fullmatch(name) is None or name.startswith(("pg_", "holdfast_")):
        raise click.BadParameter(
            "use lower-case letters, digits and _, and begin with a letter; pg_ and holdfast_ are"
            " reserved",
            param_hint="NAME",
        )
    for statement in statements_for(name):
        click.echo(statement)


def statements_for(name: str) -> tuple[str, ...]:
    """The SQL that creates the handler login *name*."""
    return (
        f"CREATE ROLE {name} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB NOREPLICATION;",
        f"GRANT holdfast_handler TO {name};",
        "-- Handlers cannot read each other's SQL in pg_stat_activity; needs a superuser:",
        f"ALTER ROLE {name} SET track_activities = off;",
    )
