"""Writer: a thread stores a group while the next one is read and evaluated.

This helps if the database is a server: PostgreSQL stored 3,700 answers a second with it and 2,500
without. SQLite runs inside this process and acquires Python's lock for every row. There a group is
stored before the next one is read: 3,500 a second instead of 2,700.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from holdfast_llm.batch.ingest import End


class Writer:
    """Stores one group at a time, in order. An error of the thread is raised at the next call."""

    def __init__(self, finish: Callable[[Sequence[End]], None], *, beside: bool) -> None:
        self._finish = finish
        self._thread = (
            ThreadPoolExecutor(1, thread_name_prefix="holdfast-collector") if beside else None
        )
        self._last: Future[None] | None = None

    def write(self, ends: Sequence[End]) -> None:
        """Store a group, or pass it to the thread after the previous one is stored."""
        self._wait()
        if not ends:
            return
        if self._thread is None:
            self._finish(ends)
        else:
            self._last = self._thread.submit(self._finish, ends)

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # An error of the reader is more useful than a resulting error of the writer.
            if exc is None:
                self._wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
