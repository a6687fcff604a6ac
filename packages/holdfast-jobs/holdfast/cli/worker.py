"""holdfast worker"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import click

from holdfast.app import Holdfast
from holdfast.cli.given import (
    app_of,
    async_concurrency_option,
    concurrency_option,
    log_level_option,
)
from holdfast.cli.logged import logged, watch
from holdfast.cli.signals import drain_on_signals
from holdfast.operate.processes import (
    RECYCLE,
    dispatching,
    make_dispatcher,
    read_queues,
    supervise,
)

LAST_PORT = 65535


@click.command()
@click.option("--queues", help="Queues to serve, comma-separated.  [default: all declared]")
@concurrency_option
@async_concurrency_option
@click.option(
    "--processes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 256),
    help="Number of worker processes under one parent.",
)
@click.option("--dispatch", is_flag=True, help="Also dispatch schedules.")
@click.option("--until-idle", is_flag=True, help="Stop when no job is due.")
@click.option(
    "--drain-seconds",
    default=30.0,
    show_default=True,
    type=float,
    help="Time for running jobs to finish after the first SIGTERM.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, LAST_PORT),
    help="Port of the metrics server; with --processes each process uses the next one.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, help="Address of the metrics server."
)
@log_level_option
@click.option("--worker-id", hidden=True, help="Id of the worker.  [default: generated]")
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
    """Run a worker until it is stopped.

    The first SIGTERM lets running jobs finish and releases the others; the second stops at once.
    Exits with 75 if the supervisor must restart it.
    """
    hf = app_of(ctx, required=True)
    watch(hf, log_level)
    # The database gauges are exported once per machine: by the parent, if there is one.
    serving = serve_metrics(hf, metrics_host, metrics_port, database=worker_id is None)
    if processes > 1:
        with hf, serving:
            ctx.exit(_supervise(hf, processes, metrics_port))
    running = hf.worker(
        queues=read_queues(hf, queues),
        concurrency=concurrency,
        async_concurrency=async_concurrency,
        worker_id=worker_id,
        drain_seconds=drain_seconds,
    )
    dispatcher = None
    if dispatch:
        dispatcher = make_dispatcher(
            hf, concurrency=concurrency, async_concurrency=async_concurrency
        )
        drain_on_signals(running, dispatcher)
    else:
        drain_on_signals(running)
    with serving, dispatching(hf, running, dispatcher) if dispatcher else nullcontext():
        running.run(until_idle=until_idle)
    hf.close()
    if running.must_recycle:
        ctx.exit(RECYCLE)
    ctx.exit(1 if running.stop_requested else 0)


def serve_metrics(
    hf: Holdfast, host: str, port: int | None, *, database: bool
) -> AbstractContextManager[object]:
    """Serve metrics if a port is given; otherwise Prometheus is not imported."""
    if port is None:
        return nullcontext()
    from holdfast.telemetry.metrics import Metrics

    return Metrics(hf, database=database).serve(port, host)


def _supervise(hf: Holdfast, processes: int, metrics_port: int | None) -> int:
    """Start this command once per process, without the option for processes.

    The parent keeps the metrics port; each child uses one of the following ports.
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

    return supervise(hf, start, processes=processes)


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
