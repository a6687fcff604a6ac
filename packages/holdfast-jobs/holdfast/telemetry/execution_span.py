"""The span of an execution: started when something looks at it, or else recorded at its end.

With spans that OpenTelemetry's SDK starts and ends, a drained job took 42 us more of the worker,
which without them takes 20 us on PostgreSQL. Most of it makes a span safe to change, and most
handlers never look at theirs: recording such a span at its end takes 6 us, two of them in the
SDK's batch processor. Recorder says which tracers allow it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from functools import lru_cache
from time import time_ns
from typing import Any, NamedTuple

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    TraceFlags,
    set_span_in_context,
)

from holdfast.engine.job import Claimed, Dead, Outcome, Retry
from holdfast.engine.settle import verb_of
from holdfast.telemetry.span import (
    DESTINATION,
    ERROR_TYPE,
    EXECUTE,
    FAILED,
    OUTCOME,
    Attributes,
    end,
    ids_of,
    mark_failed,
    read_traceparent,
    set_attributes,
    warn,
    within,
)
from holdfast.telemetry.span_record import Recorder

# The name of the current span in a context.
(_SPAN,) = set_span_in_context(INVALID_SPAN, Context())
_UNENDED = "unended"
_UNSET = Status()
# A child inherits whether its trace is sampled, and whether the trace id is random.
_INHERITED = 0b11


class _Origin(NamedTuple):
    """What a stored traceparent says about the executions of its jobs."""

    context: Context
    links: list[Link]
    # None: every execution is a trace of its own.
    parent: SpanContext | None
    flags: TraceFlags


@lru_cache(maxsize=1_000)
def _origin_of(traceparent: str | None) -> _Origin:
    """The origin of an execution; jobs of one enqueue share it."""
    parent = read_traceparent(traceparent)
    if parent is None:
        return _Origin(Context(), [], None, TraceFlags())
    flags = TraceFlags(parent.trace_flags & _INHERITED)
    return _Origin(within(parent), [Link(parent, {})], parent, flags)


class Execution:
    """One stage of one attempt with its span. The span is current in the handler.

    Not a generator: with a thousand quick jobs a second, three nested ones took 6 us of each.
    """

    __slots__ = (
        "_began",
        "_job",
        "_key",
        "_make",
        "_open",
        "_origin",
        "_outcome",
        "_span",
        "_token",
        "_tracer",
    )

    def __init__(self, recorder: Recorder, running: dict[Key, Execution], job: Claimed) -> None:
        self._tracer = recorder.tracer
        self._origin = _origin_of(job.traceparent)
        # None: the tracer has to start the span.
        self._make = None if self._origin.parent is None else recorder.make
        self._job = job
        self._open = running
        self._key = (job.id, job.stage, job.attempt_count + 1)
        self._outcome: Outcome | None = None
        self._token: Token[Context] | None = None
        # The started span, or the context of the recorded one, and a mark that it has not ended.
        # Another thread may look at the span, or end it because it took the job from a handler that
        # hangs: setdefault and pop decide who starts it, and who ends it.
        self._span: dict[str, Any] = {_UNENDED: True}
        self._began = time_ns()

    def __enter__(self) -> Callable[[Outcome], None]:
        if self._make is not None:
            context: Context = _LazyContext.for_execution(self)
        else:
            try:
                span = self._span[_SPAN] = self._start()
            except Exception:
                # An error of the application's sampler or processor.
                warn()
                return _ignore
            context = set_span_in_context(span)
        self._open[self._key] = self
        self._token = attach(context)
        return self._conclude

    def _conclude(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __exit__(self, *exc: object) -> None:
        if self._token is None:
            return
        detach(self._token)
        if self._open.get(self._key) is self:
            del self._open[self._key]
        outcome = self._outcome
        if isinstance(outcome, (Retry, Dead)):
            self.end(verb_of(outcome), outcome.fault.error_class)
        else:
            self.end(None if outcome is None else verb_of(outcome), None)

    def end(self, verb: str | None, error_class: str | None) -> None:
        """End the span, unless it has ended."""
        if not self._span.pop(_UNENDED, False):
            return
        try:
            if _SPAN not in self._span and self._record(verb, error_class):
                return
        except Exception:
            # An error of the application's exporter or processor.
            warn()
            return
        span = self._span[_SPAN]
        if verb is not None:
            set_attributes(span, {OUTCOME: verb})
        if error_class is not None:
            mark_failed(span, error_class)
        end(span)

    def _record(self, verb: str | None, error_class: str | None) -> bool:
        """Record the span; False if it has just been started."""
        _, links, parent, flags = self._origin
        tracer, make = self._tracer, self._make
        assert parent is not None
        assert make is not None
        if not flags.sampled:
            return self._span.setdefault(_SPAN, parent) is parent
        own = SpanContext(
            parent.trace_id,
            tracer.id_generator.generate_span_id(),
            False,
            flags,
            parent.trace_state,
        )
        if self._span.setdefault(_SPAN, own) is not own:
            return False
        attributes = _attributes(self._job)
        if verb is not None:
            attributes[OUTCOME] = verb
        if error_class is not None:
            attributes[ERROR_TYPE] = error_class
        record = make(
            _name(self._job),
            own,
            parent,
            attributes,
            links,
            _UNSET if error_class is None else FAILED,
            self._began,
        )
        tracer.span_processor.on_end(record)
        return True

    def span(self) -> Span:
        """The span, which is started now if it was neither started nor recorded."""
        found = self._span.get(_SPAN)
        if found is None:
            try:
                found = self._start()
            except Exception:
                # An error of the application's generator of ids.
                warn()
                found = INVALID_SPAN
            found = self._span.setdefault(_SPAN, found)
        return NonRecordingSpan(found) if isinstance(found, SpanContext) else found

    def _start(self) -> Span:
        started: Span = self._tracer.start_span(
            _name(self._job),
            context=self._origin.context,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(self._job),
            links=self._origin.links,
            start_time=self._began,
        )
        return started


Key = tuple[str, str, int]


class _LazyContext(Context):
    """The context of an execution. Its span is started when the context is read.

    get_value of OpenTelemetry's API calls get, and set_value calls copy.
    """

    __slots__ = ("_execution",)
    _execution: Execution

    @classmethod
    def for_execution(cls, execution: Execution) -> _LazyContext:
        # In a batch, the outer context is that of another job: dict.copy does not read its span.
        made = cls(dict.copy(get_current()))
        made._execution = execution
        return made

    def get(self, key: str, default: Any = None) -> Any:
        return self._execution.span() if key == _SPAN else dict.get(self, key, default)


def _reading(name: str) -> Callable[..., Any]:
    read = getattr(dict, name)

    def call(self: _LazyContext, *args: Any) -> Any:
        dict.__setitem__(self, _SPAN, self._execution.span())
        return read(self, *args)

    return call


for _name_of_read in (
    *("__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__ne__", "__or__"),
    *("__repr__", "__reversed__", "__ror__", "copy", "items", "keys", "values"),
):
    setattr(_LazyContext, _name_of_read, _reading(_name_of_read))


def _name(job: Claimed) -> str:
    return f"execute {job.job_type}/{job.stage}"


def _attributes(job: Claimed) -> Attributes:
    found = ids_of(
        job.id, job.job_type, job.org_id, job.project_id, job.request_id, job.correlation_id
    )
    found.update(EXECUTE)
    found[DESTINATION] = job.queue
    found["messaging.client.id"] = job.claimed_by
    found["holdfast.stage"] = job.stage
    found["holdfast.attempt"] = job.attempt_count + 1
    found["holdfast.max_attempts"] = job.max_attempts
    if job.replay_of is not None:
        found["holdfast.replay_of"] = job.replay_of
    return found


def _ignore(_outcome: Outcome) -> None:
    """Replaces a span that could not be started."""
