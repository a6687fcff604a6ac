"""Handlers of job types, their stages, and the registry that holds them."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, TypedDict, Unpack

from holdfast.actor import Role
from holdfast.config import BUILT_IN_PROFILES, KeySettings, QueueSettings
from holdfast.engine.batch_options import BatchOptions, batch_stage, read_batch
from holdfast.engine.category import CATEGORIES, QUEUE, REFUSAL, Category, CategoryRules
from holdfast.engine.error_rules import BUILT_IN, Classifier, ErrorMatches, ErrorRules, read_rules
from holdfast.engine.job import CRITICAL_QUEUE, DEAD_LETTER_QUEUE, ONLY_STAGE, Priority
from holdfast.engine.key_template import KeyTemplate, read_template
from holdfast.engine.payload_reader import Signature, caller, named, payload_reader, signature_of
from holdfast.engine.producer import EnqueueRefused as EnqueueRefused
from holdfast.engine.producer import Producer as Producer
from holdfast.engine.retry import RetryPolicy
from holdfast.errors import ConfigError, UnknownKind
from holdfast.store import Statement
from holdfast.store.dialect import POSTGRES

Function = Callable[..., Any]
Policy = Callable[[Any, str], bool]
"""Whether a planning job may write under a command; called with the job and the command."""


@dataclass(frozen=True, slots=True)
class Routed:
    """The provider and model of a job's model request, fixed at enqueue.

    With *is_batched* the job waits for batch processing instead of a worker.
    """

    decision: Mapping[str, Any]
    is_batched: bool
    max_attempts: int | None = None


Router = Callable[[Mapping[str, Any] | None], Routed]
"""Validates a caller's routing, or routes by the job type; raises ValueError with the reason."""

JOB_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
STAGE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,100}")
_CALL = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_VERSION = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,100}")


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Stage:
    """One named step with its own attempts and timeout."""

    name: str
    function: Function
    max_attempts: int
    retry: RetryPolicy
    timeout: timedelta | None
    read_payload: Callable[[Mapping[str, Any]], Any]
    is_async: bool
    errors: ErrorRules = BUILT_IN
    # How the declared function takes its job and payload; None for stages of the engine.
    signature: Signature | None = None
    # Whether it runs in a process of its own, which is killed at the timeout.
    is_isolated: bool = False
    # How many jobs one call of the function takes; None: one job, not in a list.
    batch: BatchOptions | None = None


@dataclass(frozen=True, slots=True)
class Handler:
    """The declaration of a job type."""

    job_type: str
    category: Category
    queue: str
    priority: Priority
    stages: tuple[Stage, ...]
    version: str
    accepts: frozenset[str] = frozenset()
    policy: Policy | None = None
    slo: timedelta | None = None
    # The required producer and the minimum role for a cancel; None: no restriction.
    producer: Producer | None = None
    cancel_role: Role | None = None
    # Why its jobs cannot be replayed; None: they can.
    replay_refusal: str | None = None
    router: Router | None = None
    # Statements that store rows with outcomes, for a whole group in the transaction that settles
    # it.
    stores: tuple[Statement, ...] = ()
    # Data of batch processing for the job type; the engine does not read it.
    work: Any = None
    # Make the limit key and the unique key of a job from its payload.
    limit_key: KeyTemplate | None = None
    unique_key: KeyTemplate | None = None

    @property
    def first(self) -> Stage:
        return self.stages[0]

    def stage(self, name: str) -> Stage | None:
        """The stage with this name; a blank name means the first one."""
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

    def with_classifier(self, classify: Classifier) -> Handler:
        stages = (
            replace(stage, errors=stage.errors.with_classifier(classify)) for stage in self.stages
        )
        return replace(self, stages=tuple(stages))

    def can_run(self, version: str) -> bool:
        """Whether a job that pipeline *version* started can continue here."""
        return version in ("", self.version) or version in self.accepts


