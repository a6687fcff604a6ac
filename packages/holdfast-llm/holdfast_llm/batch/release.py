"""Release: the jobs of a batch that does not exist at the provider go back to where they wait.

First the batch says why; from then on it is never sent, whoever finds it. Then its jobs go back
page by page, and at last it is released. Whoever dies in between leaves a batch that says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.clock import ms
from holdfast.config import RunProfile
from holdfast.engine.execute import UNKNOWN_TYPE_PAUSE_MS
from holdfast.engine.job import Actor, Claimed, Outcome, Released
from holdfast.engine.settle import Settled, settle_in, verb_of
from holdfast.engine.settler import events_of
from holdfast.event import BatchChange
from holdfast.store import Tx
from holdfast_llm.batch.content import Entry, list_entries
from holdfast_llm.batch.failure import BatchFailed
from holdfast_llm.batch.intent import SQL, Intent, write, write_in
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import lease_ms
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.unanswered import record_unanswered
from holdfast_llm.batch.verdict import BATCH_FAILED, batch_verdict, error_of, safe_code
from holdfast_llm.provider.reply import Failure, FailureKind

# Reasons of our own, under the names that the audit knows them by.
OVERFLOW = "overflow"
MAX_RUNTIME = "max_runtime"
STOPPED = "stopped"
UNKNOWN_TYPE = "unknown_job_type"
OPERATOR = "operator"
NO_ACCOUNT = "account_unknown"
CIRCUIT_OPEN = "circuit_open"
OURS = frozenset({OVERFLOW, MAX_RUNTIME, STOPPED, UNKNOWN_TYPE, OPERATOR, NO_ACCOUNT})


@dataclass(slots=True)
class Tally:
    """What was done: what became of jobs, their errors, and what became of batches."""

    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.outcomes.update(other.outcomes)
        self.errors.update(other.errors)
        self.batches.update(other.batches)


def because(reason: str) -> Failure:
    """A reason of our own: nobody failed, and nobody is charged."""
    return Failure(FailureKind.CAPACITY, reason)


def of_batch(failure: Failure) -> Failure:
    """What the failure of a whole batch is to one of its jobs.

    An error of the batch never becomes the error of every item: what is called wrong with the whole
    says nothing of one of them, so each has its own retry, in a smaller batch than this one.
    """
    match failure.kind:
        case FailureKind.CAPACITY | FailureKind.ACCOUNT | FailureKind.TRANSIENT:
            return failure
        case _:
            return Failure(FailureKind.NOT_RUN, failure.code, failure.status)


def give_back(
    lane: BatchLane,
    intent: Intent,
    failure: Failure,
    *,
    actor: Actor,
    decided: Callable[[Tx], None] | None = None,
) -> Tally:
    """Release a batch and all its jobs. Raises BatchLost if somebody else has it.

    *decided* writes down which person says so.
    """
    failure = of_batch(failure)

    def mark(tx: Tx) -> None:
        write_in(
            tx,
            "mark_back",
            intent,
            error_class=failure.kind,
            error_code=safe_code(failure.code),
            lease_ms=lease_ms(lane),
            strays=int(failure.code not in OURS),
            was=intent.state,
        )
        if decided is not None:
            decided(tx)

    lane.store.write(mark)
    lane.reached(Point.BACK_RECORDED)
    return go_on_giving_back(lane, intent, failure, actor=actor)


def go_on_giving_back(
    lane: BatchLane, intent: Intent, failure: Failure | None = None, *, actor: Actor
) -> Tally:
    """The same for a batch that says why already; *failure* is what a dead worker knew of it."""
    if failure is None:
        assert intent.error_code is not None
        kind = FailureKind(intent.error_class or FailureKind.CAPACITY)
        failure = Failure(kind, intent.error_code)
    tally = Tally()
    while True:
        settled, is_last = lane.store.write(lambda tx: _give_page(tx, lane, intent, failure, actor))
        lane.reached(Point.BACK_GROUP_RECORDED)
        tally.add(tell(lane, settled))
        if is_last:
            break
    write(lane, "release_batch", intent)
    lane.events.emit(intent.changed(BatchChange.RELEASED, safe_code(failure.code)))
    tally.batches["released"] += 1
    return tally


def _give_page(
    tx: Tx, lane: BatchLane, intent: Intent, failure: Failure, actor: Actor
) -> tuple[list[Settled], bool]:
    # The mark is written again: who has lost the batch gives nothing back.
    write_in(
        tx,
        "mark_back",
        intent,
        error_class=failure.kind,
        error_code=safe_code(failure.code),
        lease_ms=lease_ms(lane),
        strays=0,
        was=intent.state,
    )
    entries = list_entries(tx, intent.id)
    if entries:
        record_unanswered(tx, lane, intent, entries[-1].index)
    ends = [
        (entry, None if entry.job is None else outcome_of(lane, entry.job, failure, intent.items))
        for entry in entries
    ]
    return release_in(tx, intent, ends, code=safe_code(failure.code), actor=actor), not entries


def release_in(
    tx: Tx,
    intent: Intent,
    ends: Sequence[tuple[Entry, Outcome | None]],
    *,
    code: str,
    actor: Actor,
) -> list[Settled]:
    """Close items that were not sent, and settle the jobs of those that still have one."""
    if not ends:
        return []
    rows = [
        {
            "place": entry.index,
            "said_class": None if outcome is None else _class_of(outcome),
            "said_code": code,
        }
        for entry, outcome in ends
    ]
    tx.affected(SQL.release_items, batch_id=intent.id, ends=rows)
    group = [
        (entry.job, outcome)
        for entry, outcome in ends
        if entry.job is not None and outcome is not None
    ]
    return settle_in(tx, group, actor=actor) if group else []


def _class_of(outcome: Outcome) -> str | None:
    """What is written down of an item; that its batch failed counts though nobody is charged."""
    if isinstance(outcome, Released) and outcome.reason == BATCH_FAILED:
        return BatchFailed.error_class
    return error_of(outcome)


def outcome_of(lane: BatchLane, job: Claimed, failure: Failure, items: int) -> Outcome:
    """What becomes of a job whose batch of so many items was not made."""
    if failure.kind is FailureKind.CAPACITY and failure.code in OURS:
        return Released(failure.code, overflow_ms(lane))
    if failure.code == CIRCUIT_OPEN:
        return Released(CIRCUIT_OPEN, ms(lane.settings.batch.circuit_seconds))
    if job.job_type not in lane.registry:
        return Released(UNKNOWN_TYPE, UNKNOWN_TYPE_PAUSE_MS)
    return batch_verdict(lane, job, failure, items=items).outcome


def overflow_ms(lane: BatchLane) -> int:
    """How long a job waits that is given back unused."""
    profile = RunProfile(retry_backoff_seconds=tuple(lane.registry.backoff_seconds))
    return ms(profile.overflow_seconds)


def tell(lane: BatchLane, settled: Sequence[Settled]) -> Tally:
    """Tell of what was settled, and count it."""
    tally = Tally()
    for one in settled:
        if not one.held:
            continue
        for event in events_of(one):
            lane.events.emit(event)
        tally.outcomes["canceled" if one.was_stopped else verb_of(one.outcome)] += 1
        error = error_of(one.outcome)
        if error is not None:
            tally.errors[error] += 1
    return tally
