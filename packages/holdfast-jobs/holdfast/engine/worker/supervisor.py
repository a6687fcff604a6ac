"""Several worker processes under one parent, so that a crash affects only one of them.

The parent runs no handler. It starts the children and forwards signals. When a child dies, it
rescues the child's jobs at once (this counts as an attempt) and starts another child with backoff.
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
"""The exit code of a worker that must be restarted."""

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


def start_process(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start one process that the caller watches itself."""
    # A session of its own: the terminal would signal both, and the second signal stops at once.
    return subprocess.Popen(command, start_new_session=True)  # noqa: S603


class Supervisor:
    """Keeps *processes* children running until it is stopped by a signal.

    *command* returns the command of a child, given its worker id and its index, starting at 0. A
    replacement has a new worker id.
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
        """Supervise until a signal arrives; return the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        for place in range(self.processes):
            self._start(place, FIRST_PAUSE)
        while self.children:
            time.sleep(0.05)
            for child in list(self.children):
                code = child.process.poll()
                if code is not None:
                    self.children.remove(child)
                    self._reap(child, code)
        return 0 if self._signals < 2 else 1

    def _start(self, place: int, pause: float) -> None:
        worker_id = self._ids.new()
        command = list(self.command(worker_id, place))
        process = subprocess.Popen(command, start_new_session=True)  # noqa: S603
        child = Child(place, worker_id, process, time.monotonic(), pause)
        self.children.append(child)
        if self._signals:
            # The signal arrived while the child started, and was not forwarded to it.
            self._stop(child)

    def _reap(self, child: Child, code: int) -> None:
        """Rescue a dead child's jobs and, unless stopping, start another child."""
        if code != 0:
            self.events.emit(WorkerChanged(child.worker_id, "died", f"exit code {code}"))
        self._rescue(child.worker_id)
        # Exit code 0 without a signal: the child was started to stop when idle.
        if self._signals or code == 0:
            return
        steady = time.monotonic() - child.started_at > STEADY_SECONDS
        pause = FIRST_PAUSE if steady or code == RECYCLE else child.pause
        time.sleep(pause)
        if not self._signals:
            self._start(child.place, min(pause * 2, LONGEST_PAUSE))

    def _rescue(self, worker_id: str) -> None:
        # The process has certainly ended, so there is no lease to wait for.
        try:
            while found := rescue_jobs(self.store, limit=RESCUE_LIMIT, dead_worker_id=worker_id):
                self.rescued += len(found)
                for settled in found:
                    for event in events_of(settled):
                        self.events.emit(event)
        except StoreError as exc:
            self.events.emit(WorkerChanged(worker_id, "rescue_failed", str(exc)))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Drain the children on the first signal, stop them on the second, kill on the third."""
        self._signals += 1
        for child in self.children:
            self._stop(child)

    def _stop(self, child: Child) -> None:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGKILL if self._signals > 2 else signal.SIGTERM)