class Runnable(NamedTuple):
    """The handler and the stage that a job can run here."""

    handler: Handler
    stage: Stage
    # Whether the result must refer to an artifact.
    delivers: bool


@dataclass(slots=True)
class Registry:
    """The job types and categories of one application."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    categories: dict[str, Category] = field(default_factory=lambda: dict(CATEGORIES))
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    limit_keys: dict[str, KeySettings] = field(default_factory=dict)
    # Periodic tasks (engine/periodic_task.py) by the name of their run.
    tasks: dict[str, Any] = field(default_factory=dict)
    # Maintenance steps of extensions (engine/worker/housekeeping.py).
    chores: list[Any] = field(default_factory=list)
    backoff_seconds: Sequence[int] = BUILT_IN_PROFILES["example"].retry_backoff_seconds
    # The application's rule for exceptions of every handler.
    classify_error: Classifier | None = None
    # Raised by every declaration, so that new declarations can be distinguished from stored ones.
    revision: int = 0
    # What execute.resolve found for the jobs of a type, stage, version and category.
    runnable: dict[tuple[str, str, str, str], Runnable] = field(default_factory=dict, init=False)

    def with_backoff(self, backoff_seconds: Sequence[int]) -> Registry:
        """A copy in which job types that are retried by the run use this backoff."""
        return replace(self, backoff_seconds=backoff_seconds)

    def add_queue(self, name: str, settings: QueueSettings) -> None:
        if not _matches(QUEUE, name) or name == DEAD_LETTER_QUEUE:
            raise ConfigError(f"Queue {named(name)} must look like 'q:default', not q:deadletter.")
        if self.queues.setdefault(name, settings) != settings:
            raise ConfigError(f"Queue {name!r} is declared twice with different options.")
        self.revision += 1

    def add_limit_key(self, name: str, settings: KeySettings) -> None:
        if self.limit_keys.setdefault(name, settings) != settings:
            raise ConfigError(f"Limit key {name!r} is declared twice, and differently.")

    def add_category(self, category: Category) -> None:
        if self.categories.setdefault(category.name, category) != category:
            raise ConfigError(
                f"Category {category.name!r} is declared twice with different options."
            )
        self.runnable.clear()

    def category(self, name: str) -> Category:
        found = self.categories.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(sorted(self.categories))
            raise ConfigError(
                f"Category {named(name)} is not registered. Registered: {known}. Declare it with"
                " hf.category(…) first."
            )
        return found

    def add(self, handler: Handler) -> None:
        if handler.job_type in self.handlers:
            raise ConfigError(f"Job type {handler.job_type!r} is declared twice.")
        if self.classify_error is not None:
            handler = handler.with_classifier(self.classify_error)
        self.handlers[handler.job_type] = handler
        self.runnable.clear()
        self.revision += 1

    def get(self, job_type: str) -> Handler:
        handler = self.handlers.get(job_type) if isinstance(job_type, str) else None
        if handler is None:
            raise UnknownKind(job_type)
        if any(stage.retry.is_by_run for stage in handler.stages):
            return handler.with_backoff(self.backoff_seconds)
        return handler

    def stores_of(self, job_type: str) -> tuple[Statement, ...]:
        """The statements that store the rows of outcomes of *job_type*."""
        return self.handlers[job_type].stores

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
    retry_on: ErrorMatches | None = None,
    give_up_on: ErrorMatches | None = None,
) -> Stage:
    if not _matches(STAGE, name):
        raise ConfigError(f"Stage {named(name)} must be 1 to 100 printable characters.")
    if not callable(function):
        raise ConfigError(f"Stage {name!r}: {named(function)} is not a function.")
    if not isinstance(max_attempts, int) or not 1 <= max_attempts <= 100:
        raise ConfigError(
            f"Stage {name!r}: max_attempts must be from 1 to 100; the first attempt counts."
        )
    if not isinstance(retry, RetryPolicy):
        raise ConfigError(f"Stage {name!r}: retry= must be a RetryPolicy.")
    signature = signature_of(function)
    return Stage(
        name,
        caller(signature),
        max_attempts,
        retry,
        _timeout(name, timeout),
        payload_reader(signature),
        inspect.iscoroutinefunction(function),
        read_rules(f"Stage {name!r}", retry_on, give_up_on),
        signature,
    )


def _timeout(name: str, value: object) -> timedelta | None:
    if value is None:
        return None
    try:
        found = value if isinstance(value, timedelta) else timedelta(seconds=value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"Stage {name!r}: timeout must be a length in seconds.") from None
    if found <= timedelta(0):
        raise ConfigError(f"Stage {name!r}: timeout must be longer than zero.")
    return found


class HandlerOptions(TypedDict, total=False):
    """The options of a job type besides its stages."""

    queue: str | None
    priority: Priority
    version: str
    policy: Policy | None
    slo: timedelta | None
    producer: Producer | None
    cancel_role: Role | str | None
    stores: Statement | Sequence[Statement]
    replay_refusal: str | None
    retry_on: ErrorMatches | None
    give_up_on: ErrorMatches | None
    isolation: str | None
    limit_key: str | None
    unique_key: str | None
    batch_size: int | None
    batch_wait: timedelta | float | str | None


ISOLATIONS = ("thread", "process")


def check_options(job_type: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown option."""
    known = HandlerOptions.__annotations__
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(
            f"Job type {job_type!r} has no option {unknown[0]!r}. Options: {', '.join(known)}."
        )


