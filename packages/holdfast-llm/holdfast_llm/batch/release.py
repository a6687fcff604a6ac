"""Release: requeue the jobs of a batch that does not exist at the provider.

First the batch records the reason; from then on it is never sent. Then its jobs are released page
by page, and finally the batch. A crash in between leaves a batch with its reason, and the next run
continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.clock import ms
from holdfast.engine.execute import UNKNOWN_TYPE_PAUSE_MS
from holdfast.engine.job import Actor, Claimed, Outcome, Released
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.settle import Settled, settle_in, verb_of
from holdfast.engine.worker.settle_buffer import events_of
from holdfast.event import BatchChange
from holdfast.store import Statements, Tx
from holdfast_llm.batch.abandoned_items import record_abandoned_items
from holdfast_llm.batch.content import BatchEntry, list_entries
from holdfast_llm.batch.failure import BatchFailed
from holdfast_llm.batch.item_outcome import BATCH_FAILED, OutcomeRules, error_of, safe_code
from holdfast_llm.batch.lease import BatchLease, BatchLeases, write_in
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.reply import Failure, FailureKind

SQL = Statements("holdfast_llm.batch", "submit.sql")

# Reasons of Holdfast, as the audit records them.
OVERFLOW = "overflow"
MAX_RUNTIME = "max_runtime"
STOPPED = "stopped"
UNKNOWN_TYPE = "unknown_job_type"
OPERATOR = "operator"
NO_ACCOUNT = "account_unknown"
CIRCUIT_OPEN = "circuit_open"
OURS = frozenset({OVERFLOW, MAX_RUNTIME, STOPPED, UNKNOWN_TYPE, OPERATOR, NO_ACCOUNT})


def internal_failure(reason: str) -> Failure:
    """A failure with a reason of Holdfast: it does not count as an attempt."""
    return Failure(FailureKind.CAPACITY, reason)


def of_batch(failure: Failure) -> Failure:
    """The failure of one job after its whole batch failed.

    An error of the batch never becomes the error of every item: it says nothing about a single
    item, so each is retried, in a smaller batch.
    """
    match failure.kind:
        case FailureKind.CAPACITY | FailureKind.ACCOUNT | FailureKind.TRANSIENT:
            return failure
        case _:
            return Failure(FailureKind.NOT_RUN, failure.code, failure.status)


class BatchReleaser:
    """Releases the jobs of batches that do not exist at a provider."""

    def __init__(
        self, resources: BatchResources, leases: BatchLeases, outcomes: OutcomeRules
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.registry = resources.registry
        self.events = resources.events
        self.leases = leases
        self.outcomes = outcomes

    def release(
        self,
        batch: BatchLease,
        failure: Failure,
        *,
        actor: Actor,
        decided: Callable[[Tx], None] | None = None,
    ) -> PassCounts:
        """Release a batch and all its jobs. Raises BatchLost if another worker owns it.

        *decided* writes the audit entry of an operator.
        """
        failure = of_batch(failure)

        def mark(tx: Tx) -> None:
            write_in(
                tx,
                SQL.mark_back,
                batch,
                error_class=failure.kind,
                error_code=safe_code(failure.code),
                lease_ms=self.leases.lease_ms,
                strays=int(failure.code not in OURS),
                was=batch.state,
            )
            if decided is not None:
                decided(tx)

        self.store.write(mark)
        return self.continue_release(batch, failure, actor=actor)

    def continue_release(
        self, batch: BatchLease, failure: Failure | None = None, *, actor: Actor
    ) -> PassCounts:
        """Continue the release of a marked batch; without *failure* the row has the reason."""
        if failure is None:
            assert batch.error_code is not None
            kind = FailureKind(batch.error_class or FailureKind.CAPACITY)
            failure = Failure(kind, batch.error_code)
        counts = PassCounts()
        while True:
            settled, is_last = self.store.write(
                lambda tx: self._release_page(tx, batch, failure, actor)
            )
            counts.add(self.report(settled))
            if is_last:
                break
        self.leases.write(SQL.release_batch, batch)
        self.events.emit(batch.changed(BatchChange.RELEASED, safe_code(failure.code)))
        counts.done["released"] += 1
        return counts

    def _release_page(
        self, tx: Tx, batch: BatchLease, failure: Failure, actor: Actor
    ) -> tuple[list[Settled], bool]:
        # The mark is written again: a worker that has lost the batch releases nothing.
        write_in(
            tx,
            SQL.mark_back,
            batch,
            error_class=failure.kind,
            error_code=safe_code(failure.code),
            lease_ms=self.leases.lease_ms,
            strays=0,
            was=batch.state,
        )
        entries = list_entries(tx, batch.id)
        if entries:
            record_abandoned_items(tx, self.resources.prices, batch, entries[-1].index)
        ends = [
            (entry, None if entry.job is None else self.outcome_of(entry.job, failure, batch.items))
            for entry in entries
        ]
        return release_in(tx, batch, ends, code=safe_code(failure.code), actor=actor), not entries

    def outcome_of(self, job: Claimed, failure: Failure, items: int) -> Outcome:
        """The outcome of a job whose batch of this many items was not created."""
        if failure.kind is FailureKind.CAPACITY and failure.code in OURS:
            return Released(failure.code, self.resources.overflow_ms)
        if failure.code == CIRCUIT_OPEN:
            return Released(CIRCUIT_OPEN, ms(self.settings.batch.circuit_seconds))
        if job.job_type not in self.registry:
            return Released(UNKNOWN_TYPE, UNKNOWN_TYPE_PAUSE_MS)
        return self.outcomes.of_batch_failure(job, failure, items=items).outcome

    def report(self, settled: Sequence[Settled]) -> PassCounts:
        """Emit events for the settled jobs, and count them."""
        counts = PassCounts()
        for one in settled:
            if not one.lease_held:
                continue
            for event in events_of(one):
                self.events.emit(event)
            counts.outcomes["canceled" if one.canceled_instead else verb_of(one.outcome)] += 1
            error = error_of(one.outcome)
            if error is not None:
                counts.errors[error] += 1
        return counts


def release_in(
    tx: Tx,
    batch: BatchLease,
    ends: Sequence[tuple[BatchEntry, Outcome | None]],
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
    tx.affected(SQL.release_items, batch_id=batch.id, ends=rows)
    group = [
        (entry.job, outcome)
        for entry, outcome in ends
        if entry.job is not None and outcome is not None
    ]
    return settle_in(tx, group, actor=actor) if group else []


def _class_of(outcome: Outcome) -> str | None:
    """The recorded error class of an item, including batch failures that are not counted."""
    if isinstance(outcome, Released) and outcome.reason == BATCH_FAILED:
        return BatchFailed.error_class
    return error_of(outcome)
