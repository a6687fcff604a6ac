"""Performs bounded runs that were started over HTTP, in threads of the process that serves.

A request answers when the run is stored as started. If the process ends before the run does,
maintenance closes it as lost, and its jobs wait for the next run.
"""

from __future__ import annotations

import logging
import threading

from holdfast.engine.bounded_run import BoundedRun
from holdfast.engine.run_log import RunReport, find_run
from holdfast.errors import Conflict, HoldfastError

_log = logging.getLogger("holdfast.operate")

MOST_RUNS = 4


class TooManyRuns(Conflict):
    """The server performs as many runs as it may. Wait until one has ended."""

    def __init__(self) -> None:
        super().__init__(f"The server performs {MOST_RUNS} runs already. Nothing was started.")


class RunRunner:
    """Performs the runs of one application."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[BoundedRun, threading.Thread] = {}

    def start(self, run: BoundedRun) -> RunReport:
        """Start a prepared run, and return its row of the run log. Raises TooManyRuns."""
        thread = threading.Thread(
            target=self._perform, args=(run,), name=f"holdfast-run-{run.name}", daemon=True
        )
        with self._lock:
            if len(self._runs) >= MOST_RUNS:
                raise TooManyRuns
            self._runs[run] = thread
        try:
            report = run.open()
            if report is None and not run.inline:
                found = find_run(run.app.store, run.run_id)
                thread.start()
                return found
        except BaseException:
            self._forget(run)
            raise
        if report is not None:
            self._forget(run)
            return report
        # A fake clock moves inside handlers, so a test performs the run in its own thread.
        self._perform(run)
        return find_run(run.app.store, run.run_id)

    def stop(self, seconds: float) -> None:
        """Claim nothing more, and wait for running jobs."""
        with self._lock:
            running = list(self._runs.items())
        for run, _ in running:
            run.drain()
        for run, thread in running:
            thread.join(seconds / len(running))
            if thread.is_alive():
                run.stop()

    def _perform(self, run: BoundedRun) -> None:
        try:
            run.complete()
        except HoldfastError as exc:
            _log.warning("bounded_run.failed: %s", type(exc).__name__)
        except Exception:
            _log.exception("bounded_run.failed")
        finally:
            self._forget(run)

    def _forget(self, run: BoundedRun) -> None:
        with self._lock:
            self._runs.pop(run, None)