def make_handler(
    job_type: str,
    stages: Sequence[Stage],
    *,
    category: Category,
    accepts: Sequence[str] = (),
    **options: Unpack[HandlerOptions],
) -> Handler:
    """Create a handler from a validated declaration."""
    check_declaration(job_type, category, accepts, options)
    if not stages:
        raise ConfigError(f"Pipeline {job_type!r} has no stage.")
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names):
        raise ConfigError(f"Pipeline {job_type!r} names a stage twice.")
    where = f"Job type {job_type!r}"
    rules = read_rules(where, options.get("retry_on"), options.get("give_up_on"))
    bounded = [
        replace(
            stage,
            timeout=category.timeout_of(stage.timeout),
            is_isolated=options.get("isolation") == "process",
            errors=stage.errors if stage.errors.is_declared else rules,
        )
        for stage in stages
    ]
    cancel_role = options.get("cancel_role")
    return Handler(
        job_type,
        category,
        options.get("queue") or category.queue,
        options.get("priority", Priority.NORMAL),
        tuple(bounded),
        pipeline_version(options.get("version", ""), names),
        frozenset(accepts),
        options.get("policy"),
        options.get("slo"),
        options.get("producer"),
        None if cancel_role is None else Role(cancel_role),
        replay_refusal=options.get("replay_refusal"),
        stores=read_stores(job_type, options.get("stores", ())),
        limit_key=read_template(job_type, "limit_key", options.get("limit_key")),
        unique_key=read_template(job_type, "unique_key", options.get("unique_key")),
    )


def read_stores(job_type: str, given: object) -> tuple[Statement, ...]:
    """Read ``stores=``. Raises ConfigError unless each statement takes rows and nothing else."""
    found = (given,) if isinstance(given, Statement) else given
    if not isinstance(found, Sequence) or not all(isinstance(one, Statement) for one in found):
        raise ConfigError(
            f"Job type {job_type!r}: stores= must be a statement of a .sql file, or several."
        )
    for statement in found:
        others = statement.render(POSTGRES).params - statement.row_sets - {"now"}
        if not statement.row_sets or others:
            raise ConfigError(
                f"Job type {job_type!r}: the statement {statement.name!r} of stores= must take"
                " {rows …} and no other parameter."
            )
    return tuple(found)


