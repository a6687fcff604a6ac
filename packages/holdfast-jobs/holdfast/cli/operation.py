"""Options of `holdfast worker` for its operation: health, recycling, concurrency."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast

F = TypeVar("F", bound=Callable[..., Any])

LAST_PORT = 65535
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)I?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Size(click.ParamType[int]):
    """An amount of memory, such as 512M or 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a memory size such as 512M or 2G", param, ctx)
        return int(float(match[1]) * _UNITS[match[2].upper()])


def operation_options(command: F) -> F:
    """Add the options that concern the operation of the process."""
    for option in reversed(
        (
            click.option(
                "--max-jobs",
                type=click.IntRange(1),
                help="Exit with code 75 after this many jobs, for a restart.",
            ),
            click.option(
                "--max-memory",
                type=Size(),
                help="Exit with code 75 above this much memory, like 512M.",
            ),
            click.option(
                "--health-port",
                type=click.IntRange(1, LAST_PORT),
                help="Port for /healthz, /readyz and /waits; with --processes each process uses"
                " the next one.",
            ),
            click.option(
                "--health-host",
                default="127.0.0.1",
                show_default=True,
                help="Address of the health server.",
            ),
        )
    ):
        command = option(command)
    return command


def telling_health(
    hf: Holdfast, running: Any, host: str, port: int | None, *, is_child: bool = False
) -> AbstractContextManager[object]:
    """Serve the health of a worker over HTTP and tell it to systemd, if either is wanted.

    Without *running*, it is the health of the parent of several workers.
    """
    from os import environ

    notifies = "NOTIFY_SOCKET" in environ and not is_child
    if port is None and not notifies:
        return nullcontext()
    from holdfast.telemetry.health import ALWAYS, HealthServer, health_of, notifying

    health = ALWAYS if running is None else health_of(running)
    stack = ExitStack()
    if port is not None:
        try:
            stack.enter_context(HealthServer(hf, health, host, port))
        except OSError as exc:
            raise click.BadParameter(
                f"Cannot listen on {host}:{port}: {exc.strerror}.", param_hint="--health-port"
            ) from exc
    if notifies:
        stack.enter_context(notifying(health))
    return stack
