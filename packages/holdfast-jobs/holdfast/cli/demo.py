"""holdfast demo"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from holdfast.demo.story import Story
from holdfast.demo.view import Lines, View


@click.command()
@click.option("--plain", is_flag=True, help="Print lines instead of a live display.")
@click.pass_context
def demo(ctx: click.Context, plain: bool) -> None:
    """Run the demo: two workers, a flood of jobs, one crash.

    It uses a SQLite file in a temporary directory, needs no keys and no servers, and takes about 12
    seconds. Exits with 1 if the counts in the database are not as expected at the end.
    """
    # Whoever ends the demo ends its workers and its folder with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        verdict = Story(Path(folder), _view(plain)).run()
    ctx.exit(1 if verdict.problems else 0)


def _view(plain: bool) -> View:
    if plain or not sys.stdout.isatty():
        return Lines()
    try:
        from holdfast.demo.stage import Stage
    except ModuleNotFoundError:
        click.echo("For the live picture: pip install 'holdfast-jobs[demo]'\n")
        return Lines()
    return Stage()
