"""The object that ``@hf.job`` returns: the function, and typed calls that enqueue it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from holdfast.engine.context import Context
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.payload_reader import Signature, signature_of
from holdfast.engine.request import JobRequest, Options
from holdfast.engine.schedule.schedule import MisfirePolicy, ScheduleOptions
from holdfast.errors import ConfigError, InvalidJob
from holdfast.step import Step, make_map, make_step

if TYPE_CHECKING:
    from holdfast.app import Holdfast

C = ParamSpec("C")
"""The parameters of the function."""
P = ParamSpec("P")
"""The parameters of an enqueue: those of the function without the job."""
V = TypeVar("V")
"""What a call of the function returns."""
R = TypeVar("R")
"""The result of the job."""


class EnqueueOptions(Options, total=False):
    """The options of :meth:`DeclaredJob.configure`; ``key`` is the idempotency key."""

    key: str | None
    org_id: str | None
    conn: Any


class DeclaredJob(Generic[C, P, V, R]):
    """A declared job type. Calling it runs the function; ``enqueue`` enqueues a job.

    The arguments of ``enqueue`` are those of the function without the job. They are checked at
    once: a missing, unknown or wrong argument raises InvalidJob and nothing is written.
    """

    def __init__(
        self,
        holdfast: Holdfast,
        job_type: str,
        function: Callable[..., Any],
        signature: Signature,
        options: EnqueueOptions | None = None,
    ) -> None:
        self.holdfast = holdfast
        self.job_type = job_type
        self.function = function
        self.signature = signature
        self.options: EnqueueOptions = options or {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> V:
        """Run the function here, without a job."""
        returned: V = self.function(*args, **kwargs)
        return returned

    def __repr__(self) -> str:
        return f"<DeclaredJob {self.job_type!r}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R]:
        """Enqueue a job with these arguments."""
        payload = self.signature.collect(args, kwargs)
        return self.holdfast.enqueue(self.job_type, payload, **self._options())

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R]:
        """The asynchronous form of :meth:`enqueue`."""
        payload = self.signature.collect(args, kwargs)
        return await self.holdfast.aenqueue(self.job_type, payload, **self._options())

    def enqueue_many(self, items: Iterable[Any]) -> list[Enqueued[R]]:
        """Enqueue one job for each item: all of them or none.

        An item is a dict of arguments, a dataclass or model that is the payload, or a JobRequest.
        """
        return self.holdfast.enqueue_many(self.job_type, self._documents(items), **self._options())

    async def aenqueue_many(self, items: Iterable[Any]) -> list[Enqueued[R]]:
        """The asynchronous form of :meth:`enqueue_many`."""
        documents = self._documents(items)
        return await self.holdfast.aenqueue_many(self.job_type, documents, **self._options())

    def step(self, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """A step of a workflow with these arguments. An argument may be ``step.output``.

        Nothing is enqueued: see :class:`Workflow`, :func:`chain`, :func:`group` and :func:`chord`.
        """
        return make_step(self, args, kwargs)

    def map(self, items: Iterable[Any]) -> Step[list[R]]:
        """A step of a workflow with one job for each item, as in :meth:`enqueue_many`.

        Its result is the list of their results, in the order of the items.
        """
        return make_map(self, items)

    def configure(self, **options: Unpack[EnqueueOptions]) -> DeclaredJob[C, P, V, R]:
        """Return the same job type with options for its enqueues.

        *options* are those of :meth:`Holdfast.enqueue`, such as ``delay``, ``at``, ``priority``,
        ``queue``, ``org_id`` and ``conn``; ``key`` is the idempotency key.
        """
        if unknown := sorted(set(options) - _KNOWN_OPTIONS):
            raise InvalidJob(dict.fromkeys(unknown, "is not an option of enqueue"))
        both: EnqueueOptions = {**self.options, **options}
        return DeclaredJob(self.holdfast, self.job_type, self.function, self.signature, both)

    def schedule(
        self,
        name: str | None = None,
        *,
        cron: str | None = None,
        every: str | timedelta | None = None,
        zone: str = "UTC",
        starts_at: datetime | None = None,
        catch_up: MisfirePolicy | str = MisfirePolicy.ONE,
        arguments: Mapping[str, Any] | None = None,
        tenants: str | Iterable[str] | Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Declare a schedule that enqueues this job with *arguments*.

        The name is by default that of the job type, with dashes for dots. The tenant is that of
        :meth:`configure`, or the default tenant. With *tenants*, each of them gets a job at every
        tick: a list, a function that returns one at the tick, or ``"all"`` for every tenant that
        has jobs or rules. Jobs of the categories planning, export and audit enrichment cannot be
        scheduled.
        """
        hf, default = self.holdfast, self.job_type.replace(".", "-").replace("_", "-")
        options: ScheduleOptions = {
            "zone": zone,
            "starts_at": starts_at,
            "catch_up": catch_up,
            "job_type": self.job_type,
            "payload": self.signature.document((), arguments or {}),
            "project_id": self.options.get("project_id"),
        }
        if tenants is None:
            options["org_id"] = self.options.get("org_id") or hf.settings.default_org
        else:
            options["tenants"] = tenants
        if cron is not None:
            options["cron"] = cron
        if every is not None:
            options["every"] = every
        hf.schedule(name or default, **options)

    def documents(self, items: Iterable[Any]) -> list[Mapping[str, Any]]:
        """The payloads of items. Raises InvalidJob."""
        found = self._documents(items)
        if any(isinstance(one, JobRequest) for one in found):
            raise InvalidJob({"items": "must be arguments, not JobRequest objects"})
        return cast("list[Mapping[str, Any]]", found)

    def _documents(self, items: Iterable[Any]) -> list[Mapping[str, Any] | JobRequest]:
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
            raise InvalidJob({"items": f"must be a list, not {type(items).__name__}"})
        return [self._document(item) for item in items]

    def _document(self, item: Any) -> Mapping[str, Any] | JobRequest:
        if isinstance(item, JobRequest):
            return item
        if isinstance(item, Mapping) and self.signature.payload is None:
            return self.signature.collect((), item)
        return self.signature.collect((item,), {})

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = dict(self.options)
        key = options.pop("key", None)
        if key is not None:
            if options.get("idempotency_key") is not None:
                raise InvalidJob({"key": "is the idempotency_key; pass one of them"})
            options["idempotency_key"] = key
        return options


