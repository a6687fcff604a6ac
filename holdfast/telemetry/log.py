"""Structured logs on the standard logging module: one JSON object a line, no message text.

Every line about a job carries the same six fields. Values are ids, words and numbers that Holdfast
made or checked; payloads, results and exception messages never come here.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TextIO, assert_never

from holdfast.clock import write_instant
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

logger = logging.getLogger("holdfast")


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON; control characters are escaped, so no line is forged."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            # The class only: messages and source lines may quote data.
            line["exception"] = record.exc_info[0].__qualname__
        return json.dumps(line, ensure_ascii=True, default=str)


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send Holdfast's log to *stream* (standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def log_event(event: Event) -> None:
    """A subscriber: writes each event as a log line."""
    match event:
        case JobEnqueued(about, queue):
            _write(logging.DEBUG, "job.enqueued", about, queue=queue)
        case JobStarted(about, queue, attempt, worker_id):
            _write(
                logging.DEBUG,
                "job.started",
                about,
                queue=queue,
                attempt=attempt,
                worker_id=worker_id,
            )
        case JobSettled():
            _write_settled(event)
        case DeadLetterEscalated(about, letter_id, queue, stage, error_class, replays):
            _write(
                logging.ERROR,
                "dead_letter.escalated",
                about,
                letter_id=letter_id,
                queue=queue,
                stage=stage,
                error_class=error_class,
                replays=replays,
            )
        case LeaseWasLost(about, queue, worker_id):
            _write(logging.WARNING, "job.lease_lost", about, queue=queue, worker_id=worker_id)
        case AuditSealed(org_id, number, last_seq, digest):
            _write(
                logging.INFO,
                "audit.sealed",
                None,
                org_id=org_id,
                seal=number,
                last_seq=last_seq,
                digest=digest,
            )
        case NotificationDropped():
            pass  # It is logged where it happens, also where nobody subscribed.
        case QueueCrowded(queue, small_depth):
            _write(logging.WARNING, "queue.crowded", None, queue=queue, small_depth=small_depth)
        case ScheduleFired(schedule, fire_at, target, job_id, run_id):
            _write(
                logging.INFO,
                "schedule.fired",
                None,
                schedule=schedule,
                target=target,
                fire_at=write_instant(fire_at),
                job_id=job_id,
                run_id=run_id,
            )
        case ScheduleSkipped(schedule, fire_at, outcome):
            _write(
                logging.INFO if outcome == "skipped" else logging.WARNING,
                f"schedule.{outcome}",
                None,
                schedule=schedule,
                fire_at=write_instant(fire_at),
                ticks=event.ticks,
                detail=event.line,
            )
        case WorkerChanged(worker_id, change, detail):
            level = logging.INFO if change in _CALM else logging.WARNING
            _write(level, f"worker.{change}", None, worker_id=worker_id, detail=detail or None)
        case WorkerRunFinished():
            _write_run(event)
        case _:
            assert_never(event)


_CALM = frozenset({"started", "draining", "stopped"})


def _write_settled(event: JobSettled) -> None:
    _write(
        _level(event),
        f"job.{event.outcome}",
        event.about,
        queue=event.queue,
        stage=event.stage,
        attempt=event.attempt,
        error_class=event.error_class,
        seconds=None if event.seconds is None else round(event.seconds, 6),
        page=event.pages_operator or None,
    )


# A run that leaves jobs for the next one has done what it should.
_BAD_RUNS = frozenset({"failed", "lost"})


def _write_run(event: WorkerRunFinished) -> None:
    # A reason may be an operator's own words; they stay in the audit.
    told = {
        "run" if item.name == "name" else item.name: (
            write_instant(value) if isinstance(value, datetime) else value
        )
        for item in fields(event)
        if item.name != "reason" and (value := getattr(event, item.name)) != {}
    }
    if event.outcome == "skipped":
        # The same words every time, so that they can be looked for.
        _write(logging.INFO, f"{event.name} skipped: {event.reason}", None, **told)
        return
    level = logging.WARNING if event.outcome in _BAD_RUNS else logging.INFO
    _write(level, "run.finished", None, **told)


def _level(event: JobSettled) -> int:
    if event.outcome == "dead":
        return logging.ERROR
    return logging.WARNING if event.outcome == "retry" else logging.INFO


def _write(level: int, name: str, about: About | None, **fields: Any) -> None:
    if not logger.isEnabledFor(level):
        return
    known: dict[str, Any] = {}
    if about is not None:
        known = {
            "request_id": about.request_id,
            "correlation_id": about.correlation_id,
            "job_id": about.job_id,
            "job_type": about.job_type,
            "org_id": about.org_id,
            "project_id": about.project_id,
        }
    known |= {key: value for key, value in fields.items() if value is not None}
    logger.log(level, name, extra={"fields": known})
