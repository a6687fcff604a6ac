"""A log record as one line: JSON for programs, text for people at a terminal.

Both formats print the same fields. Messages of other loggers are bounded and redacted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.engine.classify import safe_name, safe_stack
from holdfast.redact import redact, visible

logger = logging.getLogger("holdfast")

SIX = ("request_id", "correlation_id", "job_id", "job_type", "org_id", "project_id")
# Pipe writes up to this size are atomic, so lines of several processes do not mix.
LINE_BYTES = 4_000
MESSAGE_CHARACTERS = 2_000


# Text lines name the job once, by its type and the start of its id.
_LEFT_OUT = frozenset(
    {"at", "level", "event", "message", "logger", "job_id", "job_type", "request_id",
     "correlation_id", "org_id", "project_id", "seconds", "stack", "trace_id"}
)  # fmt: skip
_SHORT = 13


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON. Control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return _fit(fields_of_record(record))


def fields_of_record(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of the line for *record*, by name."""
    line: dict[str, Any] = {
        "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
    }
    job: Mapping[str, Any] = getattr(record, "holdfast_job", None) or {}
    job = {name: value for name, value in job.items() if name in SIX or value is not None}
    told: Mapping[str, Any] | None = getattr(record, "fields", None)
    if told is not None and f"{record.name}.".startswith(f"{logger.name}."):
        # A line that names a job is about that job, not about the running one.
        line |= {"event": _message(record), **({} if told.keys() & set(SIX) else job), **told}
    else:
        words = redact(_message(record), MESSAGE_CHARACTERS)
        line |= {"event": "log", "logger": record.name, "message": words, **job}
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = safe_name(type(record.exc_info[1]).__qualname__)
        line["stack"] = safe_stack(record.exc_info[1])
    return line


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as exc:
        # The format string and its arguments do not match.
        return f"({type(exc).__name__} in the message of {record.module}:{record.lineno})"
    if record.name == "asyncio":
        # Later lines quote tasks with their exceptions.
        return text.partition("\n")[0]
    return text


def _fit(line: dict[str, Any]) -> str:
    """Serialize the line, and truncate its longest values until it fits."""
    text = json.dumps(line, ensure_ascii=True, default=str)
    while len(text) > LINE_BYTES:
        longest = max(line, key=lambda name: len(str(line[name])))
        words = str(line[longest])
        if len(words) < 10:
            break
        line[longest] = words[: len(words) // 2] + "…"
        text = json.dumps(line, ensure_ascii=True, default=str)
    return text


class TextFormatter(logging.Formatter):
    """Formats a log record as one readable line. Control characters are made visible."""

    def format(self, record: logging.LogRecord) -> str:
        line = fields_of_record(record)
        at = datetime.fromisoformat(line["at"]).astimezone()
        words = [f"{at:%H:%M:%S}", f"{line['level']:7}", line.get("message") or line["event"]]
        if "job_type" in line:
            words += [line["job_type"], line["job_id"][:_SHORT]]
        if line.get("org_id"):
            words.append(f"tenant={line['org_id'][:_SHORT]}")
        words += [
            f"{name}={_short(value)}"
            for name, value in line.items()
            if name not in _LEFT_OUT and value not in (None, "")
        ]
        if line.get("seconds") is not None:
            words.append(f"in {_duration(line['seconds'])}")
        text = visible(" ".join(map(str, words)))
        return "\n".join([text, *(f"    {visible(row)}" for row in _stack(line))])


def _stack(line: dict[str, Any]) -> list[str]:
    return str(line.get("stack") or "").splitlines()


def _short(value: Any) -> str:
    text = str(value)
    is_id = len(text) == 36 and text.count("-") == 4
    return text[:_SHORT] if is_id else text


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s"
