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
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the databases; it must be empty.  [default: a new temporary folder]",
)
@click.pass_context
def demo(ctx: click.Context, plain: bool, folder: Path | None) -> None:
    """Run the demo: a flood, a killed worker, lost answers.

    It needs no keys and no servers, uses SQLite files in a new temporary folder, and takes less
    than 20 seconds. The folder stays; the demo prints commands to look at it. Installed extensions
    add acts: a mail server and a model provider whose answers are lost, and a message that is
    rewritten. Exits with 1 if anything is lost, doubled, paid twice or leaked.
    """
    # A terminated demo stops its workers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty", param_hint="--folder")
    summary = Story(folder, _view(plain)).run()
    ctx.exit(1 if summary.problems else 0)


def _view(plain: bool) -> View:
    if plain or not sys.stdout.isatty():
        return Lines()
    try:
        from holdfast.demo.stage import Stage
    except ModuleNotFoundError:
        click.echo("For the live picture: pip install 'holdfast-jobs[demo]'\n")
        return Lines()
    return Stage()
