"""The command line: one thin command per verb.

Exit codes: 0 success, 1 failed or found problems, 2 wrong usage, 3 not found, 4 database
unavailable or not migrated, 75 restart the worker, 130 interrupted. See docs/reference/cli.md.
"""

from __future__ import annotations

import gc
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
from holdfast.secret import hide_passwords

# The commands of the core by group, in the order of `holdfast --help`. They are imported on demand.
GROUPS = {
    "Jobs": {
        "enqueue": "holdfast.cli.enqueue:enqueue",
        "explain": "holdfast.cli.explain:explain",
        "jobs": "holdfast.cli.jobs:jobs",
        "run": "holdfast.cli.run:run",
        "runs": "holdfast.cli.run:runs",
        "schedules": "holdfast.cli.schedules:schedules",
        "worker": "holdfast.cli.worker:worker",
    },
    "Operations": {
        "audit": "holdfast.cli.audit:audit",
        "dead-letters": "holdfast.cli.dead_letters:dead_letters",
        "deliveries": "holdfast.cli.deliveries:deliveries",
        "doctor": "holdfast.cli.doctor:doctor",
        "metrics": "holdfast.cli.metrics:metrics",
        "queues": "holdfast.cli.queues:queues",
        "serve": "holdfast.cli.serve:serve",
        "verify": "holdfast.cli.verify:verify",
    },
    "Batch processing": {},
    "Applications": {},
    "Administration": {
        "config": "holdfast.cli.config:config",
        "grant": "holdfast.cli.grant:grant",
        "handler-login": "holdfast.cli.handler_login:handler_login",
        "keys": "holdfast.cli.keys:keys",
        "migrate": "holdfast.cli.migrate:migrate",
    },
    "Development": {
        "demo": "holdfast.cli.demo:demo",
    },
}


def offered_extensions() -> list[Any]:
    """The installed extensions, except those that the settings leave out."""
    try:
        listed = Settings.load().extensions
    except ConfigError:
        # The command that is called reports what is wrong with the settings.
        listed = None
    return [one for one in installed().values() if listed is None or one.name in listed]


def command_groups() -> dict[str, dict[str, str]]:
    """All top-level commands by group: those of the core and those of the extensions."""
    groups = {title: dict(commands) for title, commands in GROUPS.items()}
    for extension in offered_extensions():
        # "audit verify" is a command of the group audit.
        own = {name: place for name, place in extension.commands.items() if " " not in name}
        groups.setdefault(extension.command_group, {}).update(own)
    return {title: dict(sorted(commands.items())) for title, commands in groups.items() if commands}


class LazyGroup(click.Group):
    """The top-level command group. It imports a command when it is used and lists them by group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for commands in command_groups().values() for name in commands)

    def has_command(self, name: str) -> bool:
        """Whether there is such a command; it is not imported."""
        return _place_of(name) is not None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _place_of(cmd_name)
        return None if place is None else _load_command(place)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups = command_groups()
        longest = max(len(name) for commands in groups.values() for name in commands)
        for title, names in groups.items():
            found = [(name, command) for name in names if (command := self.get_command(ctx, name))]
            rows = [
                (name.ljust(longest), command.get_short_help_str(formatter.width - longest - 6))
                for name, command in found
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


class ExtensibleGroup(click.Group):
    """A group of the core that extensions add commands to, such as ``audit verify``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._added()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        place = self._added().get(cmd_name)
        return None if place is None else _load_command(place)

    def _added(self) -> dict[str, str]:
        start = f"{self.name} "
        return {
            name.removeprefix(start): place
            for extension in offered_extensions()
            for name, place in extension.commands.items()
            if name.startswith(start)
        }


def _load_command(place: str) -> click.Command:
    module, _, name = place.partition(":")
    found: click.Command = getattr(importlib.import_module(module), name)
    return found


def _place_of(name: str) -> str | None:
    """Where a command is defined. Commands of the core are found without loading extensions."""
    own = {one: place for commands in GROUPS.values() for one, place in commands.items()}
    if name in own:
        return own[name]
    added = (commands.get(name) for commands in command_groups().values())
    return next((place for place in added if place is not None), None)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", help="Database URL: sqlite:///FILE or postgresql://HOST/NAME.")
@click.option("--app", help="Application with the job declarations, as module:attribute.")
@click.version_option(package_name="holdfast-jobs", prog_name="holdfast")
@click.pass_context
def cli(ctx: click.Context, db: str | None, app: str | None) -> None:
    """Run and operate background jobs on SQLite or PostgreSQL.

    The database is taken from --db, HOLDFAST_DB or holdfast.toml. The default is ./holdfast.db.
    Exit codes: 0 success, 1 failed or found problems, 2 wrong usage, 3 not found, 4 database
    unavailable or not migrated.
    """
    ctx.obj = {"db": db, "app": app}


def script() -> None:
    """Run the command line and exit: the script ``holdfast``."""
    try:
        main()
    finally:
        # The interpreter searches for garbage before it exits: 22 of the 172 ms of `jobs list`.
        gc.freeze()


def main(argv: list[str] | None = None) -> None:
    """Run the command line. An error is printed as one sentence and sets the exit code."""
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
    """The message of an error without terminal control sequences."""
    from holdfast.visible import visible

    said = hide_passwords(str(exc))
    # Problems with settings have one line each; other errors are one line.
    lines = said.split("\n") if isinstance(exc, ConfigError) else [said]
    return "\n".join(visible(line) for line in lines)


def exit_code(exc: Exception) -> int:
    """The exit code of the process for an error."""
    if isinstance(exc, NotFound):
        return 3
    return 4 if isinstance(exc, (StoreDown, StoreBusy, SchemaMismatch)) else 1
