"""holdfast visits"""

from __future__ import annotations

import click


@click.command()
def visits() -> None:
    """Print that the extension is installed."""
    click.echo("visits are counted")
