"""The seam for traces: what may stand around an enqueue and around a stage. By default, nothing.

telemetry/trace.py attaches itself here. The engine knows no library for traces, and where none is
attached it asks one attribute whether it is None.
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
    """An enqueue under way: what to call it with, and who is told what became of it."""

    payloads: Iterable[Any]
    options: Mapping[str, Any]

    def end(self, enqueued: list[Enqueued]) -> None: ...


class Tracing(Protocol):
    """Watches the work from outside. It never raises, and never changes what becomes of a job."""

    def enqueueing(
        self, job_type: str, payloads: Iterable[Any], options: Mapping[str, Any]
    ) -> AbstractContextManager[Producing]:
        """Stand around an enqueue; jobs that bring no traceparent get one."""

    def executing(self, job: Claimed) -> AbstractContextManager[Callable[[Outcome], None]]:
        """Stand around one stage of one attempt; the callable is told the outcome."""

    def begin(self, batch: InsertRows) -> str | None:
        """The traceparent of a job that no request but the clock brought about."""


def traced(enqueue_many: F) -> F:
    """Let what is attached stand around a method that enqueues."""

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
    """The same where it is awaited."""

    @wraps(aenqueue_many)
    async def call(self: Any, job_type: str, payloads: Iterable[Any], **options: Any) -> Any:
        # On any other connection it is enqueue_many in a thread, which sees to it.
        if self.tracing is None or not is_awaiting(options.get("conn")):
            return await aenqueue_many(self, job_type, payloads, **options)
        with self.tracing.enqueueing(job_type, payloads, options) as producing:
            enqueued = await aenqueue_many(self, job_type, producing.payloads, **producing.options)
            producing.end(enqueued)
            return enqueued

    return cast(F, call)
