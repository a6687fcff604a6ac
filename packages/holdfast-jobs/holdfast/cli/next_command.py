"""Commands to copy, on the database and with the application of the command that prints them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from holdfast.clock import write_instant
from holdfast.secret import hide_passwords

# Without the words that follow the program in prose, such as "the holdfast package".
_COMMAND = re.compile(r"\bholdfast (?=(?:--app \S+ )?([a-z][a-z-]*))")
# Options that change the output and not the rows.
_OUTPUT = ("as_json",)


def next_command(ctx: click.Context, *words: str) -> str:
    """A command with the ``--app`` and ``--db`` of this one."""
    return _join(["holdfast", *_given(ctx.find_root()), *words])


def next_page(ctx: click.Context, option: str, cursor: str) -> str:
    """This command with its own options, and *option* for the rows that follow."""
    replaced = option.removeprefix("--").replace("-", "_")
    words = ctx.command_path.split()[1:]
    words += _given(ctx, leave_out=(replaced, *_OUTPUT))
    return next_command(ctx, *words, option, cursor)


def complete_commands(ctx: click.Context, text: str, ids: Mapping[str, str] | None = None) -> str:
    """*text* with ``--app`` and ``--db`` in the commands that it names, and *ids* shortened."""
    root = ctx.find_root()
    # Asked for the words of the text only: listing the commands would import the extensions.
    has_command: Callable[[str], bool] = getattr(root.command, "has_command", lambda _: False)

    def complete(found: re.Match[str]) -> str:
        if not has_command(found[1]):
            return found[0]
        has_app = text.startswith("--app ", found.end())
        options = _given(root, leave_out=("app",) if has_app else ())
        return _join(["holdfast", *options]) + " "

    done = _COMMAND.sub(complete, text)
    for full, short in (ids or {}).items():
        done = done.replace(full, short)
    return done


def _given(ctx: click.Context, leave_out: Sequence[str] = ()) -> Iterator[str]:
    """The options of a command that were given, as words."""
    for param in ctx.command.params:
        name = param.name or ""
        is_given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not isinstance(param, click.Option) or not is_given or name in leave_out:
            continue
        value, option = ctx.params[name], max(param.opts, key=len)
        if param.is_flag:
            yield option
            continue
        for one in value if param.multiple else (value,):
            yield from (option, _text(one))


def _text(value: Any) -> str:
    return write_instant(value) if isinstance(value, datetime) else str(value)


def _join(words: list[str]) -> str:
    return hide_passwords(shlex.join(words))
