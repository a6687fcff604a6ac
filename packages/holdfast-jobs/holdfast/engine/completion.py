"""Completion: a handler's rows and the outcome of its stage in one commit.

A handler that opens ``job.transaction(complete=True)`` settles its own claim: settle_in runs in the
handler's transaction, immediately before COMMIT. The outcome no longer changes after the block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.engine import category_rules
from holdfast.engine.handler import Handler, Stage
from holdfast.engine.job import (
    Actor,
    ActorType,
    Advanced,
    Claimed,
    Completed,
    Dead,
    Outcome,
    ResultWithRows,
    Retry,
)
from holdfast.engine.result import result_document
from holdfast.engine.settle import Settled, find_settled, settle_in, verb_of
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    JobCanceled,
    LeaseLost,
    RuleViolated,
    StoreDown,
    StoreError,
)
from holdfast.store import Tx

if TYPE_CHECKING:
    from holdfast.engine.context import Context

_log = logging.getLogger("holdfast.handler")


@dataclass(frozen=True, slots=True)
class Unproven:
    """The end of a stage whose COMMIT got no reply.

    If *perhaps* was committed, that is the outcome; otherwise *outcome* is.
    """

    outcome: Outcome
    perhaps: Outcome


Ended = Outcome | Settled | Unproven
"""How a stage ended: an outcome to settle, or one that its handler has settled itself."""


def outcome_of(ended: Ended) -> Outcome:
    return ended.outcome if isinstance(ended, (Settled, Unproven)) else ended


@dataclass(slots=True)
class Completion:
    """The outcome that a handler records in its own transaction. One for each executed stage."""

    # The value of set_result and its outcome. None: no completing block is open.
    value: Any = None
    wanted: Completed | Advanced | None = None
    # The outcome that may be committed, set from the last statements of the block on.
    outcome: Outcome | None = None
    pending: Settled | None = None
    # The settled outcome, once its COMMIT is proven. Other threads read it.
    settled: Settled | None = None
    # Why a finished block was not committed. It fails the stage even if the handler caught it.
    failure: BaseException | None = None
    _has_ended: bool = False

    @property
    def has_closed_claim(self) -> bool:
        """Whether there is no lease left to renew or lose."""
        return self.settled is not None and self.settled.next_claim is None

    def ended(self, outcome: Outcome) -> Ended:
        """How the stage ended if its handler ended with *outcome*."""
        settled = self.settled
        if settled is not None:
            if outcome != settled.outcome:
                _log_ignored(settled, outcome)
            return settled
        return outcome if self.outcome is None else Unproven(outcome, self.outcome)

    def check_unsettled(self) -> None:
        """Raise RuleViolated if the outcome is recorded: the claim takes no further writes."""
        if self.settled is not None:
            raise RuleViolated(
                "job.transaction(complete=True) has already recorded the outcome of this stage, so"
                " the job takes no further writes. Make this call before or inside that block.",
                transaction="completed",
            )


def stage_outcome(value: Any, handler: Handler, stage: Stage) -> Completed | Advanced:
    """The outcome of a stage's result. Raises ResultInvalid if it cannot be stored."""
    kept = None
    if isinstance(value, ResultWithRows):
        value, kept = value.result, value.rows
    output = result_document(value)
    following = handler.after(stage)
    if following is None:
        return Completed(output, kept)
    return Advanced(output, following.name, following.max_attempts)


def set_result(context: Context, value: Any) -> None:
    completion = context.completion
    completion.check_unsettled()
    if completion.wanted is None:
        raise RuleViolated(
            "job.set_result() was called outside of job.transaction(complete=True). Call it inside"
            " that block, or return the result.",
            transaction="not_completing",
        )
    context.open_transaction()
    completion.wanted = stage_outcome(value, *_stage_of(context))
    completion.value = value


@contextmanager
def completing(context: Context) -> Iterator[None]:
    """Wrap a completing block: return only when rows and outcome are known to be committed."""
    completion = context.completion
    handler, stage = _stage_of(context)
    completion.value = completion.failure = completion.outcome = completion.pending = None
    completion._has_ended = False
    completion.wanted = stage_outcome(None, handler, stage)
    try:
        yield
        completion.settled = completion.pending
    except BaseException as exc:
        if not _was_committed(context, exc):
            raise
    finally:
        completion.wanted = None


def prepare(context: Context) -> None:
    """Check the result at the end of the handler's block, before anything is recorded."""
    completion = context.completion
    completion._has_ended = True
    if isinstance(completion.wanted, Completed):
        category_rules.check_result(context, completion.value, context.session)


def record(context: Context, tx: Tx) -> None:
    """Settle the claim in the handler's transaction, in its last statements before COMMIT."""
    completion, job = context.completion, context.job
    if context.check_lease(tx):
        raise JobCanceled
    assert completion.wanted is not None
    completion.outcome = completion.wanted
    handler, _ = _stage_of(context)
    (settled,) = settle_in(
        tx, [(job, completion.wanted)], actor=_actor(job), stores=lambda _: handler.stores
    )
    if not settled.lease_held:
        raise LeaseLost(job.id)
    completion.pending = settled


def _was_committed(context: Context, exc: BaseException) -> bool:
    """Whether a block that raised *exc* was committed nevertheless."""
    completion = context.completion
    outcome = completion.outcome
    if completion._has_ended:
        completion.failure = exc
    if outcome is None:
        return False
    if not isinstance(exc, (HoldfastError, JobCanceled)) or isinstance(exc, StoreDown):
        # Perhaps only the reply to COMMIT was lost. If this lookup fails, the next settle decides.
        try:
            completion.settled = context.store.write(
                lambda tx: find_settled(tx, context.job, outcome, actor=_actor(context.job))
            )
        except StoreError:
            return False
    if completion.settled is None:
        completion.outcome = None
        return False
    completion.failure = None
    return True


def _stage_of(context: Context) -> tuple[Handler, Stage]:
    handler = context.handler
    stage = None if handler is None else handler.stage(context.job.stage)
    if handler is None or stage is None:
        raise ConfigError("Only a job that a worker executes can complete in its transaction.")
    return handler, stage


def _actor(job: Claimed) -> Actor:
    return Actor(ActorType.SYSTEM, job.claimed_by)


def _log_ignored(settled: Settled, outcome: Outcome) -> None:
    """Log that a handler's outcome differs from the one it recorded, without its value."""
    job, about = settled.job, settled.job.about
    fault = outcome.fault if isinstance(outcome, (Retry, Dead)) else None
    fields: dict[str, Any] = {
        "job_id": about.job_id,
        "job_type": about.job_type,
        "org_id": about.org_id,
        "project_id": about.project_id,
        "request_id": about.request_id,
        "correlation_id": about.correlation_id,
        "stage": job.stage,
        "attempt": job.attempt,
        "outcome": verb_of(settled.outcome),
        "ignored": verb_of(outcome),
        "detail": "The handler ended otherwise after job.transaction(complete=True)."
        " The recorded outcome is kept.",
    }
    if fault is not None:
        fields |= {"error_class": fault.error_class, "stack": fault.stack}
    level = logging.WARNING if fault is None else logging.ERROR
    _log.log(level, "handler.outcome_ignored", extra={"fields": fields})
