"""An alert sink: passes alerts to one target from a background thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from typing import TYPE_CHECKING

from holdfast.engine.classify import safe_context
from holdfast.errors import Failure
from holdfast.telemetry import log

if TYPE_CHECKING:
    from holdfast.telemetry.alert import Alert

WAITING = 100
DRAIN_SECONDS = 5.0


class AlertSink:
    """Queues alerts for a slow target. Alerts that do not fit are dropped, counted and logged.

    If the target has a ``hurry`` method, it is called when the process ends; then the target should
    not retry.
    """

    def __init__(
        self,
        target: Callable[[Alert], None],
        *,
        waiting: int = WAITING,
        drain: float = DRAIN_SECONDS,
    ) -> None:
        self.target = target
        self.drain = drain
        self.dropped = 0
        self.failed = 0
        self._queue: Queue[Alert | None] = Queue(maxsize=waiting)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, alert: Alert) -> None:
        with self._lock:
            # Threads do not survive a fork.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-outlet", daemon=True
                )
                self._thread.start()
        try:
            self._queue.put_nowait(alert)
        except Full:
            self._drop()

    def close(self) -> None:
        """Pass on queued alerts, for at most *drain* seconds. A later alert restarts the thread."""
        with self._lock:
            thread = self._thread
        if thread is None or not thread.is_alive():
            return
        hurry = getattr(self.target, "hurry", None)
        if hurry is not None:
            hurry()
        deadline = time.monotonic() + self.drain
        with suppress(Full):
            self._queue.put(None, timeout=self.drain)
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            log.write(logging.WARNING, "alert.undelivered", waiting=self._queue.qsize())

    def _run(self) -> None:
        while (alert := self._queue.get()) is not None:
            try:
                self.target(alert)
            except Exception as exc:
                self.failed += 1
                known = safe_context(exc.context) if isinstance(exc, Failure) else {}
                told = {**known, "kind": alert.kind, "fingerprint": alert.fingerprint}
                log.logger.warning("alert.undelivered", exc_info=True, extra={"fields": told})

    def _drop(self) -> None:
        self.dropped += 1
        # Log at 1, 10, 100, 1,000 dropped alerts only.
        if str(self.dropped).strip("0") == "1":
            log.write(logging.WARNING, "alert.dropped", dropped=self.dropped)
