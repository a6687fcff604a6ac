"""Upkeep: rescue stale claims. Bounded, safe to run twice, anywhere."""

from __future__ import annotations

from functools import partial

from holdfast.engine.job import Actor, ActorType, Canceled, Claimed, Dead, Fault, Outcome, Retry
from holdfast.engine.quarantine import bury_broken
from holdfast.engine.settle import Settled, settle_in
from holdfast.errors import RuleBroken, WorkerCrashed
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")

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
