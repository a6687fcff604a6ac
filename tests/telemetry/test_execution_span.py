"""The span of an execution, whether it is started or only recorded at its end."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.context import Context as OtelContext
from opentelemetry.context import attach, detach, get_current, get_value, set_value
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    StatusCode,
    Tracer,
    get_current_span,
)
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.trace import TracerProvider as ApiTracerProvider

from holdfast import Context, Holdfast, NetworkTimeout
from holdfast.telemetry.trace import Traces, trace
from tests.story import ORG

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CLIENT_ID = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{CLIENT_ID}-01"
DROPPED = f"00-{TRACE_ID}-{CLIENT_ID}-00"


class Spans:
    """A provider whose spans stay in memory, and how many of them were started."""

    def __init__(self, *processors: SpanProcessor, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        for processor in (SimpleSpanProcessor(self.exporter), *processors):
            self.provider.add_span_processor(processor)

    def one(self) -> ReadableSpan:
        (span,) = [
            span for span in self.exporter.get_finished_spans() if span.name == "execute work/run"
        ]
        return span


def run(
    hf: Holdfast,
    provider: ApiTracerProvider,
    handler: Callable[[], object] = lambda: None,
    traceparent: str | None = SAMPLED,
) -> bool:
    """Run one traced job. Whether its span was only recorded, without a start."""
    trace(hf, provider)
    hf.job("work", max_attempts=1)(lambda job, payload: handler() and None)
    hf.enqueue("work", {}, org_id=ORG, traceparent=traceparent)
    hf.worker().run_once()
    assert isinstance(hf.tracing, Traces)
    return hf.tracing.recorder.make is not None


def described(span: ReadableSpan) -> dict[str, Any]:
    """Everything an exporter reads, except what differs between any two spans."""
    attributes = dict(span.attributes or {})
    for name in list(attributes):
        if name.endswith((".id", "_id")):
            attributes[name] = "id"
    assert span.parent is not None
    assert span.context is not None
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time
    return {
        "name": span.name,
        "kind": span.kind,
        "parent": span.parent,
        "trace": span.context.trace_id,
        "flags": span.context.trace_flags,
        "state": span.context.trace_state,
        "is_remote": span.context.is_remote,
        "links": [(link.context, dict(link.attributes or {})) for link in span.links],
        "attributes": attributes,
        "events": span.events,
        "status": (span.status.status_code, span.status.description),
        "resource": span.resource,
        "scope": span.instrumentation_scope,
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
    }


def fail() -> None:
    raise NetworkTimeout


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("ends", [lambda: None, fail])
def test_a_recorded_span_equals_a_started_one(
    hf: Holdfast, ends: Callable[[], object], look: bool
) -> None:
    resource = Resource.create({"service.name": "works"})
    # Any limit of the length of a value makes the SDK start every span.
    started, recorded = (
        Spans(resource=resource, span_limits=SpanLimits(max_span_attribute_length=limit))
        for limit in (10_000, None)
    )

    def handle() -> None:
        if look:
            get_current_span().get_span_context()
        ends()

    assert not run(hf, started.provider, handle)
    hf.registry.handlers.clear()
    assert run(hf, recorded.provider, handle)

    assert described(recorded.one()) == described(started.one())
    assert recorded.one().to_json()
    assert (recorded.one().status.status_code is StatusCode.ERROR) is (ends is fail)


class Seen(SpanProcessor):
    """Notes what it is told, and marks spans at their start."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_start(self, span: Span, parent_context: OtelContext | None = None) -> None:
        self.told.append(f"start {span.name}")
        span.set_attribute("seen", True)

    def on_end(self, span: ReadableSpan) -> None:
        self.told.append(f"end {span.name}")


def test_a_processor_that_hears_of_starts_hears_of_every_start(hf: Holdfast) -> None:
    seen = Seen()
    spans = Spans(seen)

    assert not run(hf, spans.provider)

    assert [one for one in seen.told if "execute" in one] == [
        "start execute work/run",
        "end execute work/run",
    ]
    assert (spans.one().attributes or {})["seen"] is True


def test_a_processor_that_is_added_later_hears_of_the_next_start(hf: Holdfast) -> None:
    seen, spans = Seen(), Spans()
    assert run(hf, spans.provider)
    spans.provider.add_span_processor(seen)

    hf.enqueue("work", {}, org_id=ORG, traceparent=SAMPLED)
    hf.worker().run_once()

    assert "start execute work/run" in seen.told


class Refuses(ParentBased):
    """A sampler of the application that follows no parent."""

    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        return ALWAYS_OFF.should_sample(*args, **kwargs)


