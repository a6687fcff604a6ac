"""Writer: groups are written by a thread while the next one is read and weighed.

A database works outside of this process, or outside of Python's lock, so there is room beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from holdfast.batch.ingest import End


class Writer:
    """Writes one group at a time, in order. What goes wrong is raised at the next one."""

    def __init__(self, finish: Callable[[Sequence[End]], None]) -> None:
        self._finish = finish
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-collector")
        self._last: Future[None] | None = None

    def write(self, ends: Sequence[End]) -> None:
        """Hand a group over, after the one before it is written."""
        self._wait()
        if ends:
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
            # What broke the reading says more than what it may have done to the writing.
            if exc is None:
                self._wait()
        finally:
            self._thread.shutdown()
