"""docs/reference/cli.md: every command with its arguments and options, from the click tree."""

from __future__ import annotations

import re

import click

from holdfast.cli import cli, command_groups
from reference_pages.page import Page, code, introduction


def build() -> Page:
    page = Page()
    page.add(introduction("commands"), "## Global options", "They are written before the command.")
    context = click.Context(cli, info_name="holdfast")
    _add_options(page, "holdfast", cli, context)
    groups = command_groups()
    page.add("## Commands")
    for title, names in groups.items():
        rows = [[f"[`{name}`](#holdfast-{name})", _summary(name, context)] for name in names]
        page.add(f"**{title}**")
        page.table(("Command", "Purpose"), rows)
    for names in groups.values():
        for name in names:
            command = cli.get_command(context, name)
            assert command is not None
            _add_command(page, name, command, context)
    return page


def _summary(name: str, context: click.Context) -> str:
    command = cli.get_command(context, name)
    assert command is not None
    return command.get_short_help_str(200)


def _add_command(page: Page, name: str, command: click.Command, above: click.Context) -> None:
    context = click.Context(command, info_name=name, parent=above)
    path = context.command_path
    level = "##" if isinstance(above.command, click.Group) and above.command is cli else "###"
    page.add(f"{level} holdfast {path.removeprefix('holdfast ')}")
    page.add(*_help(page.need(path, command.help)))
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    page.add(f"Usage: `{usage}`")
    _add_options(page, path, command, context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            _add_command(page, inner, found, context)


def _help(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]


def _add_options(page: Page, path: str, command: click.Command, context: click.Context) -> None:
    rows = []
    for param in command.params:
        if not isinstance(param, click.Option) or param.hidden:
            continue
        record = param.get_help_record(context)
        if record is None:
            continue
        names, said = record
        described = page.need(f"{path} {param.opts[0]}", param.help)
        extra = re.search(r"\[[^\]]*\]$", said)
        if extra and not described.endswith("]"):
            described = f"{described} {extra[0]}"
        rows.append([code(names), described])
    if rows:
        page.table(("Option", "Meaning"), rows)
