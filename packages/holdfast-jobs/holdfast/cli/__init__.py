"""The command line: one thin command per verb.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not found, 4 the database is away or not
migrated, 75 a worker asks to be started anew.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import click

from holdfast.config import Settings
from holdfast.config.extensions import installed
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    NotFound,
    SchemaMismatch,
    StoreBusy,
    StoreDown,
)
from holdfast.redact import visible
from holdfast.secret import hide_passwords

# Commands are imported when they are called: the web, the database driver and the rest cost
# nothing to `holdfast jobs list`.
COMMANDS = {
    "audit": "holdfast.cli.audit:audit",
    "config": "holdfast.cli.config:config",
    "dead-letters": "holdfast.cli.dead_letters:dead_letters",
    "deliveries": "holdfast.cli.deliveries:deliveries",
    "demo": "holdfast.cli.demo:demo",
    "doctor": "holdfast.cli.doctor:doctor",
    "enqueue": "holdfast.cli.enqueue:enqueue",
    "explain": "holdfast.cli.explain:explain",
    "grant": "holdfast.cli.grant:grant",
    "handler-login": "holdfast.cli.handler_login:handler_login",
    "jobs": "holdfast.cli.jobs:jobs",
    "metrics": "holdfast.cli.metrics:metrics",
    "migrate": "holdfast.cli.migrate:migrate",
    "queues": "holdfast.cli.queues:queues",
    "run": "holdfast.cli.run:run",
    "runs": "holdfast.cli.run:runs",
    "schedules": "holdfast.cli.schedules:schedules",
    "verify": "holdfast.cli.verify:verify",
    "worker": "holdfast.cli.worker:worker",
}


def extension_commands() -> dict[str, str]:
    """The commands of the installed extensions, except those that the settings leave out."""
    try:
        listed = Settings.load().extensions
    except ConfigError:
        # The command that is called says what is wrong with the settings.
        listed = None
    return {
        name: place
        for extension in installed().values()
        if listed is None or extension.name in listed
        for name, place in extension.commands.items()
    }


class LazyGroup(click.Group):
    """A group whose commands are imported on demand: those of the core and of the extensions."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *(name for name in extension_commands() if " " not in name)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name) or extension_commands().get(cmd_name)
        return None if place is None else _load_command(place)


class ExtensibleGroup(click.Group):
    """A group of the core that extensions add commands to, such as ``audit verify``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        start = f"{self.name} "
        added = (name for name in extension_commands() if name.startswith(start))
        return sorted({*super().list_commands(ctx), *(name.removeprefix(start) for name in added)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        place = extension_commands().get(f"{self.name} {cmd_name}")
        return None if place is None else _load_command(place)


def _load_command(place: str) -> click.Command:
    module, _, name = place.partition(":")
    found: click.Command = getattr(importlib.import_module(module), name)
    return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", help="The database: sqlite:///FILE or postgresql://HOST/NAME.")
@click.option("--app", help="Where the jobs are declared, as module:attribute.")
@click.version_option(package_name="holdfast-jobs", prog_name="holdfast")
@click.pass_context
def cli(ctx: click.Context, db: str | None, app: str | None) -> None:
    """Background work that must not be lost, doubled or leaked.

    The database comes from --db, HOLDFAST_DB or holdfast.toml; without any of them it is
    ./holdfast.db.
    """
    ctx.obj = {"db": db, "app": app}


def main(argv: list[str] | None = None) -> None:
    """Run the command line; errors become one sentence and an exit code."""
    run: Callable[..., Any] = cli.main
    try:
        code = run(args=argv, prog_name="holdfast", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except HoldfastError as exc:
        click.echo(f"holdfast: {_said(exc)}", err=True)
        sys.exit(exit_code(exc))
    sys.exit(code if isinstance(code, int) else 0)


def _said(exc: HoldfastError) -> str:
    """What an error says, with nothing in it that acts on a terminal."""
    said = hide_passwords(str(exc))
    # Settings are listed a line each, and quote what they name; all else is one line.
    lines = said.split("\n") if isinstance(exc, ConfigError) else [said]
    return "\n".join(visible(line) for line in lines)


def exit_code(exc: Exception) -> int:
    """The code that a process ends with for *exc*."""
    if isinstance(exc, NotFound):
        return 3
    return 4 if isinstance(exc, (StoreDown, StoreBusy, SchemaMismatch)) else 1
