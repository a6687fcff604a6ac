"""Prometheus metrics: counters from events, and gauges of the database.

    metrics = Metrics(hf)          # from here on, what hf does is counted
    metrics.serve(9464)            # or mount prometheus_client's app with metrics.registry

started and failed count attempts, including retries; succeeded and dead-lettered count jobs. Every
label comes from a closed set (label.py).
"""

from __future__ import annotations

import socket
import threading
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never, get_args
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from holdfast.app import Holdfast
from holdfast.engine.job import Outcome
from holdfast.engine.run_log import RunOutcome
from holdfast.engine.schedule.tick import TickOutcome
from holdfast.errors import ConfigError
from holdfast.event import (
    AuditSealed,
    AuditTampered,
    BatchAlert,
    BatchChanged,
    DeadLetterEscalated,
    DeliveryAlert,
    DeliveryChanged,
    Event,
    ExtensionEvent,
    Grouped,
    JobEnqueued,
    JobEvents,
    JobSettled,
    JobStarted,
    LeaseWasLost,
    ModelUsed,
    NotificationDropped,
    QueueCrowded,
    ScheduleFired,
    ScheduleSkipped,
    WorkerChanged,
    WorkerRunFinished,
)
from holdfast.telemetry.gauges import CachedGauges, Gauge, Reading, known_gauges, read_all
from holdfast.telemetry.label import OTHER, Labels

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

    from holdfast.telemetry.delivery_counts import DeliveryCounts
except ModuleNotFoundError as exc:
    raise ConfigError("Metrics need the extra: pip install 'holdfast-jobs[metrics]'.") from exc

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

DURATION_BUCKETS = (
    *(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0),
)
ATTEMPT_BUCKETS = (1, 2, 3, 4, 5, 6, 8, 10, 20)

OUTCOMES = frozenset(kind.__name__.lower() for kind in get_args(Outcome))
RUN_OUTCOMES = frozenset(outcome.value for outcome in RunOutcome)
TICKS = ("fired", TickOutcome.SKIPPED, TickOutcome.MISSED, TickOutcome.HELD)
WORKER_CHANGES = (
    "started",
    "draining",
    "stopped",
    "died",
    "recycling",
    "thread_died",
    "store_down",
    "clock_drift",
    "upkeep_failed",
    "settle_refused",
    "rescue_failed",
    "dispatch_failed",
    "dispatcher_died",
)

# The time limit for a client that connects and sends nothing.
CLIENT_SECONDS = 10.0


