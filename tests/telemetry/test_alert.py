"""Alerts: limited in rate, sent to the configured targets, and never blocking work."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Actor, ConfigError, Context, FakeClock, Holdfast, Snooze, State
from holdfast.config import AlertSettings, Rate, RunSettings, Settings
from holdfast.config.section import SEVERITIES
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.engine.worker.worker import run_maintenance
from holdfast.errors import AuthDenied
from holdfast.event import (
    About,
    AuditSealed,
    AuditTampered,
    BatchAlert,
    BatchChange,
    BatchChanged,
    BatchTrouble,
    DeadLetterEscalated,
    DeliveryAlert,
    DeliveryChange,
    DeliveryChanged,
    DeliveryTrouble,
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
from holdfast.telemetry import alert as alerting
from holdfast.telemetry import log
from holdfast.telemetry.alert import Alert, Alerts, Kind, Severity, alert, alert_as_set, alert_of
from holdfast.telemetry.alert_sink import AlertSink
from tests.engine.planting import plant
from tests.story import ORG, OTHER_ORG, PROJECT, make_holdfast, seal_all

CANARY = "canary-31d8"
AT = datetime(2026, 1, 5, 9, tzinfo=UTC)
ABOUT = About("job-1", "mail.send", ORG, PROJECT, "req-1", "corr-1")
SIX = {
    "job_id": "job-1", "job_type": "mail.send", "org_id": ORG, "project_id": PROJECT,
    "request_id": "req-1", "correlation_id": "corr-1",
}  # fmt: skip


def dead(error_class: str = "GONE", *, pages: bool = False, about: About = ABOUT) -> JobSettled:
    return JobSettled(about, "q:default", 5, "dead", "run", error_class, 1.0, pages)


def run_finished(outcome: str) -> WorkerRunFinished:
    counts: list[Any] = [None] * 9
    return WorkerRunFinished(
        "run-1", "sweep", "prod", "cron", AT, AT, outcome, None, 25, *counts, {}, {}
    )


# -- which events are alerts


TOLD: list[tuple[Event, Kind, Severity]] = [
    (dead(), Kind.DEAD_LETTER, Severity.ERROR),
    (dead(pages=True), Kind.DEAD_LETTER, Severity.CRITICAL),
    (
        DeadLetterEscalated(ABOUT, "job-0", "q:default", "run", "GONE", 2),
        Kind.DEAD_LETTER_ESCALATED,
        Severity.CRITICAL,
    ),
    (QueueCrowded("q:critical", 100), Kind.QUEUE_CROWDED, Severity.WARNING),
    (AuditTampered(ORG, "the seal is missing", 3), Kind.AUDIT_TAMPERED, Severity.CRITICAL),
    (
        NotificationDropped("mail.send", ORG, "QueueFull"),
        Kind.NOTIFICATION_DROPPED,
        Severity.WARNING,
    ),
    (ScheduleSkipped("nightly", AT, "missed", CANARY, 3), Kind.SCHEDULE_MISSED, Severity.WARNING),
    (ScheduleSkipped("nightly", AT, "held", CANARY), Kind.SCHEDULE_MISSED, Severity.WARNING),
    (run_finished("failed"), Kind.RUN_FAILED, Severity.ERROR),
    (run_finished("lost"), Kind.RUN_FAILED, Severity.ERROR),
    (WorkerChanged("w1", "store_down", CANARY), Kind.STORE_DOWN, Severity.CRITICAL),
    (WorkerChanged("w1", "rescue_failed", CANARY), Kind.STORE_DOWN, Severity.CRITICAL),
    (WorkerChanged("w1", "dispatch_failed", CANARY), Kind.STORE_DOWN, Severity.CRITICAL),
    (WorkerChanged("w1", "upkeep_failed", CANARY), Kind.UPKEEP_FAILED, Severity.ERROR),
    (WorkerChanged("w1", "clock_drift", CANARY), Kind.CLOCK_DRIFT, Severity.ERROR),
    (WorkerChanged("w1", "recycling", CANARY), Kind.WORKER_RECYCLING, Severity.WARNING),
    (WorkerChanged("w1", "died", CANARY), Kind.WORKER_DIED, Severity.ERROR),
    (WorkerChanged("w1", "thread_died", CANARY), Kind.WORKER_DIED, Severity.ERROR),
    (WorkerChanged("w1", "dispatcher_died", CANARY), Kind.WORKER_DIED, Severity.ERROR),
    (BatchAlert("b1", "acc", BatchTrouble.CROSS_WIRED), Kind.BATCH, Severity.CRITICAL),
    (BatchAlert("b1", "acc", BatchTrouble.ZOMBIE_BATCH), Kind.BATCH, Severity.CRITICAL),
    (BatchAlert("b1", "acc", BatchTrouble.MISSING_RESULT, "", 3), Kind.BATCH, Severity.ERROR),
    (BatchAlert(None, "acc", BatchTrouble.CIRCUIT_OPENED), Kind.BATCH, Severity.CRITICAL),
    (BatchAlert(None, "acc", BatchTrouble.UNPRICED, "model-1"), Kind.BATCH, Severity.WARNING),
    (DeliveryAlert("mail", DeliveryTrouble.HELD, "d1", ORG), Kind.DELIVERY, Severity.ERROR),
    (DeliveryAlert("mail", DeliveryTrouble.MARKED_UNSENT), Kind.DELIVERY, Severity.CRITICAL),
    (DeliveryAlert("mail", DeliveryTrouble.MAYBE_TWICE), Kind.DELIVERY, Severity.WARNING),
]
CALM: list[Event] = [
    JobEnqueued(ABOUT, "q:default"),
    JobStarted(ABOUT, "q:default", 1, "w1"),
    JobSettled(ABOUT, "q:default", 1, "retry", "run", "GONE"),
    JobSettled(ABOUT, "q:default", 1, "completed", "run"),
    LeaseWasLost(ABOUT, "q:default", "w1"),
    AuditSealed(ORG, 1, 2, "abc"),
    BatchChanged("b1", "openai", "model-1", BatchChange.QUARANTINED, 3),
    DeliveryChanged("d1", ORG, "mail", DeliveryChange.HELD, "unknown"),
    ScheduleFired("nightly", AT, "job x"),
    ScheduleSkipped("nightly", AT, "skipped", "nothing pending"),
    run_finished("done"),
    WorkerChanged("w1", "started"),
]


@pytest.mark.parametrize(("event", "kind", "severity"), TOLD)
def test_trouble_is_an_alert_of_its_kind(event: Event, kind: Kind, severity: Severity) -> None:
    found = alert_of(event, AT)

    assert found is not None
    assert (found.kind, found.severity, found.at, found.count) == (kind, severity, AT, 1)
    assert found.summary
    assert CANARY not in json.dumps(found.document())


@pytest.mark.parametrize("event", CALM)
def test_what_goes_well_is_none(event: Event) -> None:
    assert alert_of(event, AT) is None


def test_every_kind_has_an_event() -> None:
    assert {kind for _, kind, _ in TOLD} | {Kind.LEASES_LOST} == set(Kind)
    assert tuple(Severity) == SEVERITIES


def test_the_same_trouble_has_the_same_fingerprint() -> None:
    other = About("job-2", "mail.send", OTHER_ORG, None, "req-2", "req-2")
    prints = [
        alert_of(event, AT).fingerprint  # type: ignore[union-attr]
        for event in (dead(), dead(about=other), dead("POLICY_REJECTED"))
    ]

    assert prints[0] == prints[1] != prints[2]


# -- rate limit


class Told(list[Alert]):
    """A target that records alerts."""

    def __call__(self, found: Alert) -> None:
        self.append(found)


def make(clock: FakeClock, **settings: Any) -> tuple[Alerts, Told]:
    told = Told()
    return Alerts(clock, AlertSettings(**settings), [told]), told


def test_a_storm_is_one_alert_a_period_with_a_count(clock: FakeClock) -> None:
    alerts, told = make(clock, quiet_seconds=60)

    for _ in range(100):
        alerts(dead())
    alerts(dead("POLICY_REJECTED"))
    assert [item.count for item in told] == [1, 1]

    alerts.flush()
    assert len(told) == 2
    clock.advance(seconds=60)
    alerts.flush()
    assert [item.count for item in told] == [1, 1, 99]

    # The period restarts with the reported alerts; without further ones, none are sent.
    clock.advance(seconds=60)
    alerts.flush()
    assert len(told) == 3
    alerts(dead())
    assert [item.count for item in told] == [1, 1, 99, 1]
    alerts.close()


def test_what_comes_after_the_period_brings_what_was_held_back(clock: FakeClock) -> None:
    alerts, told = make(clock, quiet_seconds=60)
    for _ in range(5):
        alerts(dead())
    clock.advance(seconds=61)

    alerts(dead())

    assert [item.count for item in told] == [1, 5]
    alerts.close()


def test_suppressed_alerts_are_sent_when_the_process_ends(clock: FakeClock) -> None:
    alerts, told = make(clock)
    for _ in range(7):
        alerts(dead())

    alerts.close()

    assert [item.count for item in told] == [1, 6]


def test_suppressed_alerts_are_sent_without_another_event() -> None:
    clock = FakeClock()
    alerts, told = make(clock, quiet_seconds=1)
    arrived = threading.Event()
    alerts.targets = [told, lambda found: arrived.set() if found.count > 1 else None]
    for _ in range(3):
        alerts(dead())
    clock.advance(seconds=1)

    assert arrived.wait(10)
    assert [item.count for item in told] == [1, 2]
    alerts.close()


def test_endless_kinds_of_trouble_do_not_fill_the_memory(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "FINGERPRINTS", 10)
    alerts, told = make(clock)
    alerts(dead("FIRST"))
    alerts(dead("FIRST"))

    for number in range(50):
        alerts(dead(f"E_{number}"))

    assert len(alerts._told) == 10
    # The suppressed alerts of the evicted entry are reported, not forgotten.
    assert [item.count for item in told if "FIRST" in item.summary] == [1, 1]
    assert len(told) == 52
    alerts.close()


def test_only_severe_alerts_are_sent(clock: FakeClock) -> None:
    alerts, told = make(clock, min_severity="critical")

    alerts(dead())
    alerts(dead(pages=True))
    alerts(QueueCrowded("q:critical", 100))

    assert [item.severity for item in told] == [Severity.CRITICAL]
    alerts.close()


def test_lost_leases_are_an_alert_above_their_rate(clock: FakeClock) -> None:
    alerts, told = make(clock, lease_losses=Rate(3, 60))
    lost = LeaseWasLost(ABOUT, "q:default", "w1")

    for _ in range(6):
        alerts(lost)
        clock.advance(seconds=40)
    assert told == []
    for _ in range(3):
        alerts(lost)

    assert [item.kind for item in told] == [Kind.LEASES_LOST]
    alerts.close()


def test_a_failing_target_affects_no_other(clock: FakeClock) -> None:
    def fail(found: Alert) -> None:
        raise RuntimeError(CANARY)

    told = Told()
    alerts = Alerts(clock, AlertSettings(), [fail, told])

    alerts(dead())

    assert len(told) == 1
    alerts.close()


# -- from a job to a target


@pytest.mark.req("D-04", "M-13")
def test_a_dead_letter_is_alerted_after_its_commit(hf: Holdfast) -> None:
    seen: list[tuple[Alert, State]] = []
    done = threading.Event()

    def target(found: Alert) -> None:
        state = hf.get(str(found.subject["job_id"]), org_id=ORG).state
        seen.append((found, state))
        done.set()

    alerts = alert(hf, target)

    @hf.job("mail.send")
    def send(job: Context, payload: dict[str, Any]) -> None:
        local = CANARY
        raise AuthDenied(f"{CANARY} {payload} {local}")

    job = hf.enqueue("mail.send", {"text": CANARY}, org_id=ORG, request_id="req-1")
    hf.worker().run_once()
    assert done.wait(10)
    alerts.close()

    ((found, state),) = seen
    assert state is State.FAILED
    assert (found.kind, found.subject["job_id"]) == (Kind.DEAD_LETTER, job.id)
    assert found.subject["error_class"] == "AUTH_DENIED"
    assert found.subject["request_id"] == found.subject["correlation_id"] == "req-1"
    assert found.at == hf.clock.now()
    assert CANARY not in repr(found)


@pytest.mark.req("D-04")
def test_a_job_that_dies_with_its_worker_is_alerted_too(hf: Holdfast, clock: FakeClock) -> None:
    told = Told()
    hf.events.subscribe(Alerts(clock, AlertSettings(), [told]))
    hf.job("work", max_attempts=1)(lambda job, payload: None)
    hf.enqueue("work", {}, org_id=ORG)
    hf.worker()._claim(1)
    clock.advance(seconds=61)

    run_maintenance(hf.store, hf.settings, hf.events)

    assert [(item.kind, item.subject["error_class"]) for item in told] == [
        (Kind.DEAD_LETTER, "WORKER_CRASHED")
    ]


def _snooze_if_late(job: Context, payload: dict[str, Any]) -> None:
    if payload["late"]:
        raise Snooze(timedelta(minutes=1))


@pytest.mark.req("D-04")
@pytest.mark.parametrize("order", ["fair", "created_at_asc"])
def test_a_row_that_violates_a_rule_is_alerted_when_it_is_dead_lettered(
    url: str, clock: FakeClock, order: str
) -> None:
    run = RunSettings(queues=("q:default",), order=order)
    hf, told = make_holdfast(url, clock, runs={"sweep": run}), Told()
    hf.events.subscribe(Alerts(clock, AlertSettings(), [told]))
    hf.job("work")(_snooze_if_late)
    broken, fine = hf.enqueue_many("work", [{"late": True}, {"late": False}], org_id=ORG)
    # No attempt of it can be recorded.
    plant(hf, "UPDATE holdfast.job_envelope SET max_attempts = -1 WHERE id = :id", id=broken.id)

    perform_run(hf, "sweep", trigger=Trigger(TriggerKind.CRON, Actor.read("system:cron")))

    assert [(item.kind, item.subject["job_id"]) for item in told] == [(Kind.DEAD_LETTER, broken.id)]
    assert told[0].subject["error_class"] == "ROW_INVALID"
    assert hf.get(fine.id, org_id=ORG).state is State.COMPLETED
    hf.close()


def test_an_edited_audit_is_alerted_once_for_a_tenant(hf: Holdfast, clock: FakeClock) -> None:
    told = Told()
    hf.events.subscribe(Alerts(clock, AlertSettings(), [told]))
    hf.job("work")(lambda job, payload: None)
    hf.enqueue_many("work", [{}] * 3, org_id=ORG)
    hf.enqueue("work", {}, org_id=OTHER_ORG)
    seal_all(hf.store)
    plant(hf, "UPDATE holdfast.audit_event SET actor_id = 'somebody' WHERE org_id = :org", org=ORG)

    found = list(hf.operate(actor="user:ann", role="admin").audit.verify())

    assert found
    ((kind, tenant),) = [(item.kind, item.subject["org_id"]) for item in told]
    assert (kind, tenant) == (Kind.AUDIT_TAMPERED, ORG)
    assert "somebody" not in repr(told)


def test_alerts_are_lines_of_the_log(hf: Holdfast) -> None:
    stream = io.StringIO()
    log.configure_logging("info", stream)
    alerts = alert_as_set(hf)

    hf.events.emit(dead(pages=True))
    alerts.close()
    log.uninstall()

    (line,) = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (line["event"], line["level"]) == ("alert", "critical")
    assert (line["kind"], line["severity"], line["count"]) == ("dead_letter", "critical", 1)
    assert {name: line[name] for name in SIX} == SIX
    assert line["summary"] == "A mail.send job was dead-lettered with GONE at stage run, attempt 5"


# -- a slow target


def one(found: Event | None = None) -> Alert:
    made = alert_of(found or dead(), AT)
    assert made is not None
    return made


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure_logging("info", stream)
    yield stream
    log.uninstall()


def test_alerting_does_not_block_and_overflow_is_dropped_and_counted(
    lines: io.StringIO,
) -> None:
    begun, release, told = threading.Event(), threading.Event(), Told()

    def slow(found: Alert) -> None:
        begun.set()
        release.wait(30)
        told(found)

    outlet = AlertSink(slow, waiting=3, drain=10)
    outlet(one())
    assert begun.wait(10)
    began = time.monotonic()
    for _ in range(200):
        outlet(one())
    took = time.monotonic() - began

    assert took < 1
    assert outlet.dropped == 197
    release.set()
    outlet.close()
    assert len(told) == 4
    dropped = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["dropped"] for line in dropped] == [1, 10, 100]
    assert {line["event"] for line in dropped} == {"alert.dropped"}


def test_the_exit_waits_for_pending_alerts_with_a_limit(lines: io.StringIO) -> None:
    release = threading.Event()
    outlet = AlertSink(lambda found: release.wait(30), waiting=3, drain=0.2)  # type: ignore[arg-type]
    for _ in range(4):
        outlet(one())

    began = time.monotonic()
    outlet.close()
    took = time.monotonic() - began
    release.set()

    assert took < 2
    assert '"alert.undelivered"' in lines.getvalue()


# -- settings


@pytest.mark.parametrize(
    "bad",
    [
        {"webhook": "ftp://example.com/x"},
        {"webhook": "https://user:word@example.com/x"},
        {"webhook": "https:///x"},
        {"webhook": "https://example.com/a b"},
        {"webhook_secret": "short"},
        {"webhook_secret": "whsec_not base64 at all"},
        {"min_severity": "loud"},
        {"quiet_seconds": 0},
        {"quiet_seconds": 100_000},
        {"lease_losses": "often"},
    ],
)
def test_alerts_that_cannot_be_are_refused_and_secrets_are_not_repeated(
    bad: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError) as refused:
        AlertSettings(**bad)

    name, value = next(iter(bad.items()))
    assert name in str(refused.value)
    if name.startswith("webhook"):
        assert str(value) not in str(refused.value)


def test_the_settings_file_names_the_targets(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(
        '[alerts]\nwebhook = "https://alerts.example.com/x"\nlease_losses = "5/minute"\n'
        'min_severity = "error"\nquiet_seconds = 60\n'
    )

    found = Settings.load(env={"HOLDFAST_ALERTS_QUIET_SECONDS": "90"}, file=file).alerts

    assert found == AlertSettings(
        webhook="https://alerts.example.com/x", lease_losses=Rate(5, 60), min_severity="error",
        quiet_seconds=90,
    )  # fmt: skip
