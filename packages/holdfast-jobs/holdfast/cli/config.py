"""holdfast config show"""

from __future__ import annotations

import difflib

import click

from holdfast.cli.given import json_option, print_json, print_table
from holdfast.clock import SystemClock
from holdfast.config import load
from holdfast.config.load import variable_names
from holdfast.config.show import show
from holdfast.operate.schedules import check_declared


@click.group()
def config() -> None:
    """Show the settings."""


@config.command("show")
@json_option
@click.pass_context
def show_settings(ctx: click.Context, as_json: bool) -> None:
    """Print the settings in force and their sources.

    Secrets are hidden.
    """
    loaded = load(db=ctx.obj["db"], app=ctx.obj["app"])
    check_declared(loaded.settings, SystemClock())
    rows = [
        {
            "key": item.key,
            "value": item.value,
            "source": item.source,
            "where": item.where or None,
        }
        for item in show(loaded)
    ]
    if as_json:
        print_json({"settings": rows, "ignored": list(loaded.ignored)})
        return
    print_table(
        [{**row, "from": row["where"] or row["source"]} for row in rows], ("key", "value", "from")
    )
    for name in loaded.ignored:
        near = difflib.get_close_matches(name, variable_names(), n=1)
        mend = f"; did you mean {near[0]}?" if near else "."
        click.echo(
            f"The environment variable {name} is not a setting and is ignored{mend}", err=True
        )
