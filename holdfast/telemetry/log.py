"""Structured logs on the standard logging module: one JSON object a line, no message text.

Every line about a job carries the same six fields. Values are ids, words and numbers that Holdfast
made or checked; payloads, results and exception messages never come here.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO, assert_never

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
        case JobSettled(about, queue):
            _write(
                _level(event),
                f"job.{event.outcome}",
                about,
                queue=queue,
                stage=event.stage,
                attempt=event.attempt,
                error_class=event.error_class,
                seconds=None if event.seconds is None else round(event.seconds, 6),
                page=event.pages_operator or None,
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
        case WorkerChanged(worker_id, change, detail):
            level = logging.INFO if change in _CALM else logging.WARNING
            _write(level, f"worker.{change}", None, worker_id=worker_id, detail=detail or None)
        case _:
            assert_never(event)


_CALM = frozenset({"started", "draining", "stopped"})


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
