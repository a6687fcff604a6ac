"""Long-running commands: all their output is log lines, including fatal errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click

from holdfast.app import Holdfast
from holdfast.cli import exit_code
from holdfast.telemetry import log
from holdfast.telemetry.alert import alert_as_set

F = TypeVar("F", bound=Callable[..., Any])


def logged(command: F) -> F:
    """Decorate a command so that errors are logged instead of printed with a traceback."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        log.install(options.get("log_level") or "info")
        try:
            return command(*args, **options)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as exc:
            log.write_end(exc)
            raise click.exceptions.Exit(exit_code(exc)) from exc

    return cast(F, run)


def watch(hf: Holdfast, log_level: str | None) -> None:
    """Log the events of *hf*, and send alerts as configured.

    The application may have configured logging on import; the lines of Holdfast are unaffected.
    """
    log.install(log_level or hf.settings.log_level)
    hf.events.subscribe(log.log_event)
    alert_as_set(hf)
