"""holdfast visits"""

from __future__ import annotations

import click


@click.command()
def visits() -> None:
    """Say that the extension is here."""
    click.echo("visits are counted")
