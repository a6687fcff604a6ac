"""OpenTelemetry traces: from the request that enqueues a job to every attempt of it.

``trace(hf)`` enables them; before that, OpenTelemetry is not imported. Spans carry ids, codes and
numbers, and never payloads, results, exception messages or stacks.

An execution is a child of the enqueue and also linked to it, so that tools that follow links, as
messaging tools do, find it as well. Retries and stages are siblings. A job without a stored trace
starts a new one for every attempt and stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.execute import current
from holdfast.engine.job import Claimed, Job
from holdfast.engine.request import InsertRows, JobRequest
from holdfast.errors import ConfigError, HandlerTimeout
from holdfast.event import Grouped, JobEvents, JobSettled

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Span,
        SpanContext,
        SpanKind,
        Tracer,
        TracerProvider,
        get_tracer,
        use_span,
    )

    from holdfast.telemetry.execution_span import Execution, Key
    from holdfast.telemetry.span import (
        COUNT,
        CREATE,
        DESTINATION,
        ENQUEUE,
        JOB_TYPE,
        Attributes,
        end,
        ids_of,
        mark_failed,
        set_attributes,
        warn,
        within,
        write_traceparent,
    )
    from holdfast.telemetry.span import read_traceparent as read_traceparent
    from holdfast.telemetry.span_record import Recorder
except ImportError as exc:
    raise ConfigError("Traces need OpenTelemetry: pip install 'holdfast-jobs[trace]'.") from exc


def trace(hf: Holdfast, provider: TracerProvider | None = None) -> None:
    """Trace enqueues of *hf* and executions of its workers; call it before creating a worker.

    Spans go to *provider*, or to the global tracer provider. Calling it again only changes the
    provider.
    """
    tracer = get_tracer("holdfast", tracer_provider=provider)
    if isinstance(hf.tracing, Traces):
        hf.tracing.recorder = Recorder(tracer)
        return
    hf.tracing = traces = Traces(hf, tracer)
    hf.events.subscribe(Grouped(traces.on_events))


def span_of(job: Claimed | Job) -> SpanContext | None:
    """Return the span context that enqueued *job*, to link to, or None if it was not traced.

    A span for many jobs, such as a batch, takes one ``Link(span_of(job))`` for each.
    """
    return read_traceparent(job.traceparent if isinstance(job, Claimed) else _stored(job))


def _stored(job: Job) -> str | None:
    found: str | None = job.record.get("traceparent")
    return found


class Traces:
    """Creates the spans of one Holdfast. Errors here never reach a job."""

    def __init__(self, hf: Holdfast, tracer: Tracer) -> None:
        self.hf = hf
        self.recorder = Recorder(tracer)
        self._open: dict[Key, Execution] = {}

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
        attributes: Attributes = {**ENQUEUE}
        if known:
            queue = options.get("queue") or self.hf.registry.get(job_type).queue
            attributes |= {JOB_TYPE: job_type, DESTINATION: str(queue)}
        span = self._start(
            f"enqueue {job_type}" if known else "enqueue",
            attributes,
            None if parent is None else within(parent),
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
            mark_failed(span, type(exc).__name__)
            raise
        finally:
            end(span)

    def begin(self, batch: InsertRows) -> str | None:
        """Start a new trace for a job that a schedule created; its root is the creation."""
        frame, job = batch.shared[0], batch.jobs[0]
        attributes: Attributes = {
            **CREATE,
            **ids_of(
                job["id"],
                frame["job_type"],
                frame["org_id"],
                frame["project_id"],
                frame["request_id"] or job["id"],
                frame["correlation_id"] or frame["request_id"] or job["id"],
            ),
            DESTINATION: frame["queue"],
        }
        span = self._start(f"enqueue {frame['job_type']}", attributes, Context())
        if span is None:
            return None
        end(span)
        return write_traceparent(span)

    # -- execute

    def executing(self, job: Claimed) -> Execution:
        """Open a consumer span around one stage of one attempt. It is current in the handler."""
        return Execution(self.recorder, self._open, job)

    def on_events(self, events: JobEvents) -> None:
        """A subscriber that ends the spans of jobs that were taken from hanging threads."""
        for event in events.others:
            if isinstance(event, JobSettled) and event.error_class == HandlerTimeout.error_class:
                running = self._open.pop((event.about.job_id, event.stage, event.attempt), None)
                if running is not None:
                    running.end(event.outcome, event.error_class)

    def _start(self, name: str, attributes: Attributes, context: Context | None) -> Span | None:
        tracer: Tracer = self.recorder.tracer
        try:
            return tracer.start_span(name, context, SpanKind.PRODUCER, attributes)
        except Exception:
            # An error of the application's sampler or processor.
            warn()
            return None


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
            set_attributes(self.span, {COUNT: len(enqueued), "holdfast.created": created})
            return
        (job,) = enqueued
        running = current.get()

        def option(name: str) -> Any:
            # A job that another job enqueues inherits these.
            return self.options.get(name) or getattr(running, name, None)

        request_id = option("request_id") or job.id
        ids = ids_of(
            job.id,
            job.job_type,
            job.org_id,
            option("project_id"),
            request_id,
            option("correlation_id") or request_id,
        )
        set_attributes(self.span, {**ids, "holdfast.created": created})
