"""How many connections of a pool may be in use at once, and by whom.

A worker's own threads (claim, settle, renew, heartbeat, maintenance) have connections set aside:
handlers that hold all others must not keep outcomes from being recorded and leases from being
renewed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import StoreBusy

# What a process without a worker has, unless pool_size says otherwise.
DEFAULT_SIZE = 10
# Beside one for each handler: a handler may need a second one while it holds its transaction.
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
    """Counts the connections in use. *size* is their number in all; None follows the workers."""

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
        """How many are set aside for the workers' own threads."""
        return self._threads if self.size is None else min(self._threads, self.size // 2)

    @property
    def general(self) -> int:
        """How many there are for everybody."""
        if self.size is not None:
            return self.size - self.reserved
        return max(DEFAULT_SIZE, self._handlers + SPARE if self._handlers else 0)

    @property
    def total(self) -> int:
        return self.general + self.reserved

    @contextmanager
    def sized_for(self, *, handlers: int, threads: int) -> Iterator[None]:
        """Make room for a worker with so many handlers at once and so many threads of its own."""
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
        """In this block the present thread may use what is set aside."""
        before = getattr(self._local, "may_use_reserved", False)
        self._local.may_use_reserved = True
        try:
            yield
        finally:
            self._local.may_use_reserved = before

    def acquire(self, seconds: float) -> bool:
        """Wait for a connection to be free; whether it is one of those that are set aside."""
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
                # On an event loop those who would give one back could not go on meanwhile.
                if left <= 0 or _is_on_loop():
                    raise PoolTimeout(self.total, seconds)
                self._change.wait(left)

    def release(self, is_reserved: bool) -> None:
        with self._change:
            if is_reserved:
                self._used_reserved -= 1
            else:
                self._used -= 1
            # Not all who wait may use it.
            self._change.notify_all()


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
