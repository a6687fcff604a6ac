"""Hooks for tracing around an enqueue and a stage. By default there is no tracer.

telemetry/trace.py installs itself here. The engine imports no tracing library; without a tracer the
cost is one check of an attribute for None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from holdfast.engine.job import Claimed, Outcome
from holdfast.engine.request import InsertRows
from holdfast.store.caller_connection import is_awaiting

if TYPE_CHECKING:
    from holdfast.engine.enqueue import Enqueued

F = TypeVar("F", bound=Callable[..., Any])


class Producing(Protocol):
    """An enqueue in progress: the options to call it with, and a callback for its result."""

    payloads: Iterable[Any]
    options: Mapping[str, Any]

    def end(self, enqueued: list[Enqueued]) -> None: ...


class Tracing(Protocol):
    """Observes jobs. It never raises and never changes the outcome of a job."""

    def enqueueing(
        self, job_type: str, payloads: Iterable[Any], options: Mapping[str, Any]
    ) -> AbstractContextManager[Producing]:
        """Wrap an enqueue; jobs without a traceparent get one."""

    def executing(self, job: Claimed) -> AbstractContextManager[Callable[[Outcome], None]]:
        """Wrap one stage of one attempt; the callable receives the outcome."""

    def begin(self, batch: InsertRows) -> str | None:
        """The traceparent of a job that a schedule caused instead of a request."""


def traced(enqueue_many: F) -> F:
    """Decorate a method that enqueues, so that the installed tracer wraps it."""

    @wraps(enqueue_many)
    def call(self: Any, job_type: str, payloads: Iterable[Any], **options: Any) -> Any:
        if self.tracing is None:
            return enqueue_many(self, job_type, payloads, **options)
        with self.tracing.enqueueing(job_type, payloads, options) as producing:
            enqueued = enqueue_many(self, job_type, producing.payloads, **producing.options)
            producing.end(enqueued)
            return enqueued

    return cast(F, call)


def atraced(aenqueue_many: F) -> F:
    """The asynchronous form of :func:`traced`."""

    @wraps(aenqueue_many)
    async def call(self: Any, job_type: str, payloads: Iterable[Any], **options: Any) -> Any:
        # Any other connection runs enqueue_many in a thread, which is traced itself.
        if self.tracing is None or not is_awaiting(options.get("conn")):
            return await aenqueue_many(self, job_type, payloads, **options)
        with self.tracing.enqueueing(job_type, payloads, options) as producing:
            enqueued = await aenqueue_many(self, job_type, producing.payloads, **producing.options)
            producing.end(enqueued)
            return enqueued

    return cast(F, call)
