"""The lock that says that a handler's transaction is open, in this process or another one."""

from __future__ import annotations

import fcntl
import os

from holdfast.errors import StoreBusy, StoreError
from holdfast.store.sqlite_connect import open_lock
from holdfast.store.transaction import Caller, caller


class BlockLock:
    """Held for as long as a handler has SQLite's only writer."""

    def __init__(self, path: str | None, url: str) -> None:
        self.owner: Caller | None = None
        self._fd = None if path is None else open_lock(path + ".transaction.lock", url)

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
        if self._fd is None:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
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
        process = str(os.getpid())
        if self.owner is None and self._fd is not None:
            process = os.pread(self._fd, 20, 0).decode().strip() or "unknown"
        return StoreBusy(
            f"A handler's transaction in process {process} has SQLite's only writer, and this call"
            " waits no longer for it. Nothing was written. Keep job.transaction() short, or use"
            " PostgreSQL."
        )

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