class SlimRegistry(CollectorRegistry):
    """A registry without the creation time of each series, which would double their number."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            created = f"{family.name}_created"
            family.samples = [sample for sample in family.samples if sample.name != created]
            yield family


@dataclass(slots=True)
class Series:
    """The metrics of one job type in one queue.

    Counters start at zero when first seen, so that alerts see them change. Histograms are expensive
    and are created with their first value.
    """

    enqueued: Counter
    started: Counter
    succeeded: Counter
    dead: Counter
    lost: Counter
    escalated: Counter
    failed: dict[str, Counter] = field(default_factory=dict)
    settled: dict[str, Counter] = field(default_factory=dict)
    duration: Histogram | None = None
    attempts: Histogram | None = None


class Metrics:
    """Exports the events of a Holdfast and the gauges of its database to Prometheus.

    It creates its own registry unless one is passed. With ``database=False`` the gauges are left
    out.
    """

    def __init__(
        self, hf: Holdfast, *, registry: CollectorRegistry | None = None, database: bool = True
    ) -> None:
        self.registry = SlimRegistry() if registry is None else registry
        self.labels = Labels(hf)
        self._series: dict[tuple[str, str], Series] = {}
        self._declare_jobs()
        self._declare_others()
        self._deliveries = DeliveryCounts(self.registry, self.labels)
        if database:
            self.registry.register(DatabaseGauges(hf, self.labels))
        for handler in hf.registry:
            self._series_of(handler.job_type, handler.queue)
        hf.events.subscribe(Grouped(self.count_all))
        for extension in hf.extensions.available():
            counter = extension.metrics(self.registry, self.labels)
            if counter is not None:
                hf.events.subscribe(counter)

    def serve(self, port: int, host: str = "127.0.0.1") -> Served:
        """Serve the metrics over HTTP in background threads until the result is closed."""
        return Served(self.registry, host, port)

    def count_all(self, events: JobEvents) -> None:
        """An event subscriber that counts the events of a group of jobs.

        Each counter is increased once for all jobs of one type and queue. One by one, with a lock
        for each, counting took 5 us of a job.
        """
        started = Counts((job.job_type, job.queue) for job in events.started)
        for key, number in started.items():
            self._series_of(*key).started.inc(number)
        ended: dict[tuple[str, str], tuple[list[float], list[int]]] = {}
        for job, ran in zip(events.completed, events.seconds, strict=True):
            seconds, attempts = ended.setdefault((job.job_type, job.queue), ([], []))
            attempts.append(job.attempt)
            if ran is not None:
                seconds.append(ran)
        for key, (seconds, attempts) in ended.items():
            self._count_settled(key, "completed", None, seconds, attempts)
        enqueued = Counts[tuple[str, str]]()
        for event in events.others:
            if isinstance(event, JobEnqueued):
                enqueued[event.about.job_type, event.queue] += 1
            else:
                self.count(event)
        for key, number in enqueued.items():
            self._series_of(*key).enqueued.inc(number)

    def count(self, event: Event) -> None:
        """Count one event."""
        match event:
            case JobEnqueued(about, queue):
                self._series_of(about.job_type, queue).enqueued.inc()
            case JobStarted(about, queue):
                self._series_of(about.job_type, queue).started.inc()
            case JobSettled(about, queue, attempt, outcome):
                seconds = [] if event.seconds is None else [event.seconds]
                key = about.job_type, queue
                self._count_settled(key, outcome, event.error_class, seconds, [attempt])
            case LeaseWasLost(about, queue):
                self._series_of(about.job_type, queue).lost.inc()
            case DeadLetterEscalated():
                self._series_of(event.about.job_type, event.queue).escalated.inc()
            case AuditSealed() | AuditTampered():
                pass  # The extension counts seals. Checks run as commands, which are not scraped.
            case NotificationDropped(job_type):
                self._dropped.labels(self.labels.job_type(job_type)).inc()
            case QueueCrowded(queue):
                self._crowded.labels(self.labels.queue(queue)).inc()
            case DeliveryChanged():
                self._deliveries.count(event)
            case DeliveryAlert():
                self._deliveries.count_alert(event)
            case ScheduleFired(schedule):
                self._ticks.labels(self.labels.schedule(schedule), "fired").inc()
            case ScheduleSkipped(schedule, _, outcome):
                became = outcome if outcome in TICKS else OTHER
                self._ticks.labels(self.labels.schedule(schedule), became).inc(event.ticks)
            case WorkerChanged(_, change):
                self._changes.labels(change if change in WORKER_CHANGES else OTHER).inc()
            case WorkerRunFinished():
                ended = event.outcome if event.outcome in RUN_OUTCOMES else OTHER
                self._runs.labels(self.labels.run(event.name), ended).inc()
            case ExtensionEvent() | BatchChanged() | BatchAlert() | ModelUsed():
                pass  # The extension counts it: see __init__.
            case _:
                assert_never(event)

    def _count_settled(
        self,
        key: tuple[str, str],
        verb: str,
        error_class: str | None,
        seconds: Sequence[float],
        attempts: Sequence[int],
    ) -> None:
        """Count attempts of one job type and queue that ended in the same way."""
        series, number = self._series_of(*key), len(attempts)
        labels = self.labels.job_type(key[0]), self.labels.queue(key[1])
        outcome = verb if verb in OUTCOMES else OTHER
        settled = series.settled.get(outcome)
        if settled is None:
            settled = series.settled[outcome] = self._settled.labels(*labels, outcome)
        settled.inc(number)
        if seconds:
            if series.duration is None:
                series.duration = self._duration.labels(*labels)
            observe_all(series.duration, seconds)
        if outcome == "completed":
            series.succeeded.inc(number)
        elif outcome in ("retry", "dead"):
            known = self.labels.error_class(error_class or OTHER)
            failed = series.failed.get(known)
            if failed is None:
                failed = series.failed[known] = self._failed.labels(*labels, known)
            failed.inc(number)
            if outcome == "dead":
                series.dead.inc(number)
        if outcome in ("completed", "dead", "canceled"):
            if series.attempts is None:
                series.attempts = self._attempts.labels(labels[0])
            observe_all(series.attempts, attempts)

    def _series_of(self, job_type: str, queue: str) -> Series:
        key = self.labels.job_type(job_type), self.labels.queue(queue)
        found = self._series.get(key)
        if found is None:
            enqueued, started, succeeded, dead, lost, escalated = (
                counter.labels(*key) for counter in self._plain
            )
            found = Series(enqueued, started, succeeded, dead, lost, escalated)
            self._series[key] = found
        return found

    def _declare_jobs(self) -> None:
        of_job = ("job_type", "queue")

        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(name, says, labels, registry=self.registry)

        # In the order of Series.
        self._plain = (
            counter(
                "jobs_enqueued_total",
                "Jobs enqueued; duplicates and holdfast.enqueue() in SQL excluded.",
                *of_job,
            ),
            counter("jobs_started_total", "Attempts started by a worker.", *of_job),
            counter("jobs_succeeded_total", "Jobs completed.", *of_job),
            counter(
                "deadletter_total", "Jobs dead-lettered, by the queue they came from.", *of_job
            ),
            counter(
                "holdfast_lease_losses_total",
                "Attempts whose result was discarded because the lease was lost.",
                *of_job,
            ),
            counter(
                "holdfast_deadletter_escalations_total",
                "Replays that failed with the same error class as the original job.",
                *of_job,
            ),
        )
        self._failed = counter(
            "jobs_failed_total",
            "Attempts that failed, retried or not, by error class.",
            *of_job,
            "error_class",
        )
        self._settled = counter(
            "holdfast_jobs_settled_total", "Attempts that ended, by outcome.", *of_job, "outcome"
        )
        self._duration = Histogram(
            "jobs_duration_seconds",
            "Duration of an attempt.",
            of_job,
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        self._attempts = Histogram(
            "jobs_attempts_histogram",
            "Number of attempts of a job that ended.",
            ("job_type",),
            buckets=ATTEMPT_BUCKETS,
            registry=self.registry,
        )

    def _declare_others(self) -> None:
        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(name, says, labels, registry=self.registry)

        self._dropped = counter(
            "holdfast_notifications_dropped_total",
            "Notifications that could not be enqueued.",
            "job_type",
        )
        self._crowded = counter(
            "holdfast_queue_crowded_total",
            "Times that a queue grew beyond its small_depth.",
            "queue",
        )
        self._ticks = counter(
            "holdfast_schedule_ticks_total",
            "Schedule ticks, by outcome.",
            "schedule",
            "outcome",
        )
        self._changes = counter(
            "holdfast_worker_changes_total", "Worker lifecycle events and errors.", "change"
        )
        self._runs = counter(
            "holdfast_runs_total", "Bounded runs that ended, by outcome.", "run", "outcome"
        )
        for change in WORKER_CHANGES:
            self._changes.labels(change)


def observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """Observe several values. One by one, with two locks for each, the client took 0.4 us of each.

    It has no public call for this. Without the private attributes each value is observed alone.
    """
    bounds, buckets, total = (
        getattr(histogram, name, None) for name in ("_upper_bounds", "_buckets", "_sum")
    )
    if len(values) == 1 or bounds is None or buckets is None or total is None:
        for value in values:
            histogram.observe(value)
        return
    total.inc(sum(values))
    for bucket, number in Counts(bisect_left(bounds, value) for value in values).items():
        buckets[bucket].inc(number)


class DatabaseGauges:
    """Collects the gauges of a database for prometheus_client."""

    def __init__(self, hf: Holdfast, labels: Labels) -> None:
        self._hf = hf
        self._looks = CachedGauges(lambda: read_all(hf, labels), hf.clock)

    def describe(self) -> list[Metric]:
        gauges = known_gauges(self._hf)
        return list(_families(gauges, {gauge.name: {} for gauge in gauges}, is_up=False))

    def collect(self) -> Iterator[Metric]:
        reading = self._looks.latest()
        return _families(known_gauges(self._hf), reading or {}, is_up=reading is not None)


def _families(gauges: Sequence[Gauge], reading: Reading, *, is_up: bool) -> Iterator[Metric]:
    up = "1 if the database can be read. At 0 no other gauge is exported."
    yield GaugeMetricFamily("holdfast_db_up", up, value=float(is_up))
    for gauge in gauges:
        if gauge.name not in reading:
            continue
        family = GaugeMetricFamily(gauge.name, gauge.says, labels=gauge.labels)
        for labels, value in sorted(reading[gauge.name].items()):
            family.add_metric(labels, value)
        yield family


def database_text(hf: Holdfast) -> str:
    """The gauges of the database, read once, in Prometheus text format."""
    reading = read_all(hf, Labels(hf))

    class Once:
        def collect(self) -> Iterator[Metric]:
            return _families(known_gauges(hf), reading, is_up=True)

    return generate_latest(Once()).decode()


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes are frequent."""


class _Server(ThreadingWSGIServer):
    def handle_error(self, *_: object) -> None:
        """Log nothing: disconnects of scrapers are harmless, and the log is JSON only."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class Served:
    """A running metrics server. Close it, or use it in a ``with`` statement."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        kind: type[WSGIServer] = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(
                host, port, make_wsgi_app(registry), server_class=kind, handler_class=_Handler
            )
        except OSError as exc:
            raise ConfigError(
                f"Metrics cannot be served on {host} port {port}: {exc.strerror or exc}."
                " Choose another host or port."
            ) from exc
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="holdfast-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
