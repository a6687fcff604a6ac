"""Gathers claims whose handler takes many jobs, until a call is full or has waited long enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from holdfast.engine.batch_options import BatchOptions
from holdfast.engine.worker.in_flight import Group, InFlight
from holdfast.engine.worker.watchdog import Guard, unguarded

Key = tuple[str, str, str]


class Grouper:
    """The groups of one worker, each of one tenant and job type. *ready* executes a group."""

    def __init__(self, ready: Callable[[Group], None], *, guard: Guard = unguarded) -> None:
        self._ready = ready
        self._guard = guard
        self._changed = threading.Condition()
        # The claims of each group, and when it is executed even if it is not full.
        self._groups: dict[Key, tuple[list[InFlight], float]] = {}
        self._is_started = self._is_closed = False

    @property
    def missing(self) -> int:
        """How many more jobs the groups could take."""
        with self._changed:
            return sum(
                max(0, _batch_of(claims[0]).size - len(claims))
                for claims, _ in self._groups.values()
            )

    def add(self, claims: Iterable[InFlight]) -> None:
        """Add claims, and execute the groups that are full or need not wait."""
        full: list[Group] = []
        with self._changed:
            for claim in claims:
                job, batch = claim.job, _batch_of(claim)
                key = job.job_type, job.stage, job.org_id
                due_at = time.monotonic() + batch.wait_seconds
                group, _ = self._groups.setdefault(key, ([], due_at))
                group.append(claim)
                if len(group) >= batch.size:
                    full.append(Group(self._groups.pop(key)[0]))
            full += self._take_due()
            if self._groups:
                self._start()
                self._changed.notify()
        for group_ in full:
            self._ready(group_)

    def take_all(self) -> list[InFlight]:
        """Take the claims of all groups, which are not executed."""
        with self._changed:
            found = [claim for claims, _ in self._groups.values() for claim in claims]
            self._groups.clear()
            return found

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _take_due(self) -> list[Group]:
        now = time.monotonic()
        due = [key for key, (_, due_at) in self._groups.items() if due_at <= now]
        return [Group(self._groups.pop(key)[0]) for key in due]

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            run = self._guard(self._run)
            threading.Thread(target=run, name="holdfast-grouper", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                due_at = min((at for _, at in self._groups.values()), default=None)
                wait = None if due_at is None else due_at - time.monotonic()
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                due = self._take_due()
            for group in due:
                self._ready(group)


def _batch_of(claim: InFlight) -> BatchOptions:
    assert claim.execution is not None
    batch = claim.execution.stage.batch
    assert batch is not None
    return batch
