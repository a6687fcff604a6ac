"""Structured logs on the standard logging module: one JSON object per line.

Every line about a job carries the same six fields, including lines that its handler logs. Holdfast
logs ids, codes and numbers that it created or checked, and never payloads, results or exception
messages. An exception is logged as its class and a stack without source lines. Messages of other
loggers are truncated, kept on one line, and redacted.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, assert_never

from holdfast.clock import write_instant
from holdfast.engine.classify import safe_name
from holdfast.engine.execute import current
from holdfast.errors import HoldfastError
from holdfast.event import (
    About,
    AuditSealed,
    AuditTampered,
    BatchAlert,
    BatchChanged,
    DeadLetterEscalated,
    DeliveryAlert,
    DeliveryChange,
    DeliveryChanged,
    Event,
    ExtensionEvent,
    JobEnqueued,
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
from holdfast.redact import redact
from holdfast.secret import hide_passwords
from holdfast.telemetry.log_line import LINE_BYTES as LINE_BYTES
from holdfast.telemetry.log_line import SIX, JsonFormatter, TextFormatter
from holdfast.telemetry.log_line import logger as logger


class JobFields(logging.Filter):
    """A logging filter that adds the fields of the running job to every record.

    The six fields become attributes of the record; they are None outside of a job.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields of the running job to *record*. Always returns True."""
        job = current.get()
        found = None if job is None else {**_six(job.about), "trace_id": _trace_id(job.traceparent)}
        record.holdfast_job = found
        for name in SIX:
            record.__dict__.setdefault(name, None if found is None else found[name])
        return True


def _six(about: About) -> dict[str, Any]:
    return {name: getattr(about, name) for name in SIX}


def _trace_id(traceparent: str | None) -> str | None:
    return None if traceparent is None else traceparent[3:35]


class _Lines(logging.StreamHandler[TextIO]):
    """Writes the lines. A line that cannot be written is dropped without a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def configure_logging(
    level: str = "info", stream: TextIO | None = None, *, as_text: bool = False
) -> logging.Handler:
    """Send Holdfast's log to *stream* (standard error) as JSON lines, or *as_text* for people."""
    handler = _Lines(stream or sys.stderr)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    handler.addFilter(JobFields())
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    for name, found in logging.root.manager.loggerDict.items():
        # Logging configuration by the application disables loggers that it does not name.
        if isinstance(found, logging.Logger) and name.startswith(logger.name):
            found.disabled = False
    return handler


# -- processes that Holdfast controls


@dataclass(frozen=True, slots=True)
class _Before:
    """The state of the process before :func:`install`."""

    handler: logging.Handler
    level: int
    show_warning: Callable[..., Any]
    thread_hook: Callable[..., Any]
    unraisable_hook: Callable[..., Any]
    hook: Callable[..., Any]


_taken: list[_Before] = []


def install(
    level: str = "info", stream: TextIO | None = None, *, as_text: bool | None = None
) -> None:
    """Turn all output of this process into log lines: loggers, warnings, uncaught exceptions.

    Lines are text if *stream* is a terminal and JSON otherwise, unless *as_text* is set. Other
    loggers are limited to INFO and above, because libraries log request contents below it. Calling
    it again changes the level and keeps settings that the application changed since.
    """
    if as_text is None:
        as_text = (stream or sys.stderr).isatty()
    handler, root = configure_logging(level, stream, as_text=as_text), logging.getLogger()
    others = max(logger.level, logging.INFO)
    before = _taken.pop() if _taken else None
    if before is None:
        hooks = (threading.excepthook, sys.unraisablehook, sys.excepthook)
        before = _Before(handler, root.level, warnings.showwarning, *hooks)
        root.addHandler(handler)
        root.setLevel(others)
        warnings.showwarning = _show_warning
        threading.excepthook = _on_thread
        sys.unraisablehook = _on_unraisable
        sys.excepthook = _on_process
    elif before.handler in root.handlers:
        root.removeHandler(before.handler)
        root.addHandler(handler)
        root.setLevel(others)
    hooks = (before.thread_hook, before.unraisable_hook, before.hook)
    _taken.append(_Before(handler, before.level, before.show_warning, *hooks))


def uninstall() -> None:
    """Undo :func:`install` and :func:`configure_logging`."""
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True
    if _taken:
        before = _taken.pop()
        logging.getLogger().removeHandler(before.handler)
        logging.getLogger().setLevel(before.level)
        warnings.showwarning = before.show_warning
        threading.excepthook = before.thread_hook
        sys.unraisablehook = before.unraisable_hook
        sys.excepthook = before.hook


