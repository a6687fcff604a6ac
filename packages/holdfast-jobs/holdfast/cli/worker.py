"""holdfast worker"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import click

from holdfast.cli.given import (
    app_of,
    async_concurrency_option,
    concurrency_option,
    log_level_option,
)
from holdfast.cli.logged import logged, watch
from holdfast.cli.signals import drain_on_signals
from holdfast.engine.agenda import sync_schedules
from holdfast.engine.dispatch import Dispatcher
from holdfast.engine.supervise import RECYCLE, Supervisor
from holdfast.engine.worker import Worker
from holdfast.errors import UnknownQueue
from holdfast.event import WorkerChanged
from holdfast.holdfast import Holdfast

LAST_PORT = 65535


@click.command()
@click.option("--queues", help="Which queues to serve, comma-separated.  [default: all declared]")
@concurrency_option
@async_concurrency_option
@click.option(
    "--processes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 256),
    help="Worker processes under one parent.",
)
@click.option("--dispatch", is_flag=True, help="Also fire what is due by the clock.")
@click.option("--until-idle", is_flag=True, help="Stop when nothing is due.")
@click.option(
    "--drain-seconds",
    default=30.0,
    show_default=True,
    type=float,
    help="How long running jobs may take to finish after the first SIGTERM.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, LAST_PORT),
    help="Serve metrics for Prometheus here; with --processes each serves its own on the next.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="Where to listen for scrapes."
)
@log_level_option
@click.option("--worker-id", hidden=True)
@click.pass_context
@logged
def worker(
    ctx: click.Context,
    queues: str | None,
    concurrency: int,
    async_concurrency: int,
    processes: int,
    dispatch: bool,
    until_idle: bool,
    drain_seconds: float,
    metrics_port: int | None,
    metrics_host: str,
    log_level: str | None,
    worker_id: str | None,
) -> None:
    """Run jobs until told to stop.

    The first SIGTERM lets running jobs finish and gives the others back; the second stops at once.
    """
    hf = app_of(ctx, required=True)
    watch(hf, log_level)
    # The database is looked at once a machine: by the parent, if there is one.
    serving = serve_metrics(hf, metrics_host, metrics_port, database=worker_id is None)
    if processes > 1:
        with hf, serving:
            ctx.exit(_supervise(hf, processes, metrics_port))
    running = hf.worker(
        queues=_names(hf, queues),
        concurrency=concurrency,
        async_concurrency=async_concurrency,
        worker_id=worker_id,
        drain_seconds=drain_seconds,
    )
    dispatcher = None
    if dispatch:
        dispatcher = Dispatcher(hf, concurrency=concurrency, async_concurrency=async_concurrency)
        drain_on_signals(running, dispatcher)
    else:
        drain_on_signals(running)
    with serving, dispatching(hf, running, dispatcher) if dispatcher else nullcontext():
        running.run(until_idle=until_idle)
    hf.close()
    if running.must_recycle:
        ctx.exit(RECYCLE)
    ctx.exit(1 if running.was_stopped else 0)


def serve_metrics(
    hf: Holdfast, host: str, port: int | None, *, database: bool
) -> AbstractContextManager[object]:
    """Metrics on a port if one is given; nothing of Prometheus is imported otherwise."""
    if port is None:
        return nullcontext()
    from holdfast.telemetry.metrics import Metrics

    return Metrics(hf, database=database).serve(port, host)


@contextmanager
def dispatching(hf: Holdfast, running: Worker, dispatcher: Dispatcher) -> Iterator[None]:
    """A dispatcher beside the worker, in a thread of its own.

    If it dies of a defect, the worker asks to be started anew: nothing goes on half alive.
    """
    sync_schedules(hf)

    def run() -> None:
        try:
            dispatcher.run()
        except Exception as exc:
            hf.events.emit(WorkerChanged(running.id, "dispatcher_died", type(exc).__qualname__))
            running.must_recycle = True
            running.drain()

    thread = threading.Thread(target=run, name="holdfast-dispatch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        dispatcher.drain()
        deadline = time.monotonic() + running.drain_seconds
        # In short steps: a second signal may come meanwhile.
        while thread.is_alive() and not running.was_stopped and time.monotonic() < deadline:
            thread.join(timeout=0.1)


def _names(hf: Holdfast, given: str | None) -> list[str]:
    """The queues to serve; one that nobody declared is a slip of the pen."""
    if given is None:
        return hf.known_queues
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in hf.known_queues:
            raise UnknownQueue(name, hf.known_queues)
    return names


def _supervise(hf: Holdfast, processes: int, metrics_port: int | None) -> int:
    """Start this same command again, once a process, without the option that brought us here.

    The parent keeps the port for metrics; its children have the ports after it, each its own.
    """
    if metrics_port is not None and metrics_port + processes > LAST_PORT:
        raise click.BadParameter(
            f"{processes} processes need the {processes} ports after it.",
            param_hint="--metrics-port",
        )
    arguments = _without("--metrics-port", _without("--processes", sys.argv[1:]))
    command = [sys.executable, "-m", "holdfast", *arguments]

    def start(worker_id: str, place: int) -> list[str]:
        port = [] if metrics_port is None else ["--metrics-port", str(metrics_port + 1 + place)]
        return [*command, *port, "--worker-id", worker_id]

    supervisor = Supervisor(hf.store, start, processes=processes, events=hf.events)
    return supervisor.run()


def _without(option: str, arguments: Sequence[str]) -> list[str]:
    """*arguments* without *option* and its value, however they are written."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == option:
            next(rest, None)
        elif not argument.startswith(f"{option}="):
            kept.append(argument)
    return kept
