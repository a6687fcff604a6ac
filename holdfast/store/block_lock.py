"""The lock that says that a handler's transaction is open, in this process or another one."""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.errors import StoreBusy, StoreError
from holdfast.store.sqlite_connect import open_lock
from holdfast.store.transaction import Caller, caller


class BlockLock:
    """Held for as long as a handler has SQLite's only writer."""

    def __init__(self, path: str | None, url: str) -> None:
        self.owner: Caller | None = None
        self._fd: int | None = None
        # A lock belongs to the open file: through the first one a look would release it.
        self._look_fd: int | None = None
        if path is not None:
            self._fd = open_lock(path + ".transaction.lock", url)
            self._look_fd = open_lock(path + ".transaction.lock", url)

    def hold(self) -> None:
        """Call when no block is open, and with the locks that make sure of it."""
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.pwrite(self._fd, f"{os.getpid():<20}".encode(), 0)
        self.owner = caller()

    def release(self) -> None:
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.owner = None

    @property
    def is_held(self) -> bool:
        """Whether a handler's transaction is open, here or in another process."""
        if self.owner is not None:
            return True
        if self._look_fd is None:
            return False
        try:
            fcntl.flock(self._look_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._look_fd, fcntl.LOCK_UN)
        return False

    def check_caller(self) -> None:
        """Raise if the caller would wait for the block that it has open itself."""
        owner = self.owner
        if owner is None:
            return
        thread, task = caller()
        if owner == (thread, task):
            raise StoreError(
                "This call writes past the job.transaction() that is open here, and SQLite has one"
                " writer. Enqueue with conn= to do it in the transaction, or do it after the block."
            )
        if owner[0] == thread:
            raise StoreBusy(
                "Another task of this event loop has a job.transaction() open, and SQLite has one"
                " writer. Do not await inside the block, or use PostgreSQL."
            )

    def busy(self) -> StoreBusy:
        """The error of a call that cannot wait any longer."""
        if not self.is_held:
            return StoreBusy("SQLite's only writer was busy for too long. Try again.")
        process = str(os.getpid())
        if self.owner is None and self._fd is not None:
            process = os.pread(self._fd, 20, 0).decode().strip() or "unknown"
        return StoreBusy(
            f"A handler's transaction in process {process} has SQLite's only writer, and this call"
            " waits no longer for it. Nothing was written. Keep job.transaction() short, or use"
            " PostgreSQL."
        )

    def close(self) -> None:
        for descriptor in (self._fd, self._look_fd):
            if descriptor is not None:
                os.close(descriptor)
        self._fd = self._look_fd = None


class Patience:
    """How long a write waits: while a handler's transaction is open, and in all."""

    def __init__(self, block: BlockLock, block_seconds: float, seconds: float) -> None:
        now = time.monotonic()
        self._block = block
        self._block_until = now + block_seconds
        self._until = now + seconds

    def check(self) -> None:
        """Raise StoreBusy if it is over."""
        now = time.monotonic()
        if now >= self._until or (now >= self._block_until and self._block.is_held):
            raise self._block.busy()

    @property
    def left(self) -> float:
        return max(0.0, self._until - time.monotonic())
