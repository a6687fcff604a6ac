"""One handler call for many jobs of a tenant.

The handler takes the jobs and their payloads, and returns one result for each job. An exception in
the place of a result fails that job only. Every job keeps its own lease, attempt and outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.engine.execute import Execution, outcome_of_error, outcome_of_result, within
from holdfast.engine.job import Canceled, Outcome, Released, current
from holdfast.errors import JobCanceled, ResultInvalid, Snooze

if TYPE_CHECKING:
    from holdfast.engine.completion import Ended
    from holdfast.engine.context import Context
    from holdfast.engine.handler import Stage
    from holdfast.engine.tracing import Tracing

INTERRUPTED = "batch_interrupted"


class _Call:
    """One call: the jobs and payloads that it takes, and the outcome of each job."""

    def __init__(
        self, contexts: Sequence[Context], executions: Sequence[Execution], rng: random.Random
    ) -> None:
        self.contexts = contexts
        self.executions = executions
        self.rng = rng
        for context, execution in zip(contexts, executions, strict=True):
            context.handler, context.categories = execution.handler, execution.categories

    @property
    def stage(self) -> Stage:
        return self.executions[0].stage

    def begin(self) -> Any:
        """Call the handler; an asynchronous one returns an awaitable."""
        payloads = [execution.payload for execution in self.executions]
        return self.stage.function(list(self.contexts), payloads)

    def outcomes_of(self, value: Any) -> list[Outcome]:
        """The outcomes of what the handler returned."""
        if value is None:
            value = [None] * len(self.contexts)
        is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        if not is_list or len(value) != len(self.contexts):
            return self.outcomes_of_error(ResultInvalid())
        return [
            self._outcome_of(one, context, execution)
            for one, context, execution in zip(value, self.contexts, self.executions, strict=True)
        ]

    def _outcome_of(self, value: Any, context: Context, execution: Execution) -> Outcome:
        settled, failure = context.completion.settled, context.completion.failure
        if settled is not None and value is None:
            return settled.outcome
        if settled is None and failure is not None:
            value = failure
        if isinstance(value, JobCanceled):
            return self._canceled(context) or outcome_of_error(
                value, context.job, execution.stage, self.rng
            )
        if isinstance(value, BaseException):
            return outcome_of_error(value, context.job, execution.stage, self.rng)
        return outcome_of_result(value, context.job, execution)

    def outcomes_of_error(self, exc: BaseException) -> list[Outcome]:
        """The outcomes of an exception of the handler: it fails every job."""
        if isinstance(exc, JobCanceled):
            # One of the jobs is canceled; the others are not to blame.
            return [self._canceled(context) or Released(INTERRUPTED) for context in self.contexts]
        return [
            outcome_of_error(exc, context.job, self.stage, self.rng) for context in self.contexts
        ]

    def outcomes_when_stopped(self) -> list[Outcome]:
        """The outcomes if the worker stopped the call."""
        return [
            Released("lease_lost")
            if context.token.lease_lost
            else self._canceled(context) or Released("hard_stop")
            for context in self.contexts
        ]

    def _canceled(self, context: Context) -> Outcome | None:
        is_canceled = context.token.is_set or context.job.cancel_requested_at is not None
        return Canceled() if is_canceled and not context.token.lease_lost else None

    def ended(self, outcomes: Sequence[Outcome]) -> list[Ended]:
        return [
            context.completion.ended(outcome)
            for context, outcome in zip(self.contexts, outcomes, strict=True)
        ]


@contextmanager
def _traced(
    tracing: Tracing | None, contexts: Sequence[Context]
) -> Iterator[Callable[[Sequence[Outcome]], None]]:
    """Observe every job of a call, if there is a tracer."""
    with ExitStack() as spans:
        notes = (
            []
            if tracing is None
            else [spans.enter_context(tracing.executing(context.job)) for context in contexts]
        )

        def record(outcomes: Sequence[Outcome]) -> None:
            for note, outcome in zip(notes, outcomes, strict=False):
                note(outcome)

        yield record


def execute_batch(
    contexts: Sequence[Context],
    executions: Sequence[Execution],
    rng: random.Random,
    tracing: Tracing | None = None,
) -> list[Ended]:
    """Call a handler with many jobs, in this thread."""
    call = _Call(contexts, executions, rng)
    mark = current.set(contexts[0].job)
    try:
        with _traced(tracing, contexts) as record:
            try:
                value = call.begin()
                if value is not None and inspect.isawaitable(value):
                    value = asyncio.run(within(value, call.stage.timeout))
                outcomes = call.outcomes_of(value)
            except (JobCanceled, Snooze, SystemExit, asyncio.CancelledError, Exception) as exc:
                outcomes = call.outcomes_of_error(exc)
            record(outcomes)
        return call.ended(outcomes)
    finally:
        current.reset(mark)


async def execute_batch_async(
    contexts: Sequence[Context],
    executions: Sequence[Execution],
    rng: random.Random,
    tracing: Tracing | None = None,
) -> list[Ended]:
    """Call an asynchronous handler with many jobs, on the current event loop."""
    call = _Call(contexts, executions, rng)
    current.set(contexts[0].job)
    with _traced(tracing, contexts) as record:
        try:
            outcomes = call.outcomes_of(await within(call.begin(), call.stage.timeout))
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                outcomes = call.outcomes_when_stopped()
            else:
                outcomes = call.outcomes_of_error(exc)
        except (JobCanceled, Snooze, SystemExit, Exception) as exc:
            outcomes = call.outcomes_of_error(exc)
        record(outcomes)
    return call.ended(outcomes)