_KNOWN_OPTIONS = frozenset(Options.__annotations__) | {"key", "org_id", "conn"}


def declared_job(holdfast: Holdfast, job_type: str) -> DeclaredJob[..., ..., Any, Any]:
    """The handle of a job type that is declared on *holdfast*. Raises ConfigError.

    The first stage of a pipeline says which arguments it takes; a batch class takes any.
    """
    handler = holdfast.registry.handlers.get(job_type)
    if handler is None:
        known = ", ".join(sorted(holdfast.registry.handlers)) or "none"
        raise ConfigError(f"There is no job type {str(job_type)[:100]!r}; declared are: {known}.")

    def function(**_payload: Any) -> Any:
        raise ConfigError(f"Job type {job_type!r} is no function; enqueue it.")

    signature = None if handler.work is not None else handler.first.signature
    return DeclaredJob(holdfast, job_type, function, signature or signature_of(function))


class Declare:
    """The decorator that ``hf.job(…)`` returns."""

    def __init__(self, declare: Callable[[Callable[..., Any]], DeclaredJob[..., ..., Any, Any]]):
        self._declare = declare

    # A handler that takes the job is enqueued without it. An asynchronous one has the result that
    # awaiting it returns.
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> DeclaredJob[Concatenate[Context, P], P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R]
    ) -> DeclaredJob[Concatenate[Context, P], P, R, R]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> DeclaredJob[P, P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> DeclaredJob[P, P, R, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Declare *function* as the handler."""
        if isinstance(function, DeclaredJob):
            function = function.function
        if not callable(function):
            raise ConfigError(f"@hf.job decorates a function, not {type(function).__name__}.")
        return self._declare(function)