@pytest.mark.parametrize(
    ("sampler", "traceparent", "is_recorded", "spans"),
    [
        (None, SAMPLED, True, 1),
        (None, DROPPED, True, 0),
        (ParentBasedTraceIdRatio(0.0), SAMPLED, True, 1),
        (ParentBasedTraceIdRatio(0.0), DROPPED, True, 0),
        (ParentBased(ALWAYS_ON, remote_parent_not_sampled=ALWAYS_ON), DROPPED, False, 1),
        (ParentBased(ALWAYS_ON, remote_parent_sampled=ALWAYS_OFF), SAMPLED, False, 0),
        (ALWAYS_ON, DROPPED, False, 1),
        (ALWAYS_OFF, SAMPLED, False, 0),
        (Refuses(ALWAYS_ON), SAMPLED, False, 0),
    ],
)
def test_the_sampler_decides(
    hf: Holdfast, sampler: Sampler | None, traceparent: str, is_recorded: bool, spans: int
) -> None:
    found = Spans(sampler=sampler)
    inner: list[int] = []

    def handle() -> None:
        inner.append(get_current_span().get_span_context().trace_flags & 1)

    assert run(hf, found.provider, lambda: None, traceparent) is is_recorded
    names = [span.name for span in found.exporter.get_finished_spans()]
    assert names.count("execute work/run") == spans

    hf.registry.handlers.clear()
    run(hf, found.provider, handle, traceparent)
    assert inner == [spans]


@pytest.mark.parametrize(
    "limits",
    [
        SpanLimits(max_span_attributes=5),
        SpanLimits(max_links=0),
        SpanLimits(max_span_attribute_length=3),
    ],
)
def test_the_limits_of_the_provider_are_kept(hf: Holdfast, limits: SpanLimits) -> None:
    spans = Spans(span_limits=limits)

    assert not run(hf, spans.provider)

    span = spans.one()
    assert len(span.attributes or {}) <= (limits.max_span_attributes or 99)
    assert len(span.links) <= (99 if limits.max_links is None else limits.max_links)
    if limits.max_span_attribute_length is not None:
        assert (span.attributes or {})["messaging.system"] == "hol"


class Speechless(Refuses):
    def get_description(self) -> str:
        raise RuntimeError


def test_a_sampler_that_cannot_describe_itself_harms_no_job(hf: Holdfast) -> None:
    seen = list[bool]()

    assert not run(hf, Spans(sampler=Speechless(ALWAYS_ON)).provider, lambda: seen.append(True))

    assert seen == [True]


class Counted(IdGenerator):
    """The ids of an application's own generator."""

    def generate_span_id(self) -> int:
        return 0xABC0 + random.getrandbits(4)

    def generate_trace_id(self) -> int:
        return 7


def test_the_ids_come_from_the_generator_of_the_provider(hf: Holdfast) -> None:
    spans = Spans(id_generator=Counted())

    assert run(hf, spans.provider)

    context = spans.one().context
    assert context is not None
    assert context.span_id & ~0xF == 0xABC0


# -- what a handler sees


def test_a_handler_may_change_its_span(hf: Holdfast) -> None:
    spans = Spans()

    def handle() -> None:
        span = get_current_span()
        assert isinstance(span, Span)
        assert span.is_recording()
        span.set_attribute("mine", 1)
        span.add_event("happened")
        span.record_exception(ValueError("mine"))

    assert run(hf, spans.provider, handle)

    assert (spans.one().attributes or {})["mine"] == 1
    assert [event.name for event in spans.one().events] == ["happened", "exception"]


@pytest.mark.parametrize("names_context", [False, True])
def test_a_child_span_has_the_span_of_its_job_as_parent(hf: Holdfast, names_context: bool) -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("test")

    def handle() -> None:
        context = get_current() if names_context else None
        tracer.start_span("child", context).end()

    assert run(hf, spans.provider, handle)

    (child,) = [one for one in spans.exporter.get_finished_spans() if one.name == "child"]
    assert child.parent == spans.one().context


@pytest.mark.parametrize(
    "copy",
    [
        dict,
        lambda context: {**context},
        lambda context: context.copy(),
        lambda context: OtelContext(context),
        lambda context: dict(context.items()),
        lambda context: {key: context[key] for key in context},
        lambda context: set_value("key", "other", context),
        lambda context: context | {},
    ],
)
def test_every_way_to_copy_the_context_copies_the_span(
    hf: Holdfast, copy: Callable[[OtelContext], dict[str, object]]
) -> None:
    spans, ids, kept = Spans(), list[int](), list[object]()

    def handle() -> None:
        found = OtelContext(copy(get_current()))
        ids.append(get_current_span(found).get_span_context().span_id)
        kept.append(get_value("key", found))

    token = attach(set_value("key", "of the caller"))
    assert run(hf, spans.provider, handle)
    detach(token)

    context = spans.one().context
    assert context is not None
    assert ids == [context.span_id]
    assert kept[0] in ("of the caller", "other")


