"""What runs for a job type: handlers, their stages, and the registry that knows them."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.engine.job import ONLY_STAGE, Priority
from holdfast.engine.retry import CRITIC, STAGE_ATTEMPTS, Category, RetryPolicy, category_of
from holdfast.errors import ConfigError, SchemaInvalid, UnknownKind

Function = Callable[..., Any]

JOB_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
QUEUE = re.compile(r"q:[a-z][a-z0-9_-]{0,49}")


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

    def can_run(self, version: str) -> bool:
        """Whether a job that was started by pipeline *version* may go on here."""
        return version in ("", self.version) or version in self.accepts


@dataclass(slots=True)
class Registry:
    """The job types of one application."""

    handlers: dict[str, Handler] = field(default_factory=dict)

    def add(self, handler: Handler) -> None:
        if handler.job_type in self.handlers:
            raise ConfigError(f"Job type {handler.job_type!r} is declared twice.")
        self.handlers[handler.job_type] = handler

    def get(self, job_type: str) -> Handler:
        try:
            return self.handlers[job_type]
        except KeyError:
            raise UnknownKind(job_type) from None

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


def make_handler(
    job_type: str,
    stages: Sequence[Stage],
    *,
    category: str,
    queue: str | None,
    priority: Priority,
    version: str = "",
    accepts: Sequence[str] = (),
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
    kind = category_of(category)
    if kind.name != category:
        raise ConfigError(f"Category {category!r} is not registered.")
    return Handler(
        job_type,
        kind,
        queue or kind.queue,
        priority,
        tuple(stages),
        pipeline_version(version, names),
        frozenset(accepts),
    )


def pipeline_version(declared: str, stages: Sequence[str]) -> str:
    """What a running job remembers of its pipeline: the declared version and the stages' names."""
    if list(stages) == [ONLY_STAGE] and not declared:
        return ""
    shape = hashlib.sha256("\n".join(stages).encode()).hexdigest()[:8]
    return f"{declared or '1'}:{shape}"


def plain_stage(
    function: Function,
    *,
    category: str,
    max_attempts: int | None,
    retry: RetryPolicy | None,
    timeout: timedelta | float | None,
) -> Stage:
    """The only stage of a plain job, with its category's budget."""
    kind = category_of(category)
    return make_stage(
        function,
        name=ONLY_STAGE,
        max_attempts=kind.max_attempts if max_attempts is None else max_attempts,
        retry=retry or kind.retry,
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