def _show_warning(
    message: Warning | str,  # noqa: ARG001
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    # The text of a warning may quote values, so only its location is logged.
    where = f"{Path(filename).name}:{lineno}"
    write(logging.WARNING, "python.warning", category=safe_name(category.__qualname__), where=where)


def _on_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        thread = None if args.thread is None else args.thread.name
        _write_death("thread.died", args.exc_value, thread=thread)


def _on_unraisable(unraisable: Any) -> None:
    of = safe_name(type(unraisable.object).__qualname__)
    _write_death("python.unraisable", unraisable.exc_value, of=of)


def _on_process(_kind: type[BaseException], exc: BaseException, *_: object) -> None:
    _write_death("process.died", exc)


def _write_death(name: str, exc: BaseException | None, **told: Any) -> None:
    told = {key: value for key, value in told.items() if value is not None}
    exc_info = None if exc is None else (type(exc), exc, exc.__traceback__)
    logger.error(name, exc_info=exc_info, extra={"fields": told})


def write_end(exc: Exception) -> None:
    """Write the last line of a process that fails; Holdfast's own errors include their message."""
    if isinstance(exc, HoldfastError):
        name, said = safe_name(type(exc).__qualname__), hide_passwords(str(exc))
        write(logging.ERROR, "process.refused", exception=name, detail=said)
    else:
        _write_death("process.died", exc)


# -- events


def log_event(event: Event) -> None:
    """An event subscriber that writes each event as a log line."""
    match event:
        case JobEnqueued():
            _write_fields(logging.DEBUG, "job.enqueued", event)
        case JobStarted():
            _write_fields(logging.DEBUG, "job.started", event)
        case JobSettled():
            _write_settled(event)
        case DeadLetterEscalated():
            _write_fields(logging.ERROR, "dead_letter.escalated", event)
        case LeaseWasLost():
            _write_fields(logging.WARNING, "job.lease_lost", event)
        case AuditSealed(org_id, number, last_seq, digest):
            told = {"org_id": org_id, "last_seq": last_seq, "digest": digest}
            write(logging.INFO, "audit.sealed", seal=number, **told)
        case AuditTampered():
            _write_fields(logging.CRITICAL, "audit.tampered", event)
        case NotificationDropped():
            pass  # It is logged where it happens, even without a subscriber.
        case QueueCrowded():
            _write_fields(logging.WARNING, "queue.crowded", event)
        case BatchChanged(change=change):
            _write_fields(logging.INFO, f"batch.{change}", event)
        case BatchAlert():
            _write_fields(logging.WARNING, "batch.alert", event)
        case ModelUsed():
            _write_fields(logging.DEBUG, "model.used", event)
        case DeliveryChanged(change=change):
            level = logging.WARNING if change in _UNCERTAIN else logging.INFO
            _write_fields(level, f"delivery.{change}", event)
        case DeliveryAlert():
            _write_fields(logging.WARNING, "delivery.alert", event)
        case ScheduleFired():
            _write_fields(logging.INFO, "schedule.fired", event)
        case ScheduleSkipped(schedule, fire_at, outcome):
            level = logging.INFO if outcome == "skipped" else logging.WARNING
            due = write_instant(fire_at)
            said = {"schedule": schedule, "fire_at": due, "detail": event.line}
            write(level, f"schedule.{outcome}", ticks=event.ticks, **said)
        case WorkerChanged(worker_id, change, detail):
            level = logging.INFO if change in _CALM else logging.WARNING
            why = redact(detail) if detail else None
            write(level, f"worker.{change}", worker_id=worker_id, detail=why)
        case WorkerRunFinished():
            _write_run(event)
        case ExtensionEvent():
            _write_fields(event.log_level, event.log_name, event)
        case _:
            assert_never(event)


def _write_fields(level: int, name: str, event: Any) -> None:
    """Write a line with every field of *event*."""
    if not logger.isEnabledFor(level):
        return
    told = {item.name: getattr(event, item.name) for item in fields(event)}
    about: About | None = told.pop("about", None)
    for field, value in told.items():
        if isinstance(value, datetime):
            told[field] = write_instant(value)
    write(level, name, about, **told)


_CALM = frozenset({"started", "draining", "stopped"})
# Deliveries that a recipient did not get, or may not have got.
_UNCERTAIN = frozenset(
    {
        DeliveryChange.HELD,
        DeliveryChange.DROPPED,
        DeliveryChange.FAILED,
        DeliveryChange.REQUEUED,
    }
)


def _write_settled(event: JobSettled) -> None:
    write(
        _level(event),
        f"job.{event.outcome}",
        event.about,
        queue=event.queue,
        stage=event.stage,
        attempt=event.attempt,
        error_class=event.error_class,
        seconds=None if event.seconds is None else round(event.seconds, 6),
        page=event.pages_operator or None,
        remedy=event.remedy,
    )


# A run that leaves jobs for the next one is not a failure.
_BAD_RUNS = frozenset({"failed", "lost"})


def _write_run(event: WorkerRunFinished) -> None:
    # A reason may be an operator's text; it stays in the audit.
    told = {
        "run" if item.name == "name" else item.name: (
            write_instant(value) if isinstance(value, datetime) else value
        )
        for item in fields(event)
        if item.name != "reason" and (value := getattr(event, item.name)) != {}
    }
    if event.outcome == "skipped":
        # A constant message, so that it can be searched for.
        write(logging.INFO, f"{event.name} skipped: {event.reason}", **told)
        return
    level = logging.WARNING if event.outcome in _BAD_RUNS else logging.INFO
    write(level, "run.finished", **told)


def _level(event: JobSettled) -> int:
    if event.outcome == "dead":
        return logging.ERROR
    return logging.WARNING if event.outcome == "retry" else logging.INFO


def write(level: int, name: str, about: About | None = None, /, **fields: Any) -> None:
    """Write one log line of Holdfast."""
    if not logger.isEnabledFor(level):
        return
    known = {} if about is None else _six(about)
    known |= {key: value for key, value in fields.items() if value is not None}
    logger.log(level, name, extra={"fields": known})
