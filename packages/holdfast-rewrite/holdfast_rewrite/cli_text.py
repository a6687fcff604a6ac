"""Texts as options of the CLI."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def read_text(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return an option's value, or standard input for ``-``.

    A text on standard input does not appear in process lists.
    """
    if value is None:
        return None
    if value == "-" and ctx.meta.setdefault("holdfast.stdin", param.name) != param.name:
        raise click.BadParameter("standard input can be read for one option only", param=param)
    try:
        text = sys.stdin.buffer.read().decode() if value == "-" else value
        text.encode()
    except UnicodeError:
        raise click.BadParameter("it is not UTF-8", param=param) from None
    return text.removesuffix("\n") if value == "-" else text


def text_option(name: str, says: str) -> Callable[[F], F]:
    return click.option(
        name, required=True, callback=read_text, help=f"{says}; - reads standard input."
    )
