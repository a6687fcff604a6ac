"""Runs bulk actions in a process that serves people, while no worker does.

An installation may serve the console without a worker. The thread of a runner ends when no bulk
action is left, and starts again with the next one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from holdfast.config import RunSettings
from holdfast.engine.claim import Order
from holdfast.engine.maintenance import maintain
from holdfast.engine.runs import Application, JobRun
from holdfast.engine.worker.heartbeat import list_workers, serving
from holdfast.errors import HoldfastError
from holdfast.operate.bulk_job import JOB_TYPE, QUEUE
from holdfast.store import Statements

SQL = Statements("holdfast.operate", "bulk_job.sql")
_log = logging.getLogger("holdfast.operate")

# How long to wait for a worker, for a deferred action or for the database.
WAIT_SECONDS = 2.0
MOST_ACTIONS = 100


class BulkRunner:
    """Runs the bulk actions of one application in a thread of its own."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        # Set by a new action and by the stop, so that neither waits.
        self._signal = threading.Event()
        self._run: JobRun | None = None

    def wake(self) -> None:
        """Start the thread if a bulk action may wait. Safe to call at any time."""
        if self._app.clock.is_fake:
            # A fake clock moves inside handlers, so a test runs them in its own thread.
            return
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._work, name="holdfast-bulk-actions", daemon=True
                )
                self._thread.start()
        self._signal.set()

    def stop(self) -> None:
        """Stop. An unfinished action continues when its lease has expired."""
        self._stopping.set()
        self._signal.set()
        if (run := self._run) is not None:
            run.stop()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread."""
        if (thread := self._thread) is not None:
            thread.join(seconds)

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._signal.clear()
            try:
                if not self._is_needed():
                    return
                if not self._is_served():
                    self.run_once()
            except HoldfastError as exc:
                _log.warning("bulk_actions.waiting: %s", type(exc).__name__)
            except Exception:
                _log.exception("bulk_actions.failed")
            self._signal.wait(WAIT_SECONDS)

    def _is_needed(self) -> bool:
        """Whether a bulk action has not ended; if none is left, the thread ends."""
        with self._lock:
            found = self._app.store.maybe(SQL.find_unfinished, queue=QUEUE, job_type=JOB_TYPE)
            if found is None:
                self._thread = None
            return found is not None

    def _is_served(self) -> bool:
        """Whether a worker takes bulk actions."""
        workers = serving(self._app.store.read(list_workers), QUEUE)
        return any(JOB_TYPE in worker.job_types for worker in workers)

    def run_once(self) -> None:
        """Run the bulk actions that are due, in this thread."""
        app = self._app
        maintain(
            app.store,
            app.settings,
            app.events,
            [QUEUE],
            may_continue=lambda: not self._stopping.is_set(),
        )
        profile = replace(
            app.settings.default_profile,
            order=Order.CREATED_AT_ASC,
            max_jobs_per_run=MOST_ACTIONS,
            claim_timeout_seconds=max(1, int(app.settings.lease_seconds)),
        )
        chosen = RunSettings(queues=(QUEUE,), job_types=(JOB_TYPE,))
        run = JobRun(app, app.ids.new(), chosen, profile, concurrency=1, async_concurrency=1)
        self._run = run
        try:
            run.work(deadline=float("inf"), inline=app.clock.is_fake)
        finally:
            self._run = None
