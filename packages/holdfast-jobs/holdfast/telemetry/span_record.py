"""Whether the span of an execution may be recorded at its end, without having been started."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Link, SpanContext, SpanKind, Status, Tracer

from holdfast.telemetry.span import Attributes, warn

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

# More than the span of an execution has.
MOST_ATTRIBUTES = 32
_METRICS_OF_SDK = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
# The default sampler and those of a ratio describe themselves so.
_FOLLOWS_PARENT = "remoteParentSampled:AlwaysOnSampler,remoteParentNotSampled:AlwaysOffSampler"


class Recorder:
    """Makes records of spans that a tracer has not started, if the result is the same.

    It is the same for OpenTelemetry's SDK if its sampler does what the parent did, as the default
    one does, its processors ignore the start of a span, and its limits change no span of an
    execution.
    The SDK shows limits and processors under private names only: they are read if they exist, and
    a tracer without them has to start every span.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer: Any = tracer
        self._seen: tuple[object, object] = (None, None)
        self._make: Callable[..., ReadableSpan] | None = None

    @property
    def make(self) -> Callable[..., ReadableSpan] | None:
        """Makes the record of a span; None if the tracer has to start it."""
        tracer = self.tracer
        multi = getattr(tracer, "span_processor", None)
        processors = getattr(multi, "_span_processors", None)
        config = getattr(tracer, "_tracer_config", None)
        # A provider replaces both objects when it is given another processor or is configured.
        if processors is not self._seen[0] or config is not self._seen[1]:
            try:
                self._make = _make_of(tracer, processors, config)
            except Exception:
                # An error of the application's sampler, which describes itself.
                self._make = None
                warn()
            self._seen = processors, config
        return self._make


def _make_of(tracer: Any, processors: Any, config: Any) -> Callable[..., ReadableSpan] | None:
    try:
        from opentelemetry.sdk import trace as sdk
    except ImportError:
        return None
    scope = getattr(tracer, "_instrumentation_scope", None)
    limits = getattr(tracer, "_span_limits", None)
    if (
        type(tracer) is not sdk.Tracer
        or not isinstance(processors, tuple)
        or not isinstance(limits, sdk.SpanLimits)
        or not getattr(config, "is_enabled", True)
        # The SDK would count the spans that it starts.
        or _METRICS_OF_SDK in os.environ
    ):
        return None
    if not _changes_nothing(tracer.sampler, limits, processors):
        return None
    info = tracer.instrumentation_info

    def make(
        name: str,
        context: SpanContext,
        parent: SpanContext,
        attributes: Attributes,
        links: Sequence[Link],
        status: Status,
        began: int,
    ) -> ReadableSpan:
        # A partial function would take twice as long.
        return sdk.ReadableSpan(
            name=name,
            context=context,
            parent=parent,
            resource=tracer.resource,
            attributes=attributes,
            links=links,
            kind=SpanKind.CONSUMER,
            instrumentation_info=info,
            status=status,
            start_time=began,
            end_time=time_ns(),
            instrumentation_scope=scope,
        )

    return make


def _changes_nothing(sampler: Any, limits: Any, processors: tuple[Any, ...]) -> bool:
    """Whether a start would only repeat what the parent and the arguments of a span say."""
    from opentelemetry.sdk import trace as sdk
    from opentelemetry.sdk.trace import export, sampling

    sampler_says: str = sampler.get_description()
    follows_parent = (
        isinstance(sampler, sampling.ParentBased)
        and type(sampler).should_sample is sampling.ParentBased.should_sample
        and _FOLLOWS_PARENT in sampler_says
    )
    has_room = (
        limits.max_span_attribute_length is None
        and (limits.max_span_attributes is None or limits.max_span_attributes >= MOST_ATTRIBUTES)
        and limits.max_links != 0
    )
    kinds = (sdk.SpanProcessor, export.SimpleSpanProcessor, export.BatchSpanProcessor)
    ignored = {getattr(kind, name, None) for kind in kinds for name in ("on_start", "_on_ending")}
    ignores_start = all(
        getattr(getattr(processor, name, None), "__func__", None) in ignored
        for processor in processors
        for name in ("on_start", "_on_ending")
    )
    return follows_parent and has_room and ignores_start
