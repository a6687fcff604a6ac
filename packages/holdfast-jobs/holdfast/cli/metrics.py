"""holdfast metrics"""

from __future__ import annotations

import click

from holdfast.cli.given import app_of


@click.command()
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print the database gauges in Prometheus text format.

    Without --app no job types are known, and all are counted as "other".
    """
    from holdfast.telemetry.metrics import database_text

    with app_of(ctx, required=False) as hf:
        click.echo(database_text(hf), nl=False)
