"""Limits how many connections of a pool are in use, and by which threads.

Connections are reserved for a worker's own threads (claim, settle, renew, heartbeat, maintenance).
Handlers that use all others cannot block the recording of outcomes or the renewal of leases.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import StoreBusy

# The size in a process without a worker, unless pool_size is set.
DEFAULT_SIZE = 10
# Added to one per handler: a handler may need a second one while its transaction is open.
SPARE = 4


class PoolTimeout(StoreBusy):
    """Every connection that this process may open is in use. Raise `pool_size`, lower the
    concurrency, or shorten transactions. A job that meets it is released for a second; it does not
    count as an attempt."""

    def __init__(self, size: int, seconds: float) -> None:
        super().__init__(
            f"All {size} connections of this process are in use and none became free within"
            f" {seconds:g} s. Raise pool_size, lower the concurrency, or keep transactions shorter."
        )


class Permits:
    """Counts the connections in use. *size* is the limit; None follows the workers."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self._handlers = 0
        self._threads = 0
        self._used = 0
        self._used_reserved = 0
        self._change = threading.Condition()
        self._local = threading.local()

    @property
    def reserved(self) -> int:
        """The number of connections reserved for the workers' own threads."""
        return self._threads if self.size is None else min(self._threads, self.size // 2)

    @property
    def general(self) -> int:
        """The number of connections that any thread may use."""
        if self.size is not None:
            return self.size - self.reserved
        return max(DEFAULT_SIZE, self._handlers + SPARE if self._handlers else 0)

    @property
    def total(self) -> int:
        return self.general + self.reserved

    @contextmanager
    def sized_for(self, *, handlers: int, threads: int) -> Iterator[None]:
        """Add connections for a worker with this many concurrent handlers and own threads."""
        with self._change:
            self._handlers += handlers
            self._threads += threads
            self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._handlers -= handlers
                self._threads -= threads

    @contextmanager
    def use_reserved(self) -> Iterator[None]:
        """Let the current thread use reserved connections in this block."""
        before = getattr(self._local, "may_use_reserved", False)
        self._local.may_use_reserved = True
        try:
            yield
        finally:
            self._local.may_use_reserved = before

    def acquire(self, seconds: float) -> bool:
        """Wait for a free connection; return whether it is a reserved one."""
        may_use_reserved = getattr(self._local, "may_use_reserved", False)
        deadline = time.monotonic() + seconds
        with self._change:
            while True:
                if may_use_reserved and self._used_reserved < self.reserved:
                    self._used_reserved += 1
                    return True
                if self._used < self.general:
                    self._used += 1
                    return False
                left = deadline - time.monotonic()
                # Waiting on an event loop would block the tasks that release connections.
                if left <= 0 or _is_on_loop():
                    raise PoolTimeout(self.total, seconds)
                self._change.wait(left)

    def release(self, is_reserved: bool) -> None:
        with self._change:
            if is_reserved:
                self._used_reserved -= 1
            else:
                self._used -= 1
            # Some waiting threads may not use a reserved connection.
            self._change.notify_all()


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
