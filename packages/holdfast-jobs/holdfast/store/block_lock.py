"""The lock that marks an open handler transaction, in this process or another one."""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.errors import StoreBusy, StoreError
from holdfast.store.sqlite_connect import open_lock
from holdfast.store.transaction import Caller, caller
from holdfast.store.write_lock import WriteLock

LOCK_FILE_SECONDS = 5.0
"""How long a call waits for the lock file. Writes hold it for milliseconds."""


class BlockLock:
    """Held while a handler occupies SQLite's only writer."""

    def __init__(self, path: str | None, url: str) -> None:
        self.owner: Caller | None = None
        self._fd: int | None = None
        # A lock belongs to the open file: testing it through the first descriptor would release it.
        self._look_fd: int | None = None
        if path is not None:
            self._fd = open_lock(path + ".transaction.lock", url)
            self._look_fd = open_lock(path + ".transaction.lock", url)

    def hold(self) -> None:
        """Take the lock. Call with the locks that ensure that no block is open."""
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
        """Whether a handler transaction is open, here or in another process."""
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

    @property
    def process(self) -> str:
        """The process id of the current or last holder."""
        if self.owner is not None or self._fd is None:
            return str(os.getpid())
        return os.pread(self._fd, 20, 0).decode().strip() or "unknown"

    def held_seconds(self) -> float | None:
        """How long the lock has been held, or None. Taking it updates the file's mtime."""
        if self._fd is None or not self.is_held:
            return None
        return max(0.0, time.time() - os.fstat(self._fd).st_mtime)

    def check_caller(self) -> None:
        """Raise if the caller would wait for its own open block."""
        owner = self.owner
        if owner is None:
            return
        thread, task = caller()
        if owner == (thread, task):
            raise StoreError(
                "This call writes outside the open job.transaction(), and SQLite allows one"
                " writer. Pass conn= to enqueue in the transaction, or call it after the block."
            )
        if owner[0] == thread:
            raise StoreBusy(
                "Another task of this event loop has a job.transaction() open, and SQLite has one"
                " writer. Do not await inside the block, or use PostgreSQL."
            )

    def busy(self) -> StoreBusy:
        """Return the error of a call that cannot wait any longer."""
        if not self.is_held:
            return StoreBusy(
                "SQLite's only writer was busy for too long. Nothing was written. If it stays busy,"
                " a process is frozen inside a write: `fuser` on the .lock file beside the database"
                " names it. Otherwise try again."
            )
        return StoreBusy(
            f"SQLite's write lock is held by a handler's transaction in process {self.process}."
            " Nothing was written. Keep job.transaction() short, or use PostgreSQL."
        )

    def close(self) -> None:
        for descriptor in (self._fd, self._look_fd):
            if descriptor is not None:
                os.close(descriptor)
        self._fd = self._look_fd = None


class Patience:
    """Limits of a write's wait: while a handler transaction is open, and in total."""

    def __init__(self, block: BlockLock, block_seconds: float, seconds: float) -> None:
        now = time.monotonic()
        self._block = block
        self._block_until = now + block_seconds
        self._until = now + seconds
        self._lock_until = min(self._until, now + max(block_seconds, LOCK_FILE_SECONDS))

    def check(self) -> None:
        """Raise StoreBusy if a limit has passed."""
        now = time.monotonic()
        is_late = now >= self._lock_until
        if is_late or (now >= self._block_until and self._block.is_held):
            raise self._block.busy()

    @property
    def lock_left(self) -> float:
        """The remaining time to wait for the lock file."""
        return max(0.0, self._lock_until - time.monotonic())

    @property
    def left(self) -> float:
        return max(0.0, self._until - time.monotonic())


def find_stuck_writer(block: BlockLock, lock: WriteLock, seconds: float) -> str | None:
    """Describe what has held the only writer for *seconds* or more. Closes *lock*."""
    held_for = block.held_seconds()
    try:
        if held_for is None and not lock.acquire(seconds):
            return (
                f"A process has held the lock file for over {seconds:.0f} s, where a write takes"
                " milliseconds. It may be frozen. Nothing else is written."
            )
        if held_for is None:
            lock.release()
    finally:
        lock.close()
    if held_for is None or held_for < seconds:
        return None
    return (
        f"A handler's transaction in process {block.process} has had SQLite's only writer for"
        f" {held_for:.0f} s. The process may be frozen. Nothing else is written."
    )
