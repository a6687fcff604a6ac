"""Housekeeping: periodic maintenance of every worker, each chore in its own thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.config import Settings
from holdfast.engine import maintenance
from holdfast.engine.worker.watchdog import Guard
from holdfast.errors import HoldfastError
from holdfast.event import Events
from holdfast.store import Store


@dataclass(frozen=True, slots=True)
class Chore:
    """A maintenance step, repeated about every so many seconds."""

    name: str
    seconds: float
    work: Callable[[], object]
    # Runs before the runs of a process that only performs runs.
    before_runs: Callable[[], object] | None = None


def chores_of(store: Store, settings: Settings, events: Events) -> list[Chore]:
    """The chores of every worker. Extensions add theirs, each in its own thread."""
    every = settings.rescue_seconds
    return [Chore("upkeep", every, lambda: maintenance.tidy(store, settings, events))]


class Housekeeping:
    """Runs chores until it is closed. A failing chore is logged and runs again at its next time."""

    def __init__(
        self,
        store: Store,
        chores: Sequence[Chore],
        *,
        rng: random.Random,
        changed: Callable[[str, str], None],
        guard: Guard,
    ) -> None:
        self.store = store
        self.rng = rng
        self.changed = changed
        self._end = threading.Event()
        self._threads = [
            threading.Thread(
                target=guard(partial(self._run, chore)),
                name=f"holdfast-{chore.name}",
                daemon=True,
            )
            for chore in chores
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Start no further chore."""
        self._end.set()

    def join(self) -> None:
        """Wait briefly for chores that are running."""
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _run(self, chore: Chore) -> None:
        while not self._wait(chore.seconds * self.rng.uniform(0.5, 1.0)):
            try:
                chore.work()
            except HoldfastError as exc:
                self.changed("upkeep_failed", str(exc))
            except Exception as exc:
                self.changed("upkeep_failed", f"{chore.name}: {type(exc).__qualname__}")

    def _wait(self, seconds: float) -> bool:
        """Wait; return whether housekeeping was ended."""
        began = time.monotonic()
        is_over = self._end.wait(seconds)
        # If the whole machine was paused, the other workers on it could not renew their leases
        # either.
        self.store.availability.note_wait(time.monotonic() - began - seconds)
        return is_over
