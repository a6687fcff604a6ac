"""The long-running processes: a dispatcher, and workers under a supervisor.

They run jobs of every tenant with the permissions of the process, so no role is checked here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from holdfast.engine.development import enable as enable_development
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.schedule.dispatcher import Dispatcher
from holdfast.engine.schedule.rows import Scheduling, sync_schedules
from holdfast.engine.worker.recycling import auto_concurrency
from holdfast.engine.worker.supervisor import RECYCLE, Supervisor, start_process
from holdfast.engine.worker.worker import Worker
from holdfast.errors import UnknownQueue
from holdfast.event import WorkerChanged
from holdfast.operate.operated_app import OperatedApp

__all__ = [
    "RECYCLE",
    "Dispatcher",
    "auto_concurrency",
    "dispatch_all",
    "dispatching",
    "enable_development",
    "make_dispatcher",
    "read_queues",
    "start_process",
    "supervise",
]


def make_dispatcher(app: Scheduling, *, concurrency: int, async_concurrency: int) -> Dispatcher:
    """Return a dispatcher for the schedules of *app*, which are written to the store first."""
    sync_schedules(app)
    return Dispatcher(app, concurrency=concurrency, async_concurrency=async_concurrency)


def dispatch_all(dispatcher: Dispatcher) -> Mapping[str, int]:
    """Fire everything that is due, pass by pass, until none is or it drains; return the counts."""
    total = PassCounts(more=True)
    while total.more and not dispatcher.is_draining:
        total.more = False
        total += dispatcher.run_once()
    return {verb: total[verb] for verb in ("enqueued", "ran", "skipped", "missed", "held")}


@contextmanager
def dispatching(app: OperatedApp, worker: Worker, dispatcher: Dispatcher) -> Iterator[None]:
    """Run a dispatcher in a thread beside a worker.

    If the dispatcher fails with a defect, the worker drains and exits so that it is restarted.
    """

    def run() -> None:
        try:
            dispatcher.run()
        except Exception as exc:
            app.events.emit(WorkerChanged(worker.id, "dispatcher_died", type(exc).__qualname__))
            worker.must_recycle = True
            worker.drain()

    thread = threading.Thread(target=run, name="holdfast-dispatch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        dispatcher.drain()
        deadline = time.monotonic() + worker.drain_seconds
        # In short steps: a second signal may arrive meanwhile.
        while thread.is_alive() and not worker.stop_requested and time.monotonic() < deadline:
            thread.join(timeout=0.1)


def supervise(app: OperatedApp, command: Callable[[str, int], list[str]], *, processes: int) -> int:
    """Run worker processes until they end; return the exit code.

    *command* returns the arguments of the process with this worker id and index.
    """
    return Supervisor(app.store, command, processes=processes, events=app.events).run()


def read_queues(app: OperatedApp, given: str | None) -> list[str]:
    """Parse a comma-separated list of queues, by default all. Raises UnknownQueue."""
    if given is None:
        return app.known_queues
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in app.known_queues:
            raise UnknownQueue(name, app.known_queues)
    return names
