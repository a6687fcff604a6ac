"""Wake-up on SQLite: the file's data version changes when another connection commits."""

from __future__ import annotations

import sqlite3
import threading
import time

from holdfast.store.store import WakeUp

# The cheapest test for commits of other connections: about 6 microseconds.
_DATA_VERSION = "PRAGMA data_version"
_WAIT_STEP = 0.005


class FileWatch(WakeUp):
    """Watches the file's data version. An in-memory database has one process, which uses poke()."""

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self._connection = connection
        self._news = threading.Event()
        self._seen = self._version()

    def _version(self) -> int:
        if self._connection is None:
            return 0
        return int(self._connection.execute(_DATA_VERSION).fetchone()[0])

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if self._news.wait(max(0.0, min(_WAIT_STEP, left))):
                self._news.clear()
                return True
            now = self._version()
            if now != self._seen:
                self._seen = now
                return True
            if left <= 0:
                return False

    def pause(self, timeout: float) -> bool:
        if self._news.wait(timeout):
            self._news.clear()
        return False

    def poke(self) -> None:
        self._news.set()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
