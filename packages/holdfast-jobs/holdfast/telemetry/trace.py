"""OpenTelemetry traces: from the request that enqueues a job to every attempt of it.

``trace(hf)`` enables them; before that, OpenTelemetry is not imported. Spans carry ids, codes and
numbers, and never payloads, results, exception messages or stacks.

An execution is a child of the enqueue and also linked to it, so that tools that follow links, as
messaging tools do, find it as well. Retries and stages are siblings. A job without a stored trace
starts a new one for every attempt and stage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Token
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.execute import current
from holdfast.engine.job import Claimed, Dead, Job, Outcome, Retry
from holdfast.engine.request import InsertRows, JobRequest
from holdfast.engine.settle import verb_of
from holdfast.errors import ConfigError, HandlerTimeout
from holdfast.event import Event, JobSettled

try:
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
        use_span,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as exc:
    raise ConfigError("Traces need OpenTelemetry: pip install 'holdfast-jobs[trace]'.") from exc

_log = logging.getLogger("holdfast.trace")
_W3C = TraceContextTextMapPropagator()

_Key = tuple[str, str, int]
Attributes = dict[str, str | int]


def trace(hf: Holdfast, provider: TracerProvider | None = None) -> None:
    """Trace enqueues of *hf* and executions of its workers; call it before creating a worker.

    Spans go to *provider*, or to the global tracer provider. Calling it again only changes the
    provider.
    """
    tracer = get_tracer("holdfast", tracer_provider=provider)
    if isinstance(hf.tracing, Traces):
        hf.tracing.tracer = tracer
        return
    hf.tracing = traces = Traces(hf, tracer)
    hf.events.subscribe(traces.on_event)


def span_of(job: Claimed | Job) -> SpanContext | None:
    """Return the span context that enqueued *job*, to link to, or None if it was not traced.

    A span for many jobs, such as a batch, takes one ``Link(span_of(job))`` for each.
    """
    return read_traceparent(job.traceparent if isinstance(job, Claimed) else _stored(job))


def _stored(job: Job) -> str | None:
    found: str | None = job.record.get("traceparent")
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


class Traces:
    """Creates the spans of one Holdfast. Errors here never reach a job."""

    def __init__(self, hf: Holdfast, tracer: Tracer) -> None:
        self.hf = hf
        self.tracer = tracer
        self._open: dict[_Key, list[Span]] = {}

    # -- enqueue

    @contextmanager
    def enqueueing(
        self, job_type: str, payloads: Iterable[Any], options: Mapping[str, Any]
    ) -> Iterator[_Producing]:
        """Open a producer span around an enqueue, the parent of the executions."""
        given = options.get("traceparent")
        parent = read_traceparent(given) if isinstance(given, str) else None
        # An undeclared type may be arbitrary text.
        known = job_type in self.hf.registry
        attributes: Attributes = {**_COMMON, **_ENQUEUE}
        if known:
            queue = options.get("queue") or self.hf.registry.get(job_type).queue
            attributes |= {_JOB_TYPE: job_type, _DESTINATION: str(queue)}
        span = self._start(
            f"enqueue {job_type}" if known else "enqueue",
            SpanKind.PRODUCER,
            attributes,
            None if parent is None else _within(parent),
        )
        if span is None:
            yield _Producing(None, payloads, options)
            return
        producing = _Producing(span, payloads, options)
        if given is None:
            producing.pass_on(write_traceparent(span))
        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield producing
        except BaseException as exc:
            _mark_failed(span, type(exc).__name__)
            raise
        finally:
            _end(span)

    def begin(self, batch: InsertRows) -> str | None:
        """Start a new trace for a job that a schedule created; its root is the creation."""
        frame, job = batch.shared[0], batch.jobs[0]
        attributes: Attributes = {
            **_COMMON,
            **_CREATE,
            **_ids(
                job["id"],
                frame["job_type"],
                frame["org_id"],
                frame["project_id"],
                frame["request_id"] or job["id"],
                frame["correlation_id"] or frame["request_id"] or job["id"],
            ),
            _DESTINATION: frame["queue"],
        }
        span = self._start(f"enqueue {frame['job_type']}", SpanKind.PRODUCER, attributes, Context())
        if span is None:
            return None
        _end(span)
        return write_traceparent(span)

    # -- execute

    def executing(self, job: Claimed) -> _Executing:
        """Open a consumer span around one stage of one attempt. It is current in the handler."""
        return _Executing(self, job)

    def on_event(self, event: Event) -> None:
        """A subscriber that ends the span of a job that was taken from a hanging thread."""
        if isinstance(event, JobSettled) and event.error_class == HandlerTimeout.error_class:
            running = self._open.pop((event.about.job_id, event.stage, event.attempt), None)
            with suppress(IndexError):
                if running is not None:
                    span = running.pop()
                    _set(span, {_OUTCOME: event.outcome})
                    _mark_failed(span, event.error_class)
                    _end(span)

    def _start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        context: Context | None,
        links: list[Link] | None = None,
    ) -> Span | None:
        try:
            return self.tracer.start_span(
                name, context=context, kind=kind, attributes=attributes, links=links
            )
        except Exception:
            # An error of the application's sampler or processor.
            _warn()
            return None


class _Executing:
    """One stage of one attempt with its span.

    Not a generator: with a thousand quick jobs a second, three nested ones took 6 us of each.
    """

    __slots__ = ("_job", "_key", "_running", "_token", "_traces")

    def __init__(self, traces: Traces, job: Claimed) -> None:
        self._traces = traces
        self._job = job
        self._key = (job.id, job.stage, job.attempt)
        # The code that removes the span from the list ends it.
        self._running: list[Span] = []
        self._token: Token[Context] | None = None

    def __enter__(self) -> Callable[[Outcome], None]:
        job = self._job
        context, links = _origin(job.traceparent)
        span = self._traces._start(
            f"execute {job.job_type}/{job.stage}",
            SpanKind.CONSUMER,
            _executing(job),
            context,
            links,
        )
        if span is None:
            return _ignore
        self._running.append(span)
        self._traces._open[self._key] = self._running
        self._token = attach(set_span_in_context(span))
        return self._conclude

    def __exit__(self, *exc: object) -> None:
        if self._token is None:
            return
        detach(self._token)
        spans = self._traces._open
        if spans.get(self._key) is self._running:
            del spans[self._key]
        with suppress(IndexError):
            _end(self._running.pop())

    def _conclude(self, outcome: Outcome) -> None:
        # If the span was removed, the outcome is ignored.
        for span in self._running:
            _set(span, {_OUTCOME: verb_of(outcome)})
            if isinstance(outcome, (Retry, Dead)):
                _mark_failed(span, outcome.fault.error_class)


@dataclass(slots=True)
class _Producing:
    """An enqueue with its span."""

    span: Span | None
    payloads: Iterable[Any]
    options: Mapping[str, Any]

    def pass_on(self, traceparent: str | None) -> None:
        """Set the traceparent of every job that has none."""
        if traceparent is None:
            return
        self.options = {**self.options, "traceparent": traceparent}
        self.payloads = (
            replace(item, traceparent=traceparent)
            if isinstance(item, JobRequest) and item.traceparent is None
            else item
            for item in self.payloads
        )

    def end(self, enqueued: list[Enqueued]) -> None:
        if self.span is None or not self.span.is_recording():
            return
        created = sum(item.created for item in enqueued)
        if len(enqueued) != 1:
            _set(self.span, {_COUNT: len(enqueued), "holdfast.created": created})
            return
        (job,) = enqueued
        running = current.get()

        def option(name: str) -> Any:
            # A job that another job enqueues inherits these.
            return self.options.get(name) or getattr(running, name, None)

        request_id = option("request_id") or job.id
        ids = _ids(
            job.id,
            job.job_type,
            job.org_id,
            option("project_id"),
            request_id,
            option("correlation_id") or request_id,
        )
        _set(self.span, {**ids, "holdfast.created": created})


_JOB_TYPE = "holdfast.job_type"
_OUTCOME = "holdfast.outcome"
_DESTINATION = "messaging.destination.name"
_COUNT = "messaging.batch.message_count"
_COMMON: Mapping[str, str] = {"messaging.system": "holdfast"}
_ENQUEUE: Mapping[str, str] = {
    "messaging.operation.name": "enqueue",
    "messaging.operation.type": "send",
}
_CREATE: Mapping[str, str] = {**_ENQUEUE, "messaging.operation.type": "create"}
_EXECUTE: Mapping[str, str] = {
    "messaging.operation.name": "execute",
    "messaging.operation.type": "process",
}


def _ids(
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
        _JOB_TYPE: job_type,
        "holdfast.org_id": org_id,
        "holdfast.request_id": request_id,
        "holdfast.correlation_id": correlation_id,
        "messaging.message.id": job_id,
        "messaging.message.conversation_id": correlation_id,
    }
    if project_id is not None:
        found["holdfast.project_id"] = project_id
    return found


def _executing(job: Claimed) -> Attributes:
    found: Attributes = {
        **_COMMON,
        **_EXECUTE,
        **_ids(
            job.id, job.job_type, job.org_id, job.project_id, job.request_id, job.correlation_id
        ),
        _DESTINATION: job.queue,
        "messaging.client.id": job.claimed_by,
        "holdfast.stage": job.stage,
        "holdfast.attempt": job.attempt,
        "holdfast.max_attempts": job.max_attempts,
    }
    if job.replay_of is not None:
        found["holdfast.replay_of"] = job.replay_of
    return found


@lru_cache(maxsize=1_000)
def _origin(traceparent: str | None) -> tuple[Context, list[Link]]:
    """The context and the links of an execution; jobs of one enqueue share them."""
    origin = read_traceparent(traceparent)
    return (Context(), []) if origin is None else (_within(origin), [Link(origin)])


def _within(parent: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _ignore(_outcome: Outcome) -> None:
    """Replaces a span that could not be started."""


def _mark_failed(span: Span, kind: str) -> None:
    try:
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR))
    except Exception:
        _warn()


def _set(span: Span, attributes: Attributes) -> None:
    try:
        for name, value in attributes.items():
            span.set_attribute(name, value)
    except Exception:
        _warn()


def _end(span: Span) -> None:
    try:
        span.end()
    except Exception:
        # An error of the application's exporter or processor.
        _warn()


def _warn() -> None:
    _log.warning("trace.failed", exc_info=True)
