"""The lock file that serializes all writes to SQLite, with a limit on the wait."""

from __future__ import annotations

import fcntl
import math
import os
import threading
from contextlib import suppress

from holdfast.store.sqlite_connect import open_lock


class WriteLock:
    """A lock between processes. Its methods are called by one thread at a time.

    The kernel grants it to a waiting process, so processes do not starve each other, but the wait
    has no timeout. If the lock is held, a helper thread waits for it. The caller may give up, and
    the next caller uses the same thread.
    """

    def __init__(self, path: str | None, url: str) -> None:
        self._fd = None if path is None else open_lock(path + ".lock", url)
        self._state = threading.Lock()
        self._granted = threading.Event()
        self._is_held = self._is_wanted = self._is_waiting = False

    def acquire(self, seconds: float = math.inf) -> bool:
        """Take the lock; False if it was not free within *seconds*."""
        if self._fd is None:
            return True
        with self._state:
            if self._take():
                return True
            self._is_wanted = True
            self._granted.clear()
            if not self._is_waiting:
                self._is_waiting = True
                threading.Thread(
                    target=self._wait, args=(self._fd,), name="holdfast-write-lock", daemon=True
                ).start()
        self._granted.wait(None if seconds == math.inf else seconds)
        with self._state:
            self._is_wanted = False
            return self._is_held

    def _take(self) -> bool:
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._is_held = True
        return True

    def _wait(self, fd: int) -> None:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        with self._state:
            self._is_waiting = False
            # Closed meanwhile, or taken by a caller that found it free; that caller now holds the
            # lock.
            if self._fd is None or self._is_held:
                return
            if self._is_wanted:
                self._is_held = True
                self._granted.set()
            else:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def release(self) -> None:
        if self._fd is None:
            return
        with self._state:
            self._is_held = False
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        # The helper thread must not use the descriptor after this: its number may be that of
        # another file.
        with self._state:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
