"""The command ``holdfast-simulator``, also available as ``holdfast simulator``."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from typing import IO, Any

import click

from holdfast_simulator import MovingClock, Pace, Simulator, VirtualClock, respond
from holdfast_simulator.faults import ALL_SCRIPTS
from holdfast_simulator.prompt import Responder

LONGEST_SECONDS = 2_592_000


class CommandFailed(click.ClickException):
    """The simulator cannot start. Printed as one line; the exit code is 1."""

    def show(self, file: IO[str] | None = None) -> None:
        click.echo(f"holdfast: {self.format_message()}", file=file, err=file is None)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8790,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port; 0 selects a free one.",
)
@click.option(
    "--smtp-port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="SMTP port; 0 selects a free one.",
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed; equal seeds produce equal output."
)
@click.option("--virtual-clock", is_flag=True, help="Stop time until POST /_sim/clock advances it.")
@click.option(
    "--seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Run time of a batch, plus a second before and after.",
)
@click.option(
    "--responder", help="Function that answers requests, as module:function.  [default: an echo]"
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    help="Fault to simulate, as NAME or NAME,option=value,…; repeatable.",
)
@click.option("--list-faults", is_flag=True, help="Print every fault and its options, then exit.")
def simulator(
    host: str,
    port: int,
    smtp_port: int,
    seed: int,
    virtual_clock: bool,
    seconds: float,
    responder: str | None,
    faults: tuple[str, ...],
    list_faults: bool,
) -> None:
    """Simulate model providers and message channels locally.

    The official clients of OpenAI, Azure, Gemini, Anthropic and Mistral work with its base URL and
    any key. It also accepts SMTP mail and the APIs of Postmark, Resend, Slack and webhooks, and
    delivers nothing. Stop it with Ctrl-C; nothing is kept.
    """
    if list_faults:
        _list_faults()
        return
    # click's range check accepts NaN, so this check is written as a negation.
    if not seconds <= LONGEST_SECONDS:
        raise click.BadParameter(
            f"it must be at most {LONGEST_SECONDS:,}, 30 days.", param_hint="--seconds"
        )
    try:
        running = Simulator(
            clock=VirtualClock() if virtual_clock else MovingClock(),
            seed=seed,
            pace=Pace(1.0, seconds, 1.0, 1.0),
            responder=respond if responder is None else _load(responder),
            host=host,
            port=port,
        )
    except OSError as exc:
        raise _taken(host, port, "--port", exc) from None
    stopped = threading.Event()
    with running:
        try:
            mail = running.mail_server(smtp_port)
        except OSError as exc:
            raise _taken(host, smtp_port, "--smtp-port", exc) from None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        for fault in faults:
            _add(running, fault)
        for name in running.state.endpoints:
            click.echo(f"{name:<10} {running.url(name)}")
        click.echo(f"{'smtp':<10} {mail.host}:{mail.port}")
        click.echo(f"{'control':<10} {running.origin}/_sim")
        stopped.wait()


def main() -> None:
    """The console script."""
    simulator(prog_name="holdfast-simulator")


def _taken(host: str, port: int, option: str, exc: OSError) -> CommandFailed:
    return CommandFailed(
        f"Cannot listen on {host}:{port}: {exc.strerror}. Choose another {option}."
    )


def _list_faults() -> None:
    for script in ALL_SCRIPTS.values():
        options = ", ".join(f"{name}={_plain(value)}" for name, value in script.options.items())
        click.echo(f"{script.number:>3}  {script.name:<30} {script.summary}")
        if options:
            click.echo(f"     {'':<30} {options}")


def _plain(value: Any) -> str:
    return json.dumps(value)


def _add(running: Simulator, fault: str) -> None:
    name, *given = fault.split(",")
    options: dict[str, Any] = {}
    for option in given:
        key, is_set, value = option.partition("=")
        if not is_set:
            raise click.BadParameter(f"{option!r} is not option=value.", param_hint="--fault")
        try:
            options[key.strip()] = json.loads(value)
        except ValueError:
            options[key.strip()] = value
    try:
        running.faults.add(name.strip(), **options)
    except (ValueError, TypeError) as exc:
        raise click.BadParameter(str(exc), param_hint="--fault") from None


def _load(place: str) -> Responder:
    module, _, name = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Responder = getattr(importlib.import_module(module), name or "respond")
    except (ImportError, AttributeError) as exc:
        raise CommandFailed(f"There is no responder {place}: {exc}.") from None
    if not callable(found):
        raise CommandFailed(f"The responder {place} is not a function: it must take a Prompt.")
    return found
