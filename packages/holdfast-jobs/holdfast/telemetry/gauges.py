"""Database gauges: depths, ages, dead letters, workers, and maintenance progress.

Scrapes must not load the database. There is at most one reading every few seconds, for any number
of scrapers. It takes a fixed number of bounded statements, and its duration sets the pause before
the next. A scrape never waits long for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.app import Holdfast
from holdfast.clock import Clock
from holdfast.engine.worker.heartbeat import DRAINING, GONE_AFTER, WORKING, WorkerRow, list_workers
from holdfast.errors import HoldfastError
from holdfast.store import Row, Statements, Store, Tx
from holdfast.telemetry.label import OTHER, Labels

SQL = Statements("holdfast.telemetry", "gauges.sql")
_log = logging.getLogger("holdfast.telemetry")

BOUND = 100_000
"""The counting limit: a gauge with this value means "at least this many"."""
OLDEST = 1_000
QUEUES = 100

EVERY_SECONDS = 5.0
# At most a twentieth of the time is spent reading.
REST_FACTOR = 20.0
LONGEST_REST_SECONDS = 60.0
PATIENCE_SECONDS = 2.0
STALE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge: its name, its description and its labels."""

    name: str
    says: str
    labels: tuple[str, ...] = ()


DEPTH = Gauge(
    "holdfast_queue_depth",
    f"Jobs by queue and state, counted up to {BOUND}.",
    ("queue", "state"),
)
OLDEST_AGE = Gauge(
    "holdfast_queue_oldest_ready_age_seconds",
    f"Age of the job that has been ready longest, among the {OLDEST} oldest.",
    ("queue",),
)
PAUSED = Gauge("holdfast_queue_paused", "1 while the queue is paused.", ("queue",))
SERVED = Gauge("holdfast_queue_workers", "Live workers that serve the queue.", ("queue",))
LETTERS = Gauge(
    "holdfast_dead_letters_open",
    f"Open dead letters, counted up to {BOUND} in total.",
    ("job_type",),
)
ESCALATED = Gauge(
    "holdfast_dead_letters_escalated",
    "Open dead letters whose replay failed with the same error class.",
    ("job_type",),
)
LIVE = Gauge(
    "holdfast_workers_live",
    f"Workers with a heartbeat in the last {GONE_AFTER.seconds} seconds.",
    ("state",),
)
SCHEDULE_LAG = Gauge(
    "holdfast_schedule_lag_seconds", "Age of the oldest schedule tick that is due."
)
DELIVERIES = Gauge(
    "holdfast_deliveries_open",
    f"Deliveries that are waiting, unconfirmed or held, counted up to {BOUND}.",
    ("state",),
)
DELIVERY_AGE = Gauge(
    "holdfast_delivery_oldest_age_seconds",
    "Age of the oldest open delivery, from when it was due or held.",
    ("state",),
)
XMIN_AGE = Gauge(
    "holdfast_db_oldest_xmin_age_seconds",
    "PostgreSQL: age of the oldest transaction that prevents vacuum from removing dead rows.",
)
HIDDEN = Gauge(
    "holdfast_db_hidden_transactions",
    "PostgreSQL: transactions of other roles whose age is hidden; needs pg_read_all_stats.",
)

GAUGES = (
    DEPTH,
    OLDEST_AGE,
    PAUSED,
    SERVED,
    LETTERS,
    ESCALATED,
    LIVE,
    SCHEDULE_LAG,
    DELIVERIES,
    DELIVERY_AGE,
    XMIN_AGE,
    HIDDEN,
)
DEPTH_STATES = ("ready", "batched", "delayed", "running")
DELIVERY_STATES = ("waiting", "tried", "held")
WORKER_STATES = (WORKING, DRAINING)

Values = dict[tuple[str, ...], float]
Reading = Mapping[str, Values]
"""Values by labels, by gauge name. A gauge without a value is absent."""


@dataclass(frozen=True, slots=True)
class GaugeSet:
    """Gauges of an extension, and a function that reads them on the snapshot."""

    gauges: tuple[Gauge, ...]
    read: Callable[[Tx, Labels], Reading]


def read_gauges(
    store: Store, labels: Labels, queues: Sequence[str], more: Sequence[GaugeSet] = ()
) -> Reading:
    """Read every gauge on one snapshot, with a fixed number of statements."""

    def work(tx: Tx) -> Reading:
        tx.one(SQL.bound_reading)
        asked = [{"name": name} for name in queues]
        waiting = tx.many(SQL.count_waiting, queues=asked, bound=BOUND, oldest=OLDEST)
        running = tx.many(SQL.count_running, bound=BOUND)
        letters = tx.many(SQL.count_letters, bound=BOUND)
        workers = [worker for worker in list_workers(tx) if not worker.is_gone]
        schedules = tx.one(SQL.read_schedules)
        deliveries = tx.many(SQL.count_deliveries, bound=BOUND)
        transactions = tx.one(SQL.read_transactions)
        singles = {
            SCHEDULE_LAG: seconds_of(schedules["lag_ms"]),
            HIDDEN: transactions["hidden"],
        }
        # If transactions are visible and none is open, the oldest is 0 seconds old.
        if transactions["hidden"] is not None:
            singles[XMIN_AGE] = max(transactions["oldest_seconds"] or 0.0, 0.0)
        return {
            **_of_queues(labels, queues, waiting, running, workers),
            **_of_letters(labels, letters),
            LIVE.name: _of_workers(workers),
            **_of_deliveries(deliveries),
            **{gauge.name: {(): value} for gauge, value in singles.items() if value is not None},
            **{name: values for one in more for name, values in one.read(tx, labels).items()},
        }

    return store.read(work)