def test_reading_another_value_starts_no_span(hf: Holdfast) -> None:
    spans, found = Spans(), list[object]()

    def handle() -> None:
        found.append(get_value("key"))
        assert isinstance(hf.tracing, Traces)
        found.extend("current-span" in str(one._span) for one in hf.tracing._open.values())

    run(hf, spans.provider, handle)

    assert found == [None, False]


def test_a_context_that_outlives_its_job_names_the_recorded_span(hf: Holdfast) -> None:
    spans, kept = Spans(), list[OtelContext]()

    assert run(hf, spans.provider, lambda: kept.append(get_current()))

    late = get_current_span(kept[0])
    assert late.get_span_context() == spans.one().context
    assert not late.is_recording()


def test_threads_that_look_at_the_same_time_see_one_span(hf: Holdfast) -> None:
    spans, ids = Spans(), list[int]()

    def handle() -> None:
        context, barrier = get_current(), threading.Barrier(4)

        def look() -> None:
            barrier.wait()
            ids.append(get_current_span(context).get_span_context().span_id)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert run(hf, spans.provider, handle)

    context = spans.one().context
    assert context is not None
    assert set(ids) == {context.span_id}


def test_every_job_of_a_batch_has_its_own_span(hf: Holdfast) -> None:
    spans = Spans()
    trace(hf, spans.provider)

    @hf.job("many", batch_size=3)
    def many(jobs: Sequence[Context], payloads: object) -> None: ...

    hf.enqueue_many("many", [{}, {}, {}], org_id=ORG, traceparent=SAMPLED)
    hf.worker().run_once()

    found = [one for one in spans.exporter.get_finished_spans() if "execute" in one.name]
    assert len({(one.attributes or {})["holdfast.job_id"] for one in found}) == 3
    assert len({one.context.span_id for one in found if one.context}) == 3


def test_a_log_line_of_a_handler_can_name_its_span(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    class Correlates(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            record.span_id = get_current_span().get_span_context().span_id
            return True

    spans, log = Spans(), logging.getLogger("tests.correlated")
    caplog.handler.addFilter(correlates := Correlates())
    try:
        assert run(hf, spans.provider, lambda: log.warning("here"))
    finally:
        caplog.handler.removeFilter(correlates)

    (record,) = [one for one in caplog.records if one.name == log.name]
    context = spans.one().context
    assert context is not None
    assert record.__dict__["span_id"] == context.span_id


# -- providers


def test_a_shutdown_flushes_recorded_spans(hf: Holdfast) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))

    assert run(hf, provider)
    provider.shutdown()

    names = [span.name for span in exporter.get_finished_spans()]
    assert "execute work/run" in names


class OtherSpan(NonRecordingSpan):
    """A span of a library other than the SDK."""

    def __init__(self, name: str, attributes: Any) -> None:
        super().__init__(get_current_span().get_span_context())
        self.name, self.attributes, self.has_ended = name, dict(attributes or {}), False

    def set_attributes(self, attributes: Any) -> None:
        self.attributes.update(attributes)

    def end(self, end_time: int | None = None) -> None:
        self.has_ended = True


class OtherProvider(ApiTracerProvider):
    def __init__(self) -> None:
        self.spans: list[OtherSpan] = []

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        provider = self

        class OtherTracer(Tracer):
            def start_span(self, name: str, *args: Any, **kwargs: Any) -> ApiSpan:
                made = OtherSpan(name, kwargs.get("attributes"))
                provider.spans.append(made)
                return made

            def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
                raise NotImplementedError

        return OtherTracer()


def test_a_provider_that_is_not_the_sdks_starts_every_span(hf: Holdfast) -> None:
    other, seen = OtherProvider(), list[object]()

    assert not run(hf, other, lambda: seen.append(get_current_span()))

    (execution,) = [span for span in other.spans if span.name == "execute work/run"]
    assert seen == [execution]
    assert execution.has_ended
    assert execution.attributes["holdfast.outcome"] == "completed"


def test_a_job_without_a_trace_has_a_span_that_the_provider_starts(hf: Holdfast) -> None:
    hf.job("work")(lambda job, payload: None)
    hf.enqueue("work", {}, org_id=ORG)
    spans = Spans()
    trace(hf, spans.provider)

    hf.worker().run_once()

    assert spans.one().parent is None
