"""What runs for a job type: handlers, their stages, and the registry that knows them."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypedDict

from holdfast.actor import Role
from holdfast.config import BUILT_IN_PROFILES, QueueSettings
from holdfast.engine.category import CATEGORIES, QUEUE, Category, Duty
from holdfast.engine.job import CRITICAL_QUEUE, DEAD_LETTER_QUEUE, ONLY_STAGE, Priority
from holdfast.engine.retry import CRITIC, STAGE_ATTEMPTS, RetryPolicy
from holdfast.errors import ConfigError, Forbidden, SchemaInvalid, UnknownKind

Function = Callable[..., Any]
Policy = Callable[[Any, str], bool]
"""Whether a planning job may write under a command: called with the job and the command."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Where a job's model request goes, frozen at enqueue.

    *is_batched* says that it waits for the batch lane and not for a worker.
    """

    decision: Mapping[str, Any]
    is_batched: bool
    max_attempts: int | None = None


Router = Callable[[Mapping[str, Any] | None], Routed]
"""Checks a caller's routing decision, or makes the job type's own; raises ValueError with why."""

Keep = Callable[[Any, Sequence[tuple[Any, Any]]], None]
"""Writes what an application keeps beside the results of its jobs: in the transaction that settles
them, for a whole group, called with that transaction and pairs of a claim and what it kept."""

JOB_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_CALL = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True, eq=False)
class Producer:
    """The permission to enqueue jobs of one job type, for the code that owns the job type.

    Declared as ``producer=`` of a job type and passed as ``producer=`` to each enqueue of it. Every
    other enqueue raises EnqueueRefused, which names *call* as the one to use. The object itself is
    the proof: another one with the same text is another producer.
    """

    call: str


class EnqueueRefused(Forbidden):
    """Only the producer of the job type enqueues its jobs; *call* is what to use instead."""

    def __init__(self, job_type: str, call: str | None = None) -> None:
        self.job_type, self.call = job_type, call
        use = f"Use {call} instead." if call else "The table job_type_rule names the call to use."
        super().__init__(
            f"Nothing was enqueued: only its producer enqueues jobs of type {job_type!r}. {use}"
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """One named step with a budget of its own."""

    name: str
    function: Function
    max_attempts: int
    retry: RetryPolicy
    timeout: timedelta | None
    read_payload: Callable[[Mapping[str, Any]], Any]
    is_async: bool


@dataclass(frozen=True, slots=True)
class Handler:
    """Everything known of a job type."""

    job_type: str
    category: Category
    queue: str
    priority: Priority
    stages: tuple[Stage, ...]
    version: str
    accepts: frozenset[str] = frozenset()
    policy: Policy | None = None
    slo: timedelta | None = None
    # The only one that may enqueue, and the least role that may cancel; None: no restriction.
    producer: Producer | None = None
    cancel_role: Role | None = None
    router: Router | None = None
    keep: Keep | None = None
    # What the batch lane knows of the job type; nothing here looks into it.
    work: Any = None

    @property
    def first(self) -> Stage:
        return self.stages[0]

    def stage(self, name: str) -> Stage | None:
        """The stage of that name; a blank name is the first one."""
        if not name:
            return self.first
        return next((stage for stage in self.stages if stage.name == name), None)

    def after(self, stage: Stage) -> Stage | None:
        position = self.stages.index(stage) + 1
        return self.stages[position] if position < len(self.stages) else None

    def with_backoff(self, backoff_seconds: Sequence[int]) -> Handler:
        stages = (
            replace(stage, retry=stage.retry.resolve(backoff_seconds)) for stage in self.stages
        )
        return replace(self, stages=tuple(stages))

    def can_run(self, version: str) -> bool:
        """Whether a job that was started by pipeline *version* may go on here."""
        return version in ("", self.version) or version in self.accepts


@dataclass(slots=True)
class Registry:
    """The job types and categories of one application."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    categories: dict[str, Category] = field(default_factory=lambda: dict(CATEGORIES))
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    # Runs that do something else than perform jobs: engine/errand.py, by the name of the run.
    errands: dict[str, Any] = field(default_factory=dict)
    backoff_seconds: Sequence[int] = BUILT_IN_PROFILES["example"].retry_backoff_seconds
    # Raised with every declaration, so that what was written into the store can be told from new.
    revision: int = 0

    def with_backoff(self, backoff_seconds: Sequence[int]) -> Registry:
        """The same job types, with this list for those that are retried by the run."""
        return replace(self, backoff_seconds=backoff_seconds)

    def add_queue(self, name: str, settings: QueueSettings) -> None:
        if not QUEUE.fullmatch(name) or name == DEAD_LETTER_QUEUE:
            raise ConfigError(f"Queue {name!r} must look like 'q:default', and not q:deadletter.")
        if self.queues.setdefault(name, settings) != settings:
            raise ConfigError(f"Queue {name!r} is declared twice, and differently.")
        self.revision += 1

    def add_category(self, category: Category) -> None:
        if self.categories.setdefault(category.name, category) != category:
            raise ConfigError(f"Category {category.name!r} is declared twice, and differently.")

    def category(self, name: str) -> Category:
        try:
            return self.categories[name]
        except KeyError:
            known = ", ".join(sorted(self.categories))
            raise ConfigError(
                f"Category {name!r} is not registered; there is: {known}."
                f" Declare it with hf.category({name!r}, …) first."
            ) from None

    def add(self, handler: Handler) -> None:
        if handler.job_type in self.handlers:
            raise ConfigError(f"Job type {handler.job_type!r} is declared twice.")
        self.handlers[handler.job_type] = handler
        self.revision += 1

    def get(self, job_type: str) -> Handler:
        try:
            handler = self.handlers[job_type]
        except KeyError:
            raise UnknownKind(job_type) from None
        if any(stage.retry.is_by_run for stage in handler.stages):
            return handler.with_backoff(self.backoff_seconds)
        return handler

    def keep(self, tx: Any, job_type: str, kept: Sequence[tuple[Any, Any]]) -> None:
        """Write what jobs of a type keep beside their results, in the transaction of their end."""
        write = self.handlers[job_type].keep
        if write is None:
            raise ConfigError(f"Job type {job_type!r} keeps something and declares no keep=.")
        write(tx, kept)

    def __contains__(self, job_type: str) -> bool:
        return job_type in self.handlers

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.handlers.values())


