"""Metrics from events: their names, and their allowed labels."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, generate_latest

from holdfast import Context, FakeClock, Holdfast, NetworkTimeout, Permanent, Snooze
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.worker.worker import run_maintenance
from holdfast.errors import Failure, RateLimited, SchemaInvalid, Transient
from holdfast.event import (
    About,
    AuditSealed,
    DeadLetterEscalated,
    Event,
    JobEnqueued,
    JobSettled,
    JobStarted,
    LeaseWasLost,
    NotificationDropped,
    QueueCrowded,
    ScheduleFired,
    ScheduleSkipped,
    WorkerChanged,
    WorkerRunFinished,
)
from holdfast.telemetry import label
from holdfast.telemetry.metrics import WORKER_CHANGES, Metrics
from tests.story import ORG, OTHER_ORG, claim
from tests.telemetry.exposition import problems_of, read, value

PACKAGE = Path(str(resources.files("holdfast")))
NOW = RetryPolicy(steps=(timedelta(0),))


def text_of(metrics: Metrics) -> str:
    text = generate_latest(metrics.registry).decode()
    assert problems_of(text) == []
    return text


@pytest.fixture
def metrics(hf: Holdfast) -> Metrics:
    """The metrics of an application whose payloads select the outcome of a job."""

    @hf.job("order.ship", max_attempts=3, retry=NOW)
    def ship(job: Context, payload: dict[str, Any]) -> None:
        match payload.get("then"):
            case "timeout":
                raise NetworkTimeout
            case "malformed":
                raise SchemaInvalid
            case "later":
                raise Snooze(60)
            case "third":
                if job.attempt < 3:
                    raise RateLimited

    hf.job("report.export", queue="q:exports")(lambda job, payload: None)
    return Metrics(hf)


def about(job_type: str = "order.ship", **options: str) -> About:
    return About("j1", job_type, ORG, None, "r1", "c1")


@pytest.mark.req("M-04", "M-05", "M-06")
def test_what_is_enqueued_started_and_succeeds_is_counted_by_type_and_queue(
    hf: Holdfast, metrics: Metrics
) -> None:
    hf.enqueue_many("order.ship", [{}] * 3, org_id=ORG)
    hf.enqueue("order.ship", {}, org_id=OTHER_ORG)
    hf.enqueue("report.export", {}, org_id=ORG)
    hf.worker().run_once()
    hf.enqueue("order.ship", {}, org_id=ORG)

    text = text_of(metrics)

    ship = {"job_type": "order.ship", "queue": "q:default"}
    assert value(text, "jobs_enqueued_total", **ship) == 5
    assert value(text, "jobs_started_total", **ship) == 4
    assert value(text, "jobs_succeeded_total", **ship) == 4
    export = {"job_type": "report.export", "queue": "q:exports"}
    assert value(text, "jobs_succeeded_total", **export) == 1


@pytest.mark.req("M-04")
def test_a_duplicate_is_not_counted_as_enqueued(hf: Holdfast, metrics: Metrics) -> None:
    for _ in range(3):
        hf.enqueue("order.ship", {}, org_id=ORG, idempotency_key="once")

    labels = {"job_type": "order.ship", "queue": "q:default"}
    assert value(text_of(metrics), "jobs_enqueued_total", **labels) == 1


@pytest.mark.req("M-07", "M-10")
def test_each_failed_attempt_is_counted_and_each_dead_job_once(
    hf: Holdfast, metrics: Metrics
) -> None:
    hf.enqueue("order.ship", {"then": "timeout"}, org_id=ORG)
    hf.enqueue("order.ship", {"then": "malformed"}, org_id=ORG)
    worker = hf.worker()
    while worker.run_once().claimed:
        pass

    text = text_of(metrics)

    ship = {"job_type": "order.ship", "queue": "q:default"}
    assert value(text, "jobs_failed_total", **ship, error_class="NETWORK_TIMEOUT") == 3
    assert value(text, "jobs_failed_total", **ship, error_class="SCHEMA_INVALID") == 1
    # By their original queue: all of them are in q:deadletter.
    assert value(text, "deadletter_total", **ship) == 2
    assert value(text, "holdfast_jobs_settled_total", **ship, outcome="retry") == 2
    assert value(text, "jobs_succeeded_total", **ship) == 0


@pytest.mark.req("M-09")
def test_the_attempts_of_a_job_are_observed_once_when_it_ends(
    hf: Holdfast, metrics: Metrics
) -> None:
    hf.enqueue_many("order.ship", [{}, {"then": "third"}, {"then": "timeout"}], org_id=ORG)
    hf.enqueue("order.ship", {"then": "later"}, org_id=ORG)
    worker = hf.worker()
    while worker.run_once().claimed:
        pass

    text = text_of(metrics)

    (family,) = [item for item in read(text).values() if item.name == "jobs_attempts_histogram"]
    assert family.kind == "histogram"
    assert family.labels == {"job_type"}
    ship = {"job_type": "order.ship"}
    assert value(text, "jobs_attempts_histogram_count", **ship) == 3
    assert value(text, "jobs_attempts_histogram_sum", **ship) == 1 + 3 + 3
    assert value(text, "jobs_attempts_histogram_bucket", **ship, le="2.0") == 1
    assert value(text, "jobs_attempts_histogram_bucket", **ship, le="3.0") == 3


@pytest.mark.req("M-08")
def test_an_attempt_is_measured_from_its_start_to_its_end(
    hf: Holdfast, metrics: Metrics, clock: FakeClock
) -> None:
    stages = hf.pipeline("page.render")

    @stages.stage("fetch")
    def fetch(job: Context, payload: dict[str, Any]) -> None:
        clock.advance(seconds=4)

    @stages.stage("draw")
    def draw(job: Context, payload: dict[str, Any]) -> None:
        clock.advance(seconds=20)

    hf.enqueue("page.render", {}, org_id=ORG)
    clock.advance(hours=1)
    hf.worker().run_once()

    text = text_of(metrics)

    labels = {"job_type": "page.render", "queue": "q:default"}
    assert value(text, "jobs_duration_seconds_count", **labels) == 2
    assert value(text, "jobs_duration_seconds_sum", **labels) == 24
    assert value(text, "jobs_duration_seconds_bucket", **labels, le="2.5") == 0
    assert value(text, "jobs_duration_seconds_bucket", **labels, le="5.0") == 1
    assert value(text, "holdfast_jobs_settled_total", **labels, outcome="advanced") == 1
    assert value(text, "jobs_succeeded_total", **labels) == 1


def test_what_was_claimed_and_given_back_unused_has_no_duration(hf: Holdfast) -> None:
    metrics = Metrics(hf)
    metrics.count(JobSettled(about(), "q:default", 1, "released", "run"))

    text = text_of(metrics)

    assert "jobs_duration_seconds_count" not in text


def test_the_threads_and_the_loop_of_a_worker_measure_what_they_run(hf: Holdfast) -> None:
    @hf.job("sync.work")
    def work(job: Context, payload: dict[str, Any]) -> None: ...

    @hf.job("async.work")
    async def await_work(job: Context, payload: dict[str, Any]) -> None: ...

    metrics = Metrics(hf)
    hf.enqueue_many("sync.work", [{}] * 5, org_id=ORG)
    hf.enqueue_many("async.work", [{}] * 5, org_id=ORG)

    hf.worker(concurrency=2).run(until_idle=True)

    text = text_of(metrics)
    for job_type in ("sync.work", "async.work"):
        labels = {"job_type": job_type, "queue": "q:default"}
        assert value(text, "jobs_duration_seconds_count", **labels) == 5
        assert value(text, "jobs_duration_seconds_sum", **labels) < 5
    assert value(text, "holdfast_worker_changes_total", change="started") == 1
    assert value(text, "holdfast_worker_changes_total", change="stopped") == 1


def test_a_handler_that_never_returns_is_measured_until_its_job_is_taken_away(
    hf: Holdfast,
) -> None:
    over = threading.Event()

    @hf.job("stuck.work", max_attempts=1, timeout=0.05)
    def stuck(job: Context, payload: dict[str, Any]) -> None:
        over.wait(30)

    metrics = Metrics(hf)
    hf.enqueue("stuck.work", {}, org_id=ORG)
    try:
        hf.worker(concurrency=2).run(until_idle=True)
    finally:
        over.set()

    text = text_of(metrics)
    labels = {"job_type": "stuck.work", "queue": "q:default"}
    assert value(text, "jobs_failed_total", **labels, error_class="HANDLER_TIMEOUT") == 1
    assert value(text, "jobs_duration_seconds_count", **labels) == 1
    assert value(text, "jobs_duration_seconds_bucket", **labels, le="0.025") == 0


@pytest.mark.req("M-07")
def test_the_claim_of_a_dead_worker_is_a_failed_attempt(
    hf: Holdfast, metrics: Metrics, clock: FakeClock
) -> None:
    hf.enqueue("order.ship", {}, org_id=ORG)
    claim(hf)
    clock.advance(seconds=61)

    run_maintenance(hf.store, hf.settings, hf.events)

    labels = {"job_type": "order.ship", "queue": "q:default", "error_class": "WORKER_CRASHED"}
    assert value(text_of(metrics), "jobs_failed_total", **labels) == 1


def test_a_lost_lease_is_counted_and_its_result_is_not(
    hf: Holdfast, metrics: Metrics, clock: FakeClock
) -> None:
    @hf.job("slow.work")
    def slow(job: Context, payload: dict[str, Any]) -> None:
        if job.attempt == 1:
            clock.advance(seconds=61)
            rescue_jobs(hf.store, limit=10)

    hf.enqueue("slow.work", {}, org_id=ORG)
    worker = hf.worker()
    while worker.run_once().claimed:
        pass

    text = text_of(metrics)
    labels = {"job_type": "slow.work", "queue": "q:default"}
    assert value(text, "holdfast_lease_losses_total", **labels) == 1
    assert value(text, "jobs_succeeded_total", **labels) == 1


# -- labels


def settled(error_class: str, **changes: Any) -> JobSettled:
    given: dict[str, Any] = {"about": about(), "queue": "q:default", **changes}
    return JobSettled(
        attempt=1, outcome="retry", stage="run", error_class=error_class, seconds=1.0, **given
    )


HOSTILE = [
    'x"} 1\njobs_enqueued_total{job_type="forged',
    "\x1b[31mred",
    "x" * 1_000_000,
    ORG,
    "order.ship\\",
    "",
    "ünbekannt",
]


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_an_undeclared_label_value_becomes_other(hf: Holdfast, metrics: Metrics, word: str) -> None:
    metrics.count(JobEnqueued(about(word), word))
    metrics.count(JobStarted(about(word), word, 1, word))
    metrics.count(settled(word, about=about(word), queue=word))
    metrics.count(LeaseWasLost(about(word), word, word))
    metrics.count(DeadLetterEscalated(about(word), word, word, word, word, 2))
    metrics.count(AuditSealed(ORG, 1, 1, "d" * 64))
    metrics.count(NotificationDropped(word, ORG, word))
    metrics.count(QueueCrowded(word, 1))
    metrics.count(ScheduleFired(word, hf.clock.now(), word))
    metrics.count(ScheduleSkipped(word, hf.clock.now(), word, word, ticks=3))
    metrics.count(WorkerChanged(word, word, word))

    text = text_of(metrics)

    both = {"job_type": "other", "queue": "other"}
    assert value(text, "jobs_enqueued_total", **both) == 1
    assert value(text, "jobs_failed_total", **both, error_class="other") == 1
    assert value(text, "holdfast_deadletter_escalations_total", **both) == 1
    assert value(text, "holdfast_schedule_ticks_total", schedule="other", outcome="other") == 3
    assert value(text, "holdfast_worker_changes_total", change="other") == 1
    assert "forged" not in text
    assert len(text) < 100_000


def test_a_million_words_make_no_more_series_than_one(hf: Holdfast, metrics: Metrics) -> None:
    def series() -> int:
        return sum(len(family.samples) for family in read(text_of(metrics)).values())

    metrics.count(settled("WORD_0", about=about("word.0"), queue="q:0"))
    once = series()
    for number in range(1, 1_000):
        metrics.count(settled(f"W_{number}", about=about(f"w.{number}"), queue=f"q:{number}"))

    assert series() == once


def test_a_failure_of_the_application_has_its_own_label(hf: Holdfast, metrics: Metrics) -> None:
    class CardDeclined(Permanent):
        error_class = "CARD_DECLINED"

    class Unspeakable(Transient):
        """Its value bypasses the check of the declaration."""

    Unspeakable.error_class = 'BAD"} 1\n'

    metrics.count(settled("CARD_DECLINED"))
    metrics.count(settled(Unspeakable.error_class))

    text = text_of(metrics)
    ship = {"job_type": "order.ship", "queue": "q:default"}
    assert value(text, "jobs_failed_total", **ship, error_class="CARD_DECLINED") == 1
    assert value(text, "jobs_failed_total", **ship, error_class="other") == 1
    assert CardDeclined.error_class in text


def test_an_application_can_have_so_many_error_classes_and_no_more(
    hf: Holdfast, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests have declared some, and classes are not freed.
    labels = label.Labels(hf)
    labels.error_class("NOBODYS")
    bound = len(labels._own) + 5
    monkeypatch.setattr(label, "OWN_ERROR_CLASSES", bound)
    made = [type(f"Own{n}", (Permanent,), {"error_class": f"OWN_{n}"}) for n in range(bound + 50)]

    for kind in made:
        metrics.count(settled(kind.error_class))

    family = read(text_of(metrics))["jobs_failed_total"]
    classes = {dict(labels)["error_class"] for _, labels in family.samples}
    assert 5 <= len(classes - {"other"}) <= bound
    assert "other" in classes


def test_what_is_declared_later_is_known_from_then_on(hf: Holdfast) -> None:
    metrics = Metrics(hf)
    hf.queue("q:mail")
    hf.job("mail.send", queue="q:mail")(lambda job, payload: None)

    hf.enqueue("mail.send", {}, org_id=ORG)

    labels = {"job_type": "mail.send", "queue": "q:mail"}
    assert value(text_of(metrics), "jobs_enqueued_total", **labels) == 1


def test_no_tenant_id_or_payload_is_in_the_text(hf: Holdfast, metrics: Metrics) -> None:
    canary = "canary-4711"
    job = hf.enqueue("order.ship", {"note": canary, "then": "malformed"}, org_id=ORG)
    worker = hf.worker()
    worker.run_once()

    text = text_of(metrics)

    for hidden in (canary, job.id, job.org_id, worker.id, job.idempotency_key):
        assert hidden not in text


# -- other counters, and the closed set of names


def test_runs_and_ticks_are_counted_by_name_and_outcome(hf: Holdfast, metrics: Metrics) -> None:
    hf.job("shop.tidy", category="maintenance")(lambda job, payload: None)
    hf.schedule("nightly", cron="0 2 * * *", job_type="shop.tidy", payload={}, org_id=ORG)
    now = hf.clock.now()
    counts = dict.fromkeys(
        ("claimed", "succeeded", "failed", "requeued", "released", "canceled", "left"), 0
    )
    metrics.count(ScheduleFired("nightly", now, "job order.ship"))
    metrics.count(ScheduleSkipped("nightly", now, "missed", "too late", ticks=7))
    metrics.count(
        WorkerRunFinished(
            "r1",
            "unknown",
            "example",
            "cron",
            now,
            now,
            "done",
            None,
            10,
            rate_limit_errors=0,
            capacity_errors=0,
            error_counts={},
            model_counts={},
            **{f"{name}_count": count for name, count in counts.items()},
        )
    )

    text = text_of(metrics)

    assert value(text, "holdfast_schedule_ticks_total", schedule="nightly", outcome="fired") == 1
    assert value(text, "holdfast_schedule_ticks_total", schedule="nightly", outcome="missed") == 7
    assert value(text, "holdfast_runs_total", run="other", outcome="done") == 1


def test_every_worker_change_in_the_code_has_a_name_here() -> None:
    told = re.compile(
        r"""(?:_change|\bchanged)\(\s*"(\w+)"|WorkerChanged\([^()]*(?:\([^()]*\)[^()]*)*?"(\w+)","""
    )
    words = {
        word
        for path in PACKAGE.rglob("*.py")
        for found in told.findall(path.read_text())
        for word in found
        if word
    } - {"dispatcher"}

    assert {"started", "store_down", "died", "dispatcher_died"} <= words
    assert words == set(WORKER_CHANGES)


def test_our_failures_are_known_whatever_the_application_declares(hf: Holdfast) -> None:
    labels = label.Labels(hf)

    for kind in (Failure, *Failure.__subclasses__(), *Transient.__subclasses__()):
        if kind.__module__ == "holdfast.errors":
            assert labels.error_class(kind.error_class) == kind.error_class


# -- registries


def test_the_default_registry_is_left_alone_unless_it_is_given(hf: Holdfast) -> None:
    before = generate_latest(REGISTRY)
    Metrics(hf)
    assert b"jobs_enqueued" not in before + generate_latest(REGISTRY)

    given = CollectorRegistry()
    hf.job("order.ship")(lambda job, payload: None)
    Metrics(hf, registry=given, database=False)
    assert b"jobs_enqueued_total" in generate_latest(given)


def test_a_metric_of_the_applications_own_in_our_registry_is_shown_as_it_is(hf: Holdfast) -> None:
    metrics = Metrics(hf)
    Gauge("orders_created", "Theirs.", registry=metrics.registry).set(7)

    assert value(text_of(metrics), "orders_created") == 7


def test_counters_that_alerts_look_at_begin_at_zero(hf: Holdfast, metrics: Metrics) -> None:
    text = text_of(metrics)

    ship = {"job_type": "order.ship", "queue": "q:default"}
    for name in ("deadletter_total", "holdfast_lease_losses_total"):
        assert value(text, name, **ship) == 0
    assert value(text, "holdfast_worker_changes_total", change="store_down") == 0
    assert "_created" not in text


def test_a_subscriber_that_fails_harms_no_job(hf: Holdfast, metrics: Metrics) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError

    hf.events.subscribe(broken)
    hf.enqueue("order.ship", {}, org_id=ORG)

    assert hf.worker().run_once().outcomes == {"completed": 1}