def known_gauges(hf: Holdfast) -> list[Gauge]:
    """The gauges of the core and of the extensions."""
    sets = (one for extension in hf.extensions.available() for one in extension.gauges())
    return [*GAUGES, *(gauge for one in sets for gauge in one.gauges)]


def read_all(hf: Holdfast, labels: Labels) -> Reading:
    """Read the gauges of the core, and of the extensions whose tables exist."""
    versions = hf.store.component_versions()
    more = [
        one
        for extension in hf.extensions.available()
        if extension.component is None or extension.component.name in versions
        for one in extension.gauges()
    ]
    return read_gauges(hf.store, labels, hf.known_queues, more)


def _of_queues(
    labels: Labels,
    queues: Sequence[str],
    waiting: Sequence[Row],
    running: Sequence[Row],
    workers: Sequence[WorkerRow],
) -> dict[str, Values]:
    # Queue rules are in the store, which only the engine's role writes. A stored queue is therefore
    # known, even if another application declared it.
    stored = {row["queue"] for row in waiting if row["is_paused"] is not None}
    known = set(sorted(stored - set(queues))[: max(0, QUEUES - len(queues))])

    def label(queue: str) -> str:
        return queue if queue in known else labels.queue(queue)

    depth: Values = {}
    oldest: Values = {}
    paused: Values = {}
    served: Values = {}
    for row in waiting:
        queue = label(row["queue"])
        add_to(depth, (queue, "ready"), row["ready"] + row["due"])
        add_to(depth, (queue, "batched"), row["batched"])
        add_to(depth, (queue, "delayed"), row["delayed"])
        add_to(depth, (queue, "running"), 0)
        age = max(seconds_of(row["ready_ms"]), seconds_of(row["due_ms"]))
        oldest[queue,] = max(age, oldest.get((queue,), 0.0))
        add_to(served, (queue,), 0)
        paused[queue,] = max(float(bool(row["is_paused"])), paused.get((queue,), 0.0))
    for row in running:
        add_to(depth, (label(row["queue"]), "running"), row["jobs"])
    for worker in workers:
        for queue in {label(name) for name in worker.queues if worker.can_claim}:
            add_to(served, (queue,), 1)
    return {
        DEPTH.name: depth,
        OLDEST_AGE.name: oldest,
        PAUSED.name: paused,
        SERVED.name: served,
    }


def _of_letters(labels: Labels, letters: Sequence[Row]) -> dict[str, Values]:
    # Every declared type has a value from the start, so that alerts see it leave zero.
    opened: Values = {(job_type,): 0.0 for job_type in (*labels.job_types, OTHER)}
    escalated: Values = dict(opened)
    for row in letters:
        job_type = labels.job_type(row["job_type"])
        add_to(opened, (job_type,), row["open"])
        add_to(escalated, (job_type,), row["escalated"])
    return {LETTERS.name: opened, ESCALATED.name: escalated}


def _of_deliveries(deliveries: Sequence[Row]) -> dict[str, Values]:
    values: dict[str, Values] = {
        gauge.name: {(state,): 0.0 for state in DELIVERY_STATES}
        for gauge in (DELIVERIES, DELIVERY_AGE)
    }
    for row in deliveries:
        values[DELIVERIES.name][row["state"],] = float(row["deliveries"])
        values[DELIVERY_AGE.name][row["state"],] = seconds_of(row["age_ms"])
    return values


def _of_workers(workers: Sequence[WorkerRow]) -> Values:
    live: Values = {(state,): 0.0 for state in WORKER_STATES}
    for worker in workers:
        add_to(live, (worker.state if worker.state in WORKER_STATES else OTHER,), 1)
    return live


def add_to(values: Values, labels: tuple[str, ...], more: float) -> None:
    values[labels] = values.get(labels, 0.0) + more


def seconds_of(length_ms: float | None) -> float:
    """Convert to seconds: 0 for None, and never negative after a clock was set back."""
    return max(0.0, round(length_ms or 0.0) / 1000.0)


@dataclass(slots=True)
class CachedGauges:
    """The latest reading, refreshed on request if it is older than some seconds.

    One background thread reads at a time. If the database hangs, a scrape waits for at most
    *patience* seconds, and only one connection is in use.
    """

    read: Callable[[], Reading]
    clock: Clock
    patience: float = PATIENCE_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: threading.Event | None = None
    _reading: Reading | None = None
    _read_at: float = 0.0
    _due_at: float = float("-inf")

    def latest(self) -> Reading | None:
        """The reading of the last seconds; None if the database does not answer."""
        with self._lock:
            if self._under_way is None and self.clock.monotonic() >= self._due_at:
                self._under_way = threading.Event()
                threading.Thread(
                    target=self._look, args=(self._under_way,), name="holdfast-gauges", daemon=True
                ).start()
            under_way = self._under_way
        if under_way is not None:
            under_way.wait(self.patience)
        with self._lock:
            if self.clock.monotonic() - self._read_at > STALE_SECONDS:
                return None
            return self._reading

    def _look(self, done: threading.Event) -> None:
        began = self.clock.monotonic()
        reading: Reading | None = None
        try:
            reading = self.read()
        except HoldfastError as exc:
            _log.warning("gauges.failed", extra={"fields": {"exception": type(exc).__name__}})
        except Exception:
            _log.exception("gauges.failed")
        finally:
            now = self.clock.monotonic()
            rest = min(max(EVERY_SECONDS, REST_FACTOR * (now - began)), LONGEST_REST_SECONDS)
            with self._lock:
                self._reading, self._read_at = reading, now
                self._due_at = now + rest
                self._under_way = None
            done.set()
