"""A store wrapper that injects faults: a killed process, an unavailable database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from holdfast import Holdfast, StoreDown
from holdfast.store import Store, Tx, WakeUp

T = TypeVar("T")


class Died(BaseException):
    """Simulates a killed process. Only the test catches this."""


class FaultyStore(Store):
    """Passes every call on, until the selected write."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.dialect = inner.dialect
        self.clock = inner.clock
        self.url = inner.url
        self._before: list[BaseException] = []
        self._after: list[BaseException] = []
        self._skip = 0
        self._meanwhile: list[Callable[[], object]] = []
        self.writes = 0
        self.lost = 0

    def die_before_commit(self, *, after_writes: int = 0) -> FaultyStore:
        """The next write runs all its statements; the process is killed before the commit."""
        self._before, self._skip = [Died()], after_writes
        return self

    def die_after_commit(self, *, after_writes: int = 0) -> FaultyStore:
        """The next write is committed; the process is killed before it returns."""
        self._after, self._skip = [Died()], after_writes
        return self

    def be_away(self, times: int) -> FaultyStore:
        """The database cannot be reached for the next *times* writes."""
        self._before = [StoreDown("away") for _ in range(times)]
        return self

    def lose_answer(
        self, *, meanwhile: Callable[[], object] = lambda: None, after_writes: int = 0
    ) -> FaultyStore:
        """The next write is committed and its answer is lost, so the work runs again.

        *meanwhile* happens between the two.
        """
        self._meanwhile, self._skip = [meanwhile], after_writes
        return self

    def write(self, work: Callable[[Tx], T]) -> T:
        self.writes += 1
        if self._skip:
            self._skip -= 1
            return self.inner.write(work)
        if self._before:
            fault = self._before.pop(0)

            def cut_short(tx: Tx) -> T:
                work(tx)
                raise fault

            return self.inner.write(cut_short)
        result = self.inner.write(work)
        if self._meanwhile:
            self.lost += 1
            self._meanwhile.pop()()
            return self.inner.write(work)
        if self._after:
            raise self._after.pop(0)
        return result

    def write_one(self, work: Callable[[Tx], T]) -> T:
        return self.write(work)

    def announce(self, channels: Sequence[str]) -> None:
        self.inner.announce(channels)

    def read(self, work: Callable[[Tx], T]) -> T:
        return self.inner.read(work)

    def tenant_transaction(
        self, org_id: str, unit: str | None, guard: Callable[[Tx], None]
    ) -> AbstractContextManager[Any]:
        return self.inner.tenant_transaction(org_id, unit, guard)

    def wake_up(self, channels: Sequence[str]) -> WakeUp:
        return self.inner.wake_up(channels)

    def migrate(self) -> list[str]:
        return self.inner.migrate()

    def component_versions(self) -> dict[str, int]:
        return self.inner.component_versions()

    def check_schema(self) -> None:
        self.inner.check_schema()

    def version(self) -> str:
        return self.inner.version()

    def close(self) -> None:
        self.inner.close()


@contextmanager
def through(hf: Holdfast, store: Store) -> Iterator[Holdfast]:
    """The same application, connected to its database through *store*."""
    sound = hf.store
    hf._store = store
    try:
        yield hf
    finally:
        hf._store = sound
