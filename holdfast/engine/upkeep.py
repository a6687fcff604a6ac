"""Upkeep: rescue stale claims, and tidy what else processes that are gone have left.

Every pass is bounded, and safe to run twice, anywhere.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

from holdfast.config import Settings
from holdfast.engine.audit import seal_events
from holdfast.engine.job import Actor, ActorType, Canceled, Claimed, Dead, Fault, Outcome, Retry
from holdfast.engine.ledger import tidy_runs
from holdfast.engine.quarantine import bury_broken
from holdfast.engine.retention import archive_and_prune
from holdfast.engine.rules import tell_crowded
from holdfast.engine.settle import Settled, settle_in
from holdfast.engine.settler import events_of
from holdfast.engine.tick import TickOutcome, close_stray_ticks, prune_ticks
from holdfast.errors import RuleBroken, WorkerCrashed
from holdfast.event import Events
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")

RESCUE_LIMIT = 500
# Sealing takes a share of the process, in small bites and evenly: 2,000 events at once, 40 ms every
# few seconds, were the p99 of a quiet tenant's wait.
SEAL_LIMIT = 200

UPKEEP = Actor(ActorType.SYSTEM, "upkeep")


def rescue_jobs(store: Store, *, limit: int, dead_worker_id: str | None = None) -> list[Settled]:
    """Bring back jobs whose lease ran out, at most *limit*, charging the attempt.

    With *dead_worker_id*, also the jobs of a worker that is known to be dead, at once.
    """

    def work(tx: Tx) -> list[Settled]:
        rows = tx.values(SQL.find_stale, limit=limit, dead_worker_id=dead_worker_id)
        stale = [Claimed(*row) for row in rows]
        if not stale:
            return []
        return settle_in(tx, [(job, stale_outcome(job)) for job in stale], actor=UPKEEP)

    try:
        return store.write(work)
    except RuleBroken:
        return _rescue_one_by_one(store, limit, dead_worker_id)


def _rescue_one_by_one(store: Store, limit: int, dead_worker_id: str | None) -> list[Settled]:
    """The same when one of the rows breaks a rule: it is buried, the others come back."""

    def find(tx: Tx) -> list[Claimed]:
        rows = tx.values(SQL.find_stale, limit=limit, dead_worker_id=dead_worker_id)
        return [Claimed(*row) for row in rows]

    def rescue(tx: Tx, job: Claimed) -> list[Settled]:
        # Asked again under the lock: its worker may have come back in between.
        still = [(found, stale_outcome(found)) for found in find(tx) if found.id == job.id]
        return settle_in(tx, still, actor=UPKEEP) if still else []

    rescued: list[Settled] = []
    for job in store.write(find):
        try:
            rescued += store.write(partial(rescue, job=job))
        except RuleBroken as exc:
            rescued.append(bury_broken(store, job, rule=exc.rule, actor=UPKEEP))
    return rescued


def stale_outcome(job: Claimed) -> Outcome:
    """What becomes of a claim whose worker is gone: charged, so that a crash loop ends."""
    if job.cancel_requested_at is not None:
        return Canceled()
    exhausted = job.attempt >= job.max_attempts
    fault = Fault(
        error_class=WorkerCrashed.error_class,
        last_error="stale_claim_exhausted" if exhausted else "stale_claim_requeued",
        retryable=True,
        context={"worker_id": job.claimed_by, "lease_token": job.lease_token},
        pages_operator=exhausted,
    )
    return Dead(fault) if exhausted else Retry(fault, None)


def tidy(store: Store, settings: Settings, events: Events) -> Counter[str]:
    """One pass over everything but the seals; says what it did."""
    outcomes: Counter[str] = Counter()
    for settled in rescue_jobs(store, limit=RESCUE_LIMIT):
        outcomes["rescued"] += 1
        for event in events_of(settled):
            events.emit(event)
    outcomes.update(archive_and_prune(store, settings.retention))
    keep = timedelta(days=settings.retention.keep_runs_days)
    tidied = tidy_runs(store, keep=keep)
    outcomes["runs_lost"], outcomes["runs_pruned"] = len(tidied.lost), tidied.pruned
    for report in tidied.lost:
        events.emit(report.event)
    for tick in close_stray_ticks(store):
        outcomes["ticks_closed"] += 1
        if tick.outcome is TickOutcome.MISSED:
            events.emit(tick.skipped)
    outcomes["ticks_pruned"] = prune_ticks(store, keep=keep)
    outcomes["crowded"] = tell_crowded(store, events)
    return outcomes


def seal(store: Store, settings: Settings, events: Events) -> int:
    """Seal the next events of the audit; says how many."""
    sealed = seal_events(store, limit=SEAL_LIMIT, key=settings.audit_key)
    for head in sealed.seals:
        events.emit(head)
    return sealed.events
