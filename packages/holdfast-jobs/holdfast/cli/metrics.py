"""holdfast metrics"""

from __future__ import annotations

import click

from holdfast.cli.given import app_of


@click.command()
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print what the database knows of itself, once, in Prometheus's text format.

    Without --app no job type is known, and all of them are counted as "other".
    """
    from holdfast.telemetry.metrics import database_text

    with app_of(ctx, required=False) as hf:
        click.echo(database_text(hf), nl=False)