def check_declaration(
    job_type: str, category: Category, accepts: Sequence[str], options: HandlerOptions
) -> None:
    """Raise ConfigError unless the job type is declared correctly."""
    queue, version = options.get("queue"), options.get("version", "")
    if not _matches(JOB_TYPE, job_type) or len(job_type) > 100:
        raise ConfigError(
            f"Job type {named(job_type)} must be lower-case words joined by dots, like"
            " 'report.export'."
        )
    if queue is not None and not _matches(QUEUE, queue):
        raise ConfigError(f"Queue {named(queue)} must look like 'q:default'.")
    if not isinstance(options.get("priority", Priority.NORMAL), Priority):
        raise ConfigError(f"Job type {job_type!r}: priority= must be a Priority.")
    if options.get("isolation") not in (None, *ISOLATIONS):
        known = " or ".join(repr(one) for one in ISOLATIONS)
        raise ConfigError(f"Job type {job_type!r}: isolation= must be {known}.")
    if not _matches(_VERSION, version):
        raise ConfigError(f"Job type {job_type!r}: version= is up to 100 printable characters.")
    if (
        isinstance(accepts, (str, bytes))
        or not isinstance(accepts, Collection)
        or not all(isinstance(one, str) for one in accepts)
    ):
        raise ConfigError(f"Job type {job_type!r}: accepts= must be a list of versions.")
    _check_promises(job_type, category, queue, options.get("policy"), options.get("slo"))
    _check_rules(job_type, options.get("producer"), options.get("cancel_role"))
    refusal = options.get("replay_refusal")
    if refusal is not None and not (isinstance(refusal, str) and REFUSAL.fullmatch(refusal)):
        raise ConfigError(
            f"Job type {job_type!r}: replay_refusal= must be a reason of 1 to 300 printable"
            " characters."
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
    # A viewer changes nothing.
    known = [role for role in Role if role is not Role.VIEWER]
    if cancel_role is not None and cancel_role not in known:
        raise ConfigError(f"Job type {job_type!r}: cancel_role= must be one of {', '.join(known)}.")


def _check_promises(
    job_type: str,
    category: Category,
    queue: str | None,
    policy: Policy | None,
    slo: timedelta | None,
) -> None:
    if slo is not None and not (isinstance(slo, timedelta) and slo > timedelta(0)):
        raise ConfigError(f"Job type {job_type!r}: slo must be longer than zero.")
    if queue == CRITICAL_QUEUE and slo is None:
        raise ConfigError(
            f"Job type {job_type!r}: {CRITICAL_QUEUE} is for jobs with a strict SLO that unblock"
            " core flows. Declare the SLO: slo=timedelta(…)."
        )
    if policy is None:
        return
    if category.rules is not CategoryRules.PLANNING:
        raise ConfigError(
            f"Job type {job_type!r}: policy= is valid for planning jobs only, and its category is"
            f" {category.name!r}."
        )
    if not callable(policy) or inspect.iscoroutinefunction(policy):
        raise ConfigError(f"Job type {job_type!r}: policy= must be a plain function.")


def pipeline_version(declared: str, stages: Sequence[str]) -> str:
    """The pipeline version stored with a job: the declared version and the names of the stages."""
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
    """The only stage of a plain job, with the limits of its category."""
    return make_stage(
        function,
        name=name,
        max_attempts=category.max_attempts if max_attempts is None else max_attempts,
        retry=retry or category.retry,
        timeout=timeout,
    )


def plain_handler(
    job_type: str,
    function: Function,
    category: Category,
    max_attempts: int | None,
    retry: RetryPolicy | None,
    timeout: timedelta | float | None,
    options: HandlerOptions,
) -> Handler:
    """The handler of a job type that has one function."""
    stage = plain_stage(
        function, category=category, max_attempts=max_attempts, retry=retry, timeout=timeout
    )
    stage = batch_stage(stage, function, read_batch(job_type, category, options))
    return make_handler(job_type, [stage], category=category, **options)