def make_stage(
    function: Function,
    *,
    name: str,
    max_attempts: int,
    retry: RetryPolicy,
    timeout: timedelta | float | None,
) -> Stage:
    if max_attempts < 1:
        raise ConfigError(
            f"Stage {name!r}: max_attempts counts the first attempt, so it is at least 1."
        )
    if isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    if timeout is not None and timeout <= timedelta(0):
        raise ConfigError(f"Stage {name!r}: timeout must be longer than zero.")
    return Stage(
        name,
        function,
        max_attempts,
        retry,
        timeout,
        _payload_reader(function),
        inspect.iscoroutinefunction(function),
    )


class HandlerOptions(TypedDict, total=False):
    """What a job type may declare beyond its stages."""

    queue: str | None
    priority: Priority
    version: str
    policy: Policy | None
    slo: timedelta | None
    producer: Producer | None
    cancel_role: Role | str | None


def check_options(job_type: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that no job type has."""
    known = HandlerOptions.__annotations__
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(
            f"Job type {job_type!r} has no option {unknown[0]!r}; it may have: {', '.join(known)}."
        )


def make_handler(
    job_type: str,
    stages: Sequence[Stage],
    *,
    category: Category,
    queue: str | None = None,
    priority: Priority = Priority.NORMAL,
    version: str = "",
    accepts: Sequence[str] = (),
    policy: Policy | None = None,
    slo: timedelta | None = None,
    producer: Producer | None = None,
    cancel_role: Role | str | None = None,
) -> Handler:
    """A handler whose declaration was checked."""
    if not JOB_TYPE.fullmatch(job_type) or len(job_type) > 100:
        raise ConfigError(
            f"Job type {job_type!r} must be lower-case words joined by dots, like 'report.export'."
        )
    if queue is not None and not QUEUE.fullmatch(queue):
        raise ConfigError(f"Queue {queue!r} must look like 'q:default'.")
    if not stages:
        raise ConfigError(f"Pipeline {job_type!r} has no stage.")
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names):
        raise ConfigError(f"Pipeline {job_type!r} names a stage twice.")
    _check_promises(job_type, category, queue, policy, slo)
    _check_rules(job_type, producer, cancel_role)
    bounded = [replace(stage, timeout=category.timeout_of(stage.timeout)) for stage in stages]
    return Handler(
        job_type,
        category,
        queue or category.queue,
        priority,
        tuple(bounded),
        pipeline_version(version, names),
        frozenset(accepts),
        policy,
        slo,
        producer,
        None if cancel_role is None else Role(cancel_role),
    )


def _check_rules(job_type: str, producer: object, cancel_role: object) -> None:
    if producer is not None and not (
        isinstance(producer, Producer)
        and isinstance(producer.call, str)
        and _CALL.fullmatch(producer.call)
    ):
        raise ConfigError(
            f"Job type {job_type!r}: producer= must be a Producer that names the call to use, in 1"
            " to 200 printable characters."
        )
    if cancel_role is not None and cancel_role not in tuple(Role):
        raise ConfigError(f"Job type {job_type!r}: cancel_role= must be one of {', '.join(Role)}.")


def _check_promises(
    job_type: str,
    category: Category,
    queue: str | None,
    policy: Policy | None,
    slo: timedelta | None,
) -> None:
    if slo is not None and slo <= timedelta(0):
        raise ConfigError(f"Job type {job_type!r}: slo must be longer than zero.")
    if queue == CRITICAL_QUEUE and slo is None:
        raise ConfigError(
            f"Job type {job_type!r}: {CRITICAL_QUEUE} is for jobs with a strict SLO that unblock"
            " core flows. Say how soon it must be done: slo=timedelta(…)."
        )
    if policy is None:
        return
    if category.duty is not Duty.PLANNING:
        raise ConfigError(
            f"Job type {job_type!r}: policy= says when a planning job may write; jobs of category"
            f" {category.name!r} need none."
        )
    if not callable(policy) or inspect.iscoroutinefunction(policy):
        raise ConfigError(f"Job type {job_type!r}: policy= must be a plain function.")


def pipeline_version(declared: str, stages: Sequence[str]) -> str:
    """What a running job remembers of its pipeline: the declared version and the stages' names."""
    if list(stages) == [ONLY_STAGE] and not declared:
        return ""
    shape = hashlib.sha256("\n".join(stages).encode()).hexdigest()[:8]
    return f"{declared or '1'}:{shape}"


def plain_stage(
    function: Function,
    *,
    category: Category,
    max_attempts: int | None,
    retry: RetryPolicy | None,
    timeout: timedelta | float | None,
    name: str = ONLY_STAGE,
) -> Stage:
    """The only stage of a plain job, with its category's budget."""
    return make_stage(
        function,
        name=name,
        max_attempts=category.max_attempts if max_attempts is None else max_attempts,
        retry=retry or category.retry,
        timeout=timeout,
    )


def pipeline_stage(
    function: Function,
    *,
    name: str,
    max_attempts: int = STAGE_ATTEMPTS,
    retry: RetryPolicy = CRITIC,
    timeout: timedelta | float | None = None,
) -> Stage:
    return make_stage(function, name=name, max_attempts=max_attempts, retry=retry, timeout=timeout)


def _payload_reader(function: Function) -> Callable[[Mapping[str, Any]], Any]:
    """How the payload becomes what the handler's second parameter is annotated with."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) < 2:
        raise ConfigError(
            f"{function.__qualname__} must take two arguments: the job and its payload."
        )
    try:
        wanted = typing.get_type_hints(function).get(parameters[1].name)
    except NameError:
        wanted = None
    if hasattr(wanted, "model_validate"):
        return _pydantic_reader(wanted)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _dataclass_reader(wanted)
    return lambda payload: payload


def _pydantic_reader(model: Any) -> Callable[[Mapping[str, Any]], Any]:
    def read(payload: Mapping[str, Any]) -> Any:
        try:
            return model.model_validate(payload)
        except ValueError as exc:
            raise SchemaInvalid(model=model.__name__, problems=len(exc.args) or 1) from exc

    return read


def _dataclass_reader(kind: type) -> Callable[[Mapping[str, Any]], Any]:
    fields = {item.name: item for item in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)

    def read(payload: Mapping[str, Any]) -> Any:
        unknown = sorted(set(payload) - set(fields))
        if unknown:
            raise SchemaInvalid(model=kind.__name__, unknown_field=unknown[0])
        for name, value in payload.items():
            if not _fits(value, hints[name]):
                raise SchemaInvalid(model=kind.__name__, wrong_type=name)
        try:
            return kind(**payload)
        except (TypeError, ValueError) as exc:
            raise SchemaInvalid(model=kind.__name__) from exc

    return read


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a JSON value may stand where *wanted* is annotated. Only plain types are judged."""
    options = typing.get_args(wanted) if typing.get_origin(wanted) in _UNIONS else (wanted,)
    for option in options:
        kind = typing.get_origin(option) or option
        if kind not in _JUDGED:
            return True
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return True
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return True
    return False


_UNIONS = (typing.Union, type(int | str))
_JUDGED = (str, int, float, bool, list, dict, type(None))
