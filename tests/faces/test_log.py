"""The log: one JSON object a line, six fields about every job, and nothing private."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Context, Holdfast, NetworkTimeout
from holdfast.event import (
    About,
    AuditSealed,
    Event,
    JobEnqueued,
    JobSettled,
    JobStarted,
    LeaseWasLost,
    WorkerChanged,
)
from holdfast.telemetry import log
from tests.story import ORG, PROJECT

SIX = {"request_id", "correlation_id", "job_id", "job_type", "org_id", "project_id"}
ABOUT = About("job-1", "greet", ORG, None, "req-1", "corr-1")
SEALED = AuditSealed(ORG, 3, 41, "abcdef")
ABOUT_A_JOB: list[tuple[Event, str, str]] = [
    (JobEnqueued(ABOUT, "q:default"), "debug", "job.enqueued"),
    (JobStarted(ABOUT, "q:default", 1, "w1"), "debug", "job.started"),
    (JobSettled(ABOUT, "q:default", 1, "completed", "run"), "info", "job.completed"),
    (JobSettled(ABOUT, "q:default", 1, "retry", "run", "GONE"), "warning", "job.retry"),
    (JobSettled(ABOUT, "q:default", 1, "dead", "run", "DEFECT"), "error", "job.dead"),
    (LeaseWasLost(ABOUT, "q:default", "w1"), "warning", "job.lease_lost"),
]


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure_logging("debug", stream)
    yield stream
    log.uninstall()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.req("M-01", "M-02")
@pytest.mark.parametrize(("event", "level", "name"), ABOUT_A_JOB)
def test_every_event_about_a_job_is_one_line_with_the_six_fields(
    written: io.StringIO, event: Event, level: str, name: str
) -> None:
    log.log_event(event)

    (line,) = lines(written)
    assert (line["level"], line["event"]) == (level, name)
    assert {field: line[field] for field in SIX} == {
        "request_id": "req-1", "correlation_id": "corr-1", "job_id": "job-1",
        "job_type": "greet", "org_id": ORG, "project_id": None,
    }  # fmt: skip


@pytest.mark.req("M-01")
@pytest.mark.parametrize(
    ("event", "level", "name"),
    [
        (SEALED, "info", "audit.sealed"),
        (WorkerChanged("w1", "started", "q:default"), "info", "worker.started"),
        (WorkerChanged("w1", "store_down", "away"), "warning", "worker.store_down"),
    ],
)
def test_every_other_event_is_one_line_too(
    written: io.StringIO, event: Event, level: str, name: str
) -> None:
    log.log_event(event)

    (line,) = lines(written)
    assert (line["level"], line["event"]) == (level, name)


@pytest.mark.req("M-01")
def test_control_characters_are_escaped_so_no_line_can_be_forged(written: io.StringIO) -> None:
    forged = 'x\n{"event": "job.dead"}\r\x1b[31m\u2028\x00'

    log.log_event(WorkerChanged("w1", "store_down", forged))

    assert written.getvalue().count("\n") == 1
    assert written.getvalue().strip().isprintable()
    (line,) = lines(written)
    assert line["detail"] == forged


@pytest.mark.req("M-03")
def test_of_an_exception_only_the_class_and_the_places_are_shown(written: io.StringIO) -> None:
    try:
        raise ValueError("canary in the message")
    except ValueError:
        log.logger.exception("it broke")

    (line,) = lines(written)
    assert line["exception"] == "ValueError"
    assert "tests.faces.test_log:" in line["stack"]
    assert "canary" not in written.getvalue()


def test_a_line_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    log.configure_logging("warning", stream)

    log.log_event(JobEnqueued(ABOUT, "q:default"))

    assert stream.getvalue() == ""
    log.uninstall()


def test_the_log_goes_to_standard_error_by_default() -> None:
    log.configure_logging()
    (handler,) = log.logger.handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    log.uninstall()


@pytest.mark.req("M-01", "M-02", "M-03")
def test_nothing_from_payloads_results_or_exceptions_reaches_the_log(
    hf: Holdfast, written: io.StringIO
) -> None:
    @hf.job("good")
    def good(job: Context, payload: dict[str, Any]) -> dict[str, Any]:
        return {"canary-result": "canary-result"}

    @hf.job("flaky")
    def flaky(job: Context, payload: dict[str, Any]) -> None:
        raise NetworkTimeout(f"canary-message {payload}", host="canary host with blanks")

    @hf.job("broken")
    def broken(job: Context, payload: dict[str, Any]) -> None:
        raise KeyError("canary-defect") from ValueError("canary-cause")

    @hf.job("unstorable")
    def unstorable(job: Context, payload: dict[str, Any]) -> object:
        return {"canary-set": {"canary"}}

    def failing_subscriber(event: Event) -> None:
        raise RuntimeError("canary-subscriber")

    hf.events.subscribe(log.log_event)
    hf.events.subscribe(failing_subscriber)
    types = ("good", "flaky", "broken", "unstorable")
    for job_type in types:
        hf.enqueue(job_type, {"canary-key": "canary-value"}, org_id=ORG, project_id=PROJECT)

    hf.worker().run_once()

    found = lines(written)
    about_jobs = [line for line in found if line["event"].startswith("job.")]
    assert {line["job_type"] for line in about_jobs} == set(types)
    assert all(line.keys() >= SIX for line in about_jobs)
    assert {line["project_id"] for line in about_jobs} == {PROJECT}
    assert {line["error_class"] for line in about_jobs if "error_class" in line} == {
        "NETWORK_TIMEOUT", "DEFECT", "RESULT_INVALID",
    }  # fmt: skip
    assert any(line.get("exception") == "RuntimeError" for line in found)
    assert "canary" not in written.getvalue()
