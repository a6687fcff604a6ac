"""Heartbeats: a worker regularly records that it is running and which queues it serves.

The lease says which worker runs a job. The heartbeat says whether the worker of an expired lease is
gone, and helps to explain why a job waits.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from operator import attrgetter

from holdfast.clock import ms, read_instant
from holdfast.document import decode, encode
from holdfast.engine.job import ClaimId
from holdfast.engine.request import DRIFT
from holdfast.engine.worker.executor_pool import InFlight
from holdfast.engine.worker.settle_buffer import NO_BACKLOG, Backlog
from holdfast.engine.worker.watchdog import Guard, unguarded
from holdfast.errors import HoldfastError
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine.worker", "heartbeat.sql")

# A thousand workers make about eighty small writes a second. At least three heartbeats per lease,
# so that a rescue can tell whether a worker is gone.
BEAT_SECONDS = 15.0
# Three heartbeats may fail, for example during a failover, before a worker counts as gone.
GONE_AFTER = timedelta(seconds=60)
# How long the row of a worker that died is kept.
KEEP = timedelta(days=1)
# Clocks are compared only if the round trip was short.
LONGEST_ROUND_TRIP = timedelta(seconds=2)
WORKERS = 1_000
# The largest value of a four-byte column.
LONGEST_MS = 2**31 - 1

WORKING = "working"
DRAINING = "draining"


def beat_seconds(lease_seconds: float) -> float:
    """The longest time between two heartbeats of a worker with this lease."""
    return min(BEAT_SECONDS, lease_seconds / 3)


class Heartbeat:
    """Sends the heartbeats of one worker from its own thread until it is closed."""

    def __init__(
        self,
        store: Store,
        in_flight: Mapping[ClaimId, InFlight],
        worker_id: str,
        queues: Collection[str],
        job_types: Collection[str],
        *,
        lease_ms: int,
        backlog: Callable[[], Backlog] = lambda: NO_BACKLOG,
        changed: Callable[[str, str], None] | None = None,
        guard: Guard = unguarded,
    ) -> None:
        self.store = store
        self.in_flight = in_flight
        self.worker_id = worker_id
        self.queues = queues
        self.job_types = job_types
        self.lease_ms = lease_ms
        self.backlog = backlog
        self.changed = changed
        self._longest: tuple[float, str | None] = (0.0, None)
        self._clock_off_ms: int | None = None
        self._is_started = self._is_draining = self._is_over = False
        self._wake = threading.Event()
        self._rng = random.Random(worker_id)
        run = guard(self._run)
        self._thread = threading.Thread(target=run, name="holdfast-heartbeat", daemon=True)

    def start(self) -> None:
        """Start sending, once the worker can reach its store. A second call does nothing."""
        if not self._is_started:
            self._is_started = True
            self._thread.start()

    def drain(self) -> None:
        """Record soon that this worker claims nothing more."""
        self._is_draining = True
        self._wake.set()

    def close(self) -> None:
        """Remove the row, without waiting for a database that is down."""
        self._is_over = True
        self._wake.set()
        if self._is_started:
            self._thread.join(timeout=2.0)

    def observe(self, claims: Collection[InFlight]) -> None:
        """Record how long the oldest of these claims has lasted."""
        if not claims:
            return
        oldest = min(claims, key=attrgetter("claimed_at"))
        seconds = time.monotonic() - oldest.claimed_at
        if seconds > self._longest[0]:
            self._longest = seconds, oldest.job.job_type

    def send(self) -> None:
        """Write the row of this worker."""
        self.observe(list(self.in_flight.values()))
        longest, longest_type = self._longest
        backlog = self.backlog()
        row = {
            "worker_id": self.worker_id,
            "state": DRAINING if self._is_draining else WORKING,
            "queues": encode(list(self.queues)),
            "job_types": encode(sorted(self.job_types)),
            "host": socket.gethostname()[:100],
            "process_id": os.getpid(),
            "pool_size": self.store.pool_size,
            "version": _version(),
            "lease_ms": self.lease_ms,
            "clock_off_ms": self._clock_off_ms,
            "longest_ms": ms(longest),
            "longest_type": longest_type,
            "settled_ago_ms": backlog.settled_ago_ms,
            "unsettled": backlog.outcomes,
            "unsettled_ms": min(backlog.oldest_ms, LONGEST_MS),
        }
        began = self.store.clock.now()
        stored = self.store.one(SQL.record_heartbeat, **row)
        self._compare_clocks(read_instant(stored["now"]), began, self.store.clock.now())
        self.store.execute(SQL.prune_workers, keep_ms=ms(KEEP))

    def leave(self) -> None:
        """Delete the row of this worker."""
        self.store.execute(SQL.remove_worker, worker_id=self.worker_id)

    def _compare_clocks(self, store_now: datetime, began: datetime, ended: datetime) -> None:
        if not self.store.clock.is_fake and ended - began <= LONGEST_ROUND_TRIP:
            self._clock_off_ms = ms(store_now - (began + (ended - began) / 2))

    def _run(self) -> None:
        while not self._is_over:
            self._try(self.send)
            self._wake.wait(beat_seconds(self.lease_ms / 1000) * self._rng.uniform(0.6, 1.0))
            self._wake.clear()
        self._try(self.leave)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except HoldfastError:
            # Claims and renewals report that the database is down already.
            pass
        except Exception as exc:
            if self.changed is not None:
                self.changed("upkeep_failed", f"heartbeat: {type(exc).__qualname__}")


def _version() -> str:
    try:
        return metadata.version("holdfast-jobs")
    except metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """The row of a worker, as of its last heartbeat."""

    worker_id: str
    state: str
    queues: frozenset[str]
    job_types: frozenset[str]
    host: str
    process_id: int
    pool_size: int
    version: str
    lease_ms: int
    clock_off_ms: int | None
    longest_ms: int
    longest_type: str | None
    settled_at: datetime | None
    unsettled: int
    unsettled_ms: int
    started_at: datetime
    seen_at: datetime
    silent_ms: float

    @classmethod
    def from_row(cls, row: Row) -> WorkerRow:
        read = {
            "queues": frozenset(decode(row["queues"])),
            "job_types": frozenset(decode(row["job_types"])),
            "started_at": read_instant(row["started_at"]),
            "seen_at": read_instant(row["seen_at"]),
            "settled_at": None if row["settled_at"] is None else read_instant(row["settled_at"]),
        }
        return cls(**{**row, **read})

    @property
    def is_gone(self) -> bool:
        """Whether its last heartbeat is too old for a running worker."""
        return self.silent_ms > ms(GONE_AFTER)

    @property
    def is_off(self) -> bool:
        """Whether its clock is so far from the store's that it claims nothing."""
        return self.clock_off_ms is not None and abs(self.clock_off_ms) > ms(DRIFT)

    @property
    def can_claim(self) -> bool:
        return self.state == WORKING and not self.is_gone and not self.is_off


def list_workers(tx: Tx) -> list[WorkerRow]:
    """Running workers and those that died recently, a thousand at most."""
    return [WorkerRow.from_row(row) for row in tx.many(SQL.list_workers, limit=WORKERS)]


def serving(workers: Iterable[WorkerRow], queue: str) -> list[WorkerRow]:
    """Those of *workers* that take jobs of *queue*."""
    return [worker for worker in workers if worker.can_claim and queue in worker.queues]
