"""The command ``holdfast-simulator``, which is also ``holdfast simulator``."""

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
from holdfast_simulator.ask import Responder
from holdfast_simulator.faults import ALL_SCRIPTS

LONGEST_SECONDS = 2_592_000


class CommandFailed(click.ClickException):
    """The simulator cannot start; printed in one line, exit code 1."""

    def show(self, file: IO[str] | None = None) -> None:
        click.echo(f"holdfast: {self.format_message()}", file=file, err=file is None)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    default=8790,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 takes a free one.",
)
@click.option(
    "--smtp-port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Where mail is taken; 0 takes a free one.",
)
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same bytes.")
@click.option(
    "--virtual-clock", is_flag=True, help="Time stands still until POST /_sim/clock moves it."
)
@click.option(
    "--seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How long a batch runs, apart from a second each before and after.",
)
@click.option("--responder", help="Who answers, as module:function.  [default: an echo]")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    help="A fault to play, as NAME or NAME,option=value,…; may be repeated.",
)
@click.option("--list-faults", is_flag=True, help="Print every fault and its options, and end.")
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
    """Model providers on this machine: files, batches and direct calls, and nothing is paid.

    The official clients of OpenAI, Azure, Gemini, Anthropic and Mistral work against it with
    another base URL and any key. Mail, Postmark, Resend, Slack and webhooks are taken too, and
    nothing is delivered. It ends with Ctrl-C, and forgets everything.
    """
    if list_faults:
        _list_faults()
        return
    # Not the option's own range: what is no number is within every range.
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
        for name in running.world.doors:
            click.echo(f"{name:<10} {running.url(name)}")
        click.echo(f"{'smtp':<10} {mail.host}:{mail.port}")
        click.echo(f"{'control':<10} {running.origin}/_sim")
        stopped.wait()


def main() -> None:
    """The console script."""
    simulator(prog_name="holdfast-simulator")


def _taken(host: str, port: int, option: str, exc: OSError) -> CommandFailed:
    return CommandFailed(
        f"Nothing can listen on {host}:{port}: {exc.strerror}. Choose another {option}."
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
        raise CommandFailed(f"The responder {place} is not a function: it must take an Ask.")
    return found
