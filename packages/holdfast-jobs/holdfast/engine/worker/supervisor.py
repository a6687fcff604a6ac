"""Several worker processes under one parent: one that dies takes nothing else down.

The parent runs no handler. It starts the children, passes signals on, brings back the jobs of a
child that died, at once and charged, and starts another in its place with backoff.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.worker.settle_buffer import events_of
from holdfast.errors import StoreError
from holdfast.event import Events, WorkerChanged
from holdfast.ids import IdSource
from holdfast.store import Store

RECYCLE = 75
"""The exit code of a worker that asks to be started anew."""

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
STEADY_SECONDS = 30.0
RESCUE_LIMIT = 1_000


@dataclass(slots=True)
class Child:
    place: int
    worker_id: str
    process: subprocess.Popen[bytes]
    started_at: float
    pause: float


class Supervisor:
    """Keeps *processes* children running until told to stop.

    *command* is what starts a child, by its worker's id and its place: 0 for the first, and so on.
    One that takes the place of another has another id.
    """

    def __init__(
        self,
        store: Store,
        command: Callable[[str, int], Sequence[str]],
        *,
        processes: int,
        events: Events | None = None,
    ) -> None:
        self.store = store
        self.command = command
        self.processes = processes
        self.events = events or Events()
        self.children: list[Child] = []
        self.rescued = 0
        self._signals = 0
        self._ids = IdSource(store.clock)

    def run(self) -> int:
        """Supervise until a signal; give back the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        self.children = [self._start(place, FIRST_PAUSE) for place in range(self.processes)]
        while self.children:
            time.sleep(0.05)
            for child in list(self.children):
                code = child.process.poll()
                if code is not None:
                    self.children.remove(child)
                    self._reap(child, code)
        return 0 if self._signals < 2 else 1

    def _start(self, place: int, pause: float) -> Child:
        worker_id = self._ids.new()
        command = list(self.command(worker_id, place))
        process = subprocess.Popen(command, start_new_session=True)  # noqa: S603
        return Child(place, worker_id, process, time.monotonic(), pause)

    def _reap(self, child: Child, code: int) -> None:
        """See a dead child's jobs home and, unless we are stopping, put another in its place."""
        if code != 0:
            self.events.emit(WorkerChanged(child.worker_id, "died", f"exit code {code}"))
        self._rescue(child.worker_id)
        # A calm end that nobody asked for: the child was told to stop when idle.
        if self._signals or code == 0:
            return
        steady = time.monotonic() - child.started_at > STEADY_SECONDS
        pause = FIRST_PAUSE if steady or code == RECYCLE else child.pause
        time.sleep(pause)
        if not self._signals:
            self.children.append(self._start(child.place, min(pause * 2, LONGEST_PAUSE)))

    def _rescue(self, worker_id: str) -> None:
        # The process is gone for certain, so there is no lease to wait for.
        try:
            while found := rescue_jobs(self.store, limit=RESCUE_LIMIT, dead_worker_id=worker_id):
                self.rescued += len(found)
                for settled in found:
                    for event in events_of(settled):
                        self.events.emit(event)
        except StoreError as exc:
            self.events.emit(WorkerChanged(worker_id, "rescue_failed", str(exc)))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """First: let the children drain. Second: let them stop at once. Third: kill them."""
        self._signals += 1
        for child in self.children:
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGKILL if self._signals > 2 else signal.SIGTERM)
