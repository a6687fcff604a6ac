"""``holdfast pager``."""

from __future__ import annotations

import click


@click.command()
@click.argument("number")
def pager(number: str) -> None:
    """Say whether NUMBER can be paged."""
    from holdfast_pager.channel import PagerKind

    problem = PagerKind().problem(None, number, "", "")
    click.echo(problem or f"{number} can be paged")
