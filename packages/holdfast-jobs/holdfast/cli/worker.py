"""holdfast worker"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import click

from holdfast import Worker
from holdfast.app import Holdfast
from holdfast.cli.given import (
    app_of,
    async_concurrency_option,
    concurrency_option,
    log_level_option,
)
from holdfast.cli.logged import logged, watch
from holdfast.cli.operation import operation_options, telling_health
from holdfast.cli.signals import drain_on_signals
from holdfast.operate.processes import (
    RECYCLE,
    Dispatcher,
    dispatching,
    enable_development,
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
@click.option(
    "--dev",
    is_flag=True,
    envvar="HOLDFAST_DEV",
    help="Print failures with message and traceback on the terminal.",
)
@click.option("--reload", is_flag=True, help="Restart when a source file below here changes.")
@operation_options
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
    dev: bool,
    reload: bool,
    max_jobs: int | None,
    max_memory: int | None,
    health_port: int | None,
    health_host: str,
    log_level: str | None,
    worker_id: str | None,
) -> None:
    """Run a worker until it is stopped.

    The first SIGTERM lets running jobs finish and releases the others; the second stops at once.
    Exits with 75 if the supervisor must restart it.

    For development, --dev prints exceptions, which are never stored or logged, and --reload
    restarts the worker after a change of the code.
    """
    if reload:
        from holdfast.cli.reload import run_reloading

        ctx.exit(run_reloading([one for one in sys.argv[1:] if one != "--reload"]))
    if dev:
        enable_development()
    hf = app_of(ctx, required=True)
    watch(hf, log_level)
    # The database gauges are exported once per machine: by the parent, if there is one.
    serving = serve_metrics(hf, metrics_host, metrics_port, database=worker_id is None)
    if processes > 1:
        with hf, serving, telling_health(hf, None, health_host, health_port):
            ctx.exit(_supervise(hf, processes, metrics_port, health_port))
    running = hf.worker(
        queues=read_queues(hf, queues),
        concurrency=concurrency,
        async_concurrency=async_concurrency,
        worker_id=worker_id,
        drain_seconds=drain_seconds,
        max_jobs=max_jobs,
        max_memory_bytes=max_memory,
    )
    is_child = worker_id is not None
    telling = telling_health(hf, running, health_host, health_port, is_child=is_child)
    dispatcher = None
    if dispatch:
        dispatcher = make_dispatcher(
            hf, concurrency=concurrency, async_concurrency=async_concurrency
        )
    with serving, telling:
        ctx.exit(_run(hf, running, dispatcher, until_idle=until_idle))


def _run(hf: Holdfast, running: Worker, dispatcher: Dispatcher | None, *, until_idle: bool) -> int:
    """Run the worker, and the dispatcher if there is one; return the exit code."""
    if dispatcher is None:
        drain_on_signals(running)
        running.run(until_idle=until_idle)
    else:
        drain_on_signals(running, dispatcher)
        with dispatching(hf, running, dispatcher):
            running.run(until_idle=until_idle)
    hf.close()
    if running.must_recycle:
        return RECYCLE
    return 1 if running.stop_requested else 0


def serve_metrics(
    hf: Holdfast, host: str, port: int | None, *, database: bool
) -> AbstractContextManager[object]:
    """Serve metrics if a port is given; otherwise Prometheus is not imported."""
    if port is None:
        return nullcontext()
    from holdfast.telemetry.metrics import Metrics

    return Metrics(hf, database=database).serve(port, host)


def _supervise(
    hf: Holdfast, processes: int, metrics_port: int | None, health_port: int | None
) -> int:
    """Start this command once per process, without the option for processes.

    The parent keeps the metrics and health ports; each child uses one of the following ports.
    """
    ports = {"--metrics-port": metrics_port, "--health-port": health_port}
    arguments = _without("--processes", sys.argv[1:])
    for option, port in ports.items():
        arguments = _without(option, arguments)
        if port is not None and port + processes > LAST_PORT:
            raise click.BadParameter(
                f"--processes {processes} needs {processes} consecutive ports.", param_hint=option
            )
    command = [sys.executable, "-m", "holdfast", *arguments]

    def start(worker_id: str, place: int) -> list[str]:
        own = [
            word
            for option, port in ports.items()
            if port is not None
            for word in (option, str(port + 1 + place))
        ]
        return [*command, *own, "--worker-id", worker_id]

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
