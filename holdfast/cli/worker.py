"""holdfast worker"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

import click

from holdfast.cli.given import (
    app_of,
    async_concurrency_option,
    concurrency_option,
    log_level_option,
)
from holdfast.engine.agenda import sync_schedules
from holdfast.engine.dispatch import Dispatcher
from holdfast.engine.supervise import RECYCLE, Supervisor
from holdfast.engine.worker import Worker
from holdfast.errors import UnknownQueue
from holdfast.event import WorkerChanged
from holdfast.holdfast import Holdfast
from holdfast.telemetry import log


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
@log_level_option
@click.option("--worker-id", hidden=True)
@click.pass_context
def worker(
    ctx: click.Context,
    queues: str | None,
    concurrency: int,
    async_concurrency: int,
    processes: int,
    dispatch: bool,
    until_idle: bool,
    drain_seconds: float,
    log_level: str,
    worker_id: str | None,
) -> None:
    """Run jobs until told to stop.

    The first SIGTERM lets running jobs finish and gives the others back; the second stops at once.
    """
    log.configure(log_level)
    hf = app_of(ctx, required=True)
    hf.events.subscribe(log.log_event)
    if processes > 1:
        ctx.exit(_supervise(hf, processes))
    running = hf.worker(
        queues=_names(hf, queues),
        concurrency=concurrency,
        async_concurrency=async_concurrency,
        worker_id=worker_id,
        drain_seconds=drain_seconds,
    )
    _on_signals(running)
    with dispatching(hf, running) if dispatch else nullcontext():
        running.run(until_idle=until_idle)
    hf.close()
    if running.must_recycle:
        ctx.exit(RECYCLE)
    ctx.exit(1 if running.was_stopped else 0)


@contextmanager
def dispatching(hf: Holdfast, running: Worker) -> Iterator[None]:
    """A dispatcher beside the worker, in a thread of its own.

    If it dies of a defect, the worker asks to be started anew: nothing goes on half alive.
    """
    sync_schedules(hf)
    dispatcher = Dispatcher(hf)

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
        dispatcher.stop()
        thread.join(timeout=0.0 if running.was_stopped else running.drain_seconds)


def _names(hf: Holdfast, given: str | None) -> list[str]:
    """The queues to serve; one that nobody declared is a slip of the pen."""
    if given is None:
        return hf.known_queues
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in hf.known_queues:
            raise UnknownQueue(name, hf.known_queues)
    return names


def _supervise(hf: Holdfast, processes: int) -> int:
    """Start this same command again, once a process, without the option that brought us here."""
    arguments = list(sys.argv[1:])
    for at, argument in enumerate(arguments):
        if argument == "--processes":
            del arguments[at : at + 2]
            break
        if argument.startswith("--processes="):
            del arguments[at]
            break
    command = [sys.executable, "-m", "holdfast", *arguments]
    supervisor = Supervisor(
        hf.store,
        lambda worker_id: [*command, "--worker-id", worker_id],
        processes=processes,
        events=hf.events,
    )
    return supervisor.run()


def _on_signals(running: Worker) -> None:
    def told(_number: int, _frame: FrameType | None) -> None:
        if running.is_draining:
            running.stop()
        else:
            running.drain()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
