"""What all spans about jobs have in common: their names, their attributes and their origin."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_log = logging.getLogger("holdfast.trace")
_W3C = TraceContextTextMapPropagator()

Attributes = dict[str, str | int]

JOB_TYPE = "holdfast.job_type"
OUTCOME = "holdfast.outcome"
DESTINATION = "messaging.destination.name"
COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
COMMON: Mapping[str, str] = {"messaging.system": "holdfast"}
ENQUEUE: Mapping[str, str] = {
    **COMMON,
    "messaging.operation.name": "enqueue",
    "messaging.operation.type": "send",
}
CREATE: Mapping[str, str] = {**ENQUEUE, "messaging.operation.type": "create"}
EXECUTE: Mapping[str, str] = {
    **COMMON,
    "messaging.operation.name": "execute",
    "messaging.operation.type": "process",
}
FAILED = Status(StatusCode.ERROR)


def ids_of(
    job_id: str,
    job_type: str,
    org_id: str,
    project_id: str | None,
    request_id: str,
    correlation_id: str,
) -> Attributes:
    """The six fields of every line and row about a job, and the messaging attributes."""
    found: Attributes = {
        "holdfast.job_id": job_id,
        JOB_TYPE: job_type,
        "holdfast.org_id": org_id,
        "holdfast.request_id": request_id,
        "holdfast.correlation_id": correlation_id,
        "messaging.message.id": job_id,
        "messaging.message.conversation_id": correlation_id,
    }
    if project_id is not None:
        found["holdfast.project_id"] = project_id
    return found


@lru_cache(maxsize=1_000)
def read_traceparent(text: str | None) -> SpanContext | None:
    """The remote span that *text* names; None for values that W3C requires to be ignored."""
    if text is None:
        return None
    found = get_current_span(_W3C.extract({"traceparent": text}, Context())).get_span_context()
    return found if found.is_valid else None


def write_traceparent(span: Span) -> str | None:
    """The traceparent of *span*; None if the span is not valid."""
    if not span.get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    return carrier["traceparent"]


def within(parent: SpanContext) -> Context:
    """A context whose current span is *parent*."""
    return set_span_in_context(NonRecordingSpan(parent), Context())


# -- errors of the application's sampler, processor or exporter never reach a job


def mark_failed(span: Span, kind: str) -> None:
    try:
        span.set_attribute(ERROR_TYPE, kind)
        span.set_status(FAILED)
    except Exception:
        warn()


def set_attributes(span: Span, attributes: Attributes) -> None:
    try:
        span.set_attributes(attributes)
    except Exception:
        warn()


def end(span: Span) -> None:
    try:
        span.end()
    except Exception:
        warn()


def warn() -> None:
    _log.warning("trace.failed", exc_info=True)
