"""Execute: run one stage of a handler and return an Outcome. Writes nothing."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, ms, read_instant
from holdfast.document import decode
from holdfast.engine import category_rules, development
from holdfast.engine.await_event import AwaitEvent
from holdfast.engine.category import Category
from holdfast.engine.classify import failure_of, fault_of, lacks_connection, retry_after_of
from holdfast.engine.completion import Ended, outcome_of, stage_outcome
from holdfast.engine.handler import Handler, Registry, Runnable, Stage
from holdfast.engine.job import (
    Canceled,
    Claimed,
    Completed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    Snoozed,
)
from holdfast.engine.job import current as current
from holdfast.engine.payload_reader import unchanged
from holdfast.engine.reference import REF
from holdfast.engine.tracing import Tracing
from holdfast.errors import (
    HandlerTimeout,
    JobCanceled,
    LeaseLost,
    PipelineChanged,
    ResultInvalid,
    RowInvalid,
    Snooze,
    UnknownJobType,
)

if TYPE_CHECKING:
    from holdfast.engine.context import Context

UNKNOWN_TYPE_PAUSE_MS = 30_000
NO_CONNECTION_PAUSE_MS = 1_000
# A database cannot store instants more than a few thousand years ahead.
LONGEST_SNOOZE = timedelta(days=366 * 5)
NO_RESULT = Completed()


# Not frozen: there is one for every job.
@dataclass(slots=True)
class Execution:
    """The resolved handler, stage and payload of a claimed job."""

    handler: Handler
    stage: Stage
    payload: Any
    categories: Mapping[str, Category]
    # Whether the result must refer to an artifact.
    delivers: bool = False


def name_stage(job: Claimed, registry: Registry) -> Claimed:
    """Set the first stage of a job that was enqueued by SQL, which does not know its name."""
    if job.stage or job.job_type not in registry:
        return job
    return replace(job, stage=registry.get(job.job_type).first.name)


def resolve(
    job: Claimed, registry: Registry, clock: Clock, *, patience: timedelta
) -> Execution | Outcome:
    """Resolve the handler, stage and payload, or the outcome of a job that cannot run here.

    A job of an unknown type is released until *patience* has passed since it was enqueued.
    """
    if job.cancel_requested_at is not None:
        return Canceled()
    key = job.job_type, job.stage, job.pipeline_version, job.category
    runnable = registry.runnable.get(key)
    if runnable is None:
        if job.job_type not in registry:
            # Another worker may have it registered, for example during a deployment.
            if clock.now() - read_instant(job.created_at) < patience:
                return Released("unknown_job_type", UNKNOWN_TYPE_PAUSE_MS)
            return Dead(fault_of(UnknownJobType(), stage=job.stage, attempt=job.attempt))
        found = _find_runnable(job, registry)
        if isinstance(found, PipelineChanged):
            return Dead(fault_of(found, stage=job.stage, attempt=job.attempt))
        runnable = registry.runnable[key] = found
    handler, stage, delivers = runnable
    scope = f"{job.job_type}:{job.org_id}:{job.project_id or ''}:"
    broken = (
        "idempotency_key"
        if not job.idempotency_key.startswith(scope)
        else "attempt_count"
        if job.attempt_count >= job.max_attempts
        else None
    )
    if broken is not None:
        # Only a row that bypassed the constraints of the database looks like this.
        return Dead(fault_of(RowInvalid(column=broken), stage=job.stage, attempt=job.attempt))
    try:
        payload = decode(job.payload)
        if not isinstance(payload, dict):
            raise TypeError("payload")
    except (TypeError, ValueError):
        return Dead(fault_of(RowInvalid(column="payload"), stage=job.stage, attempt=job.attempt))
    try:
        read = stage.read_payload
        value = payload if read is unchanged else read(payload)
        return Execution(handler, stage, value, registry.categories, delivers)
    except Exception as exc:
        return outcome_of_error(exc, job, stage, random.Random())


def _find_runnable(job: Claimed, registry: Registry) -> Runnable | PipelineChanged:
    handler = registry.get(job.job_type)
    stage = handler.stage(job.stage)
    if stage is None or not handler.can_run(job.pipeline_version):
        return PipelineChanged(
            stored_version=job.pipeline_version or "none", version=handler.version or "none"
        )
    rules = category_rules.rules_for(handler, job.category, registry.categories)
    return Runnable(handler, stage, rules.delivers_artifact)


def execute(
    context: Context, execution: Execution, rng: random.Random, tracing: Tracing | None = None
) -> Ended:
    """Run a synchronous stage in this thread, or an asynchronous one on its own event loop."""
    if tracing is None:
        return _ended(context, _execute(context, execution, rng))
    with tracing.executing(context.job) as record_outcome:
        ended = _ended(context, _execute(context, execution, rng))
        record_outcome(outcome_of(ended))
        return ended


def _ended(context: Context, outcome: Outcome) -> Ended:
    completion = context.completion
    # Most handlers do not complete in their own transaction.
    if completion.settled is None and completion.outcome is None:
        return outcome
    return completion.ended(outcome)


def _execute(context: Context, execution: Execution, rng: random.Random) -> Outcome:
    mark = current.set(context.job)
    context.handler, context.categories = execution.handler, execution.categories
    try:
        if REF in context.job.payload:
            category_rules.check_inputs(context)
        value = execution.stage.function(context, execution.payload)
        if value is not None and inspect.isawaitable(value):
            value = asyncio.run(within(value, execution.stage.timeout))
        if context.completion.settled is not None:
            return _after_completion(value, context, execution)
        if context.completion.failure is not None:
            raise context.completion.failure
        outcome = outcome_of_result(value, context.job, execution)
        if execution.delivers and isinstance(outcome, Completed):
            category_rules.check_result(context, value)
        return outcome
    except (Snooze, SystemExit, asyncio.CancelledError, Exception) as exc:
        return outcome_of_error(exc, context.job, execution.stage, rng)
    except JobCanceled as exc:
        return _canceled(exc, context, execution)
    finally:
        current.reset(mark)


async def execute_async(
    context: Context, execution: Execution, rng: random.Random, tracing: Tracing | None = None
) -> Ended:
    """Run an asynchronous stage on the current event loop."""
    if tracing is None:
        return context.completion.ended(await _execute_async(context, execution, rng))
    with tracing.executing(context.job) as record_outcome:
        ended = context.completion.ended(await _execute_async(context, execution, rng))
        record_outcome(outcome_of(ended))
        return ended


async def _execute_async(context: Context, execution: Execution, rng: random.Random) -> Outcome:
    current.set(context.job)
    context.handler, context.categories = execution.handler, execution.categories
    try:
        if category_rules.has_inputs(context):
            await asyncio.to_thread(category_rules.check_inputs, context)
        value = await within(
            execution.stage.function(context, execution.payload), execution.stage.timeout
        )
        if context.completion.settled is not None:
            return _after_completion(value, context, execution)
        if context.completion.failure is not None:
            raise context.completion.failure
        outcome = outcome_of_result(value, context.job, execution)
        if execution.delivers and isinstance(outcome, Completed):
            await asyncio.to_thread(category_rules.check_result, context, value)
        return outcome
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The lease renewer interrupts the handler, or the worker stops.
            if context.token.lease_lost:
                return Released("lease_lost")
            return Canceled() if context.token.is_set else Released("hard_stop")
        # The task was not canceled, but something that the handler awaited was.
        return outcome_of_error(exc, context.job, execution.stage, rng)
    except (Snooze, SystemExit, Exception) as exc:
        return outcome_of_error(exc, context.job, execution.stage, rng)
    except JobCanceled as exc:
        return _canceled(exc, context, execution)


def _after_completion(value: Any, context: Context, execution: Execution) -> Outcome:
    """The outcome of a handler that has recorded one; returning None confirms it."""
    settled = context.completion.settled
    if value is None and settled is not None:
        return settled.outcome
    return outcome_of_result(value, context.job, execution)


def _canceled(exc: JobCanceled, context: Context, execution: Execution) -> Outcome:
    """Only a cancel request cancels a job; a handler cannot cancel itself."""
    if context.token.is_set or context.job.cancel_requested_at is not None:
        return Canceled()
    return Dead(fault_of(exc, stage=execution.stage.name, attempt=context.job.attempt))


async def within(awaitable: Any, timeout: timedelta | None) -> Any:
    """Await a handler, up to the timeout of its stage. Raises HandlerTimeout."""
    if timeout is None:
        return await awaitable
    limit = asyncio.timeout(timeout.total_seconds())
    try:
        async with limit:
            return await awaitable
    except TimeoutError:
        # A timeout inside the handler is a network timeout, not the limit of the stage.
        if limit.expired():
            raise HandlerTimeout(limit_ms=ms(timeout)) from None
        raise


def outcome_of_result(value: Any, job: Claimed, execution: Execution) -> Outcome:
    """The outcome of a return value. Built-in stages may return the outcome itself."""
    if value is None and execution.stage is execution.handler.stages[-1]:
        return NO_RESULT
    if isinstance(value, (Completed, Retry, Dead, Released)):
        return value
    try:
        return stage_outcome(value, execution.handler, execution.stage)
    except ResultInvalid:
        return Dead(fault_of(ResultInvalid(), stage=execution.stage.name, attempt=job.attempt))


def outcome_of_error(exc: BaseException, job: Claimed, stage: Stage, rng: random.Random) -> Outcome:
    """The outcome of an exception: retry, dead letter, snooze or release."""
    if isinstance(exc, Snooze):
        return Snoozed(ms(min(exc.delay, LONGEST_SNOOZE)), isinstance(exc, AwaitEvent))
    if isinstance(exc, LeaseLost):
        return Released("lease_lost")
    if lacks_connection(exc):
        return Released("no_connection", NO_CONNECTION_PAUSE_MS)
    failure = failure_of(exc, stage.errors)
    fault = fault_of(exc, stage=stage.name, attempt=job.attempt, failure=failure)
    development.report(
        exc,
        job,
        stage=stage.name,
        error_class=fault.error_class,
        status=fault.context.get("status"),
    )
    return retry_or_dead_letter(fault, job, stage, rng, retry_after_of(failure))


def retry_or_dead_letter(
    fault: Fault,
    job: Claimed,
    stage: Stage,
    rng: random.Random,
    retry_after: timedelta | None = None,
) -> Outcome:
    """Count the failed attempt; retry if attempts are left, otherwise dead-letter."""
    if not fault.retryable or job.attempt >= job.max_attempts:
        return Dead(fault)
    return Retry(fault, ms(stage.retry.delay(job.attempt, rng, retry_after)))


def timed_out(job: Claimed, stage: Stage, rng: random.Random) -> Outcome:
    """The outcome of a job whose synchronous handler exceeded its timeout."""
    limit = ms(stage.timeout) if stage.timeout else 0
    return outcome_of_error(HandlerTimeout(limit_ms=limit), job, stage, rng)
