"""Maintenance: rescue stale claims and clean up after processes that died.

Every pass is bounded and safe to run concurrently in any process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from holdfast.clock import ms
from holdfast.config import Settings
from holdfast.engine.deadline import expire_jobs, prune_flow
from holdfast.engine.job import (
    MAINTENANCE_QUEUE,
    Actor,
    ActorType,
    Canceled,
    Claimed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    claim_row,
)
from holdfast.engine.limits import emit_crowded
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.promote import promote_jobs
from holdfast.engine.quarantine import quarantine_job
from holdfast.engine.retention import prune, shortest_keep
from holdfast.engine.run_log import clean_run_log
from holdfast.engine.schedule.tick import PATIENCE, TickOutcome, close_stray_ticks, prune_ticks
from holdfast.engine.settle import Settled, settle_in
from holdfast.engine.worker.heartbeat import beat_seconds
from holdfast.engine.worker.settle_buffer import events_of
from holdfast.errors import RuleBroken, WorkerCrashed
from holdfast.event import Events
from holdfast.store import Statement, Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")
MAINTENANCE_SQL = Statements("holdfast.engine", "maintenance.sql")

RESCUE_LIMIT = 500

# Twice the longest pause between two attempts to reconnect.
RECONNECT_SECONDS = 4.0

MAINTENANCE = Actor(ActorType.SYSTEM, "upkeep")


# How often a claim whose worker is alive is released without counting an attempt.
FREE_RELEASES = 3
LEASE_EXPIRED = "lease_expired"


@dataclass(frozen=True, slots=True)
class Grace:
    """How long a store must be available again before an expired lease counts as an attempt.

    Only an *interruption* of at least this length counts; a shorter one ends no lease.
    """

    seconds: float = 0.0
    interruption: float = 0.0

    @classmethod
    def for_lease(cls, lease_seconds: float) -> Grace:
        """The grace of workers with this lease.

        After an interruption a live worker renews and settles within its longest reconnect pause,
        and sends a heartbeat within two intervals.
        """
        return cls(2 * beat_seconds(lease_seconds) + RECONNECT_SECONDS, lease_seconds / 3)

    def left(self, store: Store) -> float:
        """The remaining seconds."""
        return self.seconds - store.availability.seconds(self.interruption)


NO_GRACE = Grace()


def rescue_jobs(
    store: Store,
    *,
    limit: int,
    dead_worker_id: str | None = None,
    grace: Grace = NO_GRACE,
    find: Statement = SQL.find_stale,
) -> list[Settled]:
    """Rescue at most *limit* jobs whose lease expired; each counts as an attempt.

    Nothing is done until the *grace* is over. A claim whose worker is alive and no longer holds it
    costs no attempt. With *dead_worker_id*, rescue only the jobs of that worker, which is known to
    be dead, at once. *find* selects the claims, with the columns of ``find_stale``.
    """

    def work(tx: Tx) -> list[Settled]:
        # Checked inside: the transaction may have waited for the end of an outage.
        if grace.left(store) > 0:
            return []
        stale = _find_stale(store, tx, find, limit, dead_worker_id)
        return settle_in(tx, stale, actor=MAINTENANCE) if stale else []

    # It skips locked rows. Anything else that it would wait for is left to the next pass.
    try:
        return store.write_soon(work)
    except RuleBroken:
        return _rescue_one_by_one(store, find, limit, dead_worker_id)


def _find_stale(
    store: Store, tx: Tx, statement: Statement, limit: int, dead_worker_id: str | None
) -> list[tuple[Claimed, Outcome]]:
    rows = tx.values(statement, limit=limit, dead_worker_id=dead_worker_id)
    releases = {(job := Claimed(*row[:-1])).claim_id: (job, row[-1]) for row in rows}
    stale = _without_extended(store, [job for job, _ in releases.values()], dead_worker_id)
    return [(job, stale_outcome(job, releases[job.claim_id][1])) for job in stale]


def _without_extended(
    store: Store, stale: Sequence[Claimed], dead_worker_id: str | None = None
) -> list[Claimed]:
    """Of the claims that are stale in the database, those whose lease was not extended elsewhere.

    Extensions of a dead worker do not count.
    """
    if not stale:
        return []
    extended = store.extended_leases([claim_row(job) for job in stale])
    return [
        job for job in stale if job.claim_id not in extended or job.claimed_by == dead_worker_id
    ]


def _rescue_one_by_one(
    store: Store, statement: Statement, limit: int, dead_worker_id: str | None
) -> list[Settled]:
    """Rescue one by one if a row violates a constraint: that job is quarantined."""

    def find(tx: Tx) -> list[tuple[Claimed, Outcome]]:
        return _find_stale(store, tx, statement, limit, dead_worker_id)

    def rescue(tx: Tx, job: Claimed) -> list[Settled]:
        # Checked again under the lock: its worker may have returned in between.
        still = [item for item in find(tx) if item[0].claim_id == job.claim_id]
        return settle_in(tx, still, actor=MAINTENANCE) if still else []

    rescued: list[Settled] = []
    for job, _ in store.write_soon(find):
        try:
            rescued += store.write_soon(partial(rescue, job=job))
        except RuleBroken as exc:
            rescued.append(quarantine_job(store, job, rule=exc.rule, actor=MAINTENANCE))
    return rescued


def stale_outcome(job: Claimed, releases: int | None = None) -> Outcome:
    """The outcome of a claim whose lease expired.

    *releases* is None if its worker is gone: then it counts as an attempt, so that a crash loop
    ends. If the worker is alive, it is the number of earlier releases for this reason.
    """
    if job.cancel_requested_at is not None:
        return Canceled()
    if releases is not None and releases < FREE_RELEASES:
        return Released(LEASE_EXPIRED)
    exhausted = job.attempt >= job.max_attempts
    fault = Fault(
        error_class=WorkerCrashed.error_class,
        last_error="stale_claim_exhausted" if exhausted else "stale_claim_requeued",
        retryable=True,
        context={"worker_id": job.claimed_by, "lease_token": job.lease_token},
        pages_operator=exhausted,
    )
    return Dead(fault) if exhausted else Retry(fault, None)


def await_workers(store: Store, settings: Settings, *, may_continue: Callable[[], bool]) -> None:
    """Wait until a rescue may count attempts, if there is anything to rescue.

    For a short-lived process, which would otherwise end before the grace is over.
    """
    grace = grace_of(store, settings)
    while may_continue() and (left := grace.left(store)) > 0:
        if not store.one(SQL.count_stale)["jobs"]:
            return
        time.sleep(min(left, 0.25))


def grace_of(store: Store, settings: Settings) -> Grace:
    """The grace of a rescue by workers with these settings."""
    # A fake clock moves without the real time that workers would need.
    return NO_GRACE if store.clock.is_fake else Grace.for_lease(settings.lease_seconds)


def find_steps(store: Store, settings: Settings, queues: Iterable[str] = ()) -> frozenset[str]:
    """The maintenance steps that have something to do, in one statement.

    *queues* are those whose due jobs the step ``promote`` would move.
    """
    retention = settings.retention
    row = store.one(
        MAINTENANCE_SQL.find_maintenance,
        queues=[{"name": queue} for queue in queues],
        prune_ms=ms(shortest_keep(retention)),
        keep_ms=ms(timedelta(days=retention.keep_days)),
        runs_ms=ms(timedelta(days=retention.keep_runs_days)),
        patience_ms=ms(PATIENCE),
    )
    return frozenset(step for step, has_work in row.items() if has_work)


def tidy(
    store: Store, settings: Settings, events: Events, steps: Collection[str] | None = None
) -> Counter[str]:
    """Run one maintenance pass; return the counts of its steps.

    Only *steps* run; without them, the steps that have something to do.
    """
    steps = find_steps(store, settings) if steps is None else steps
    outcomes: Counter[str] = Counter()
    if "rescue" in steps:
        for settled in rescue_jobs(store, limit=RESCUE_LIMIT, grace=grace_of(store, settings)):
            outcomes["rescued"] += 1
            for event in events_of(settled):
                events.emit(event)
    if "expire" in steps:
        outcomes["expired"] = expire_jobs(store, events)
    outcomes.update(
        prune_flow(store, retention=timedelta(days=settings.retention.keep_days), steps=steps)
    )
    outcomes.update(prune(store, settings.retention, steps))
    _clean_runs(store, settings, events, steps, outcomes)
    outcomes["crowded"] = emit_crowded(store, events, found="crowded" in steps)
    return outcomes


def _clean_runs(
    store: Store,
    settings: Settings,
    events: Events,
    steps: Collection[str],
    outcomes: Counter[str],
) -> None:
    """Close and prune runs and the ticks of schedules."""
    retention = timedelta(days=settings.retention.keep_runs_days)
    if "clean_run_log" in steps:
        lost, pruned = clean_run_log(store, retention=retention)
        outcomes["runs_lost"], outcomes["runs_pruned"] = len(lost), pruned
        for report in lost:
            events.emit(report.event)
    if "close_ticks" in steps:
        for tick in close_stray_ticks(store):
            outcomes["ticks_closed"] += 1
            if tick.outcome is TickOutcome.MISSED:
                events.emit(tick.skipped)
    if "prune_ticks" in steps:
        outcomes["ticks_pruned"] = prune_ticks(store, retention=retention)


def run_maintenance(
    store: Store, settings: Settings, events: Events, steps: Collection[str] | None = None
) -> PassCounts:
    """One bounded pass of all maintenance steps."""
    steps = find_steps(store, settings) if steps is None else steps
    return PassCounts(outcomes=tidy(store, settings, events, steps))


def maintain(
    store: Store,
    settings: Settings,
    events: Events,
    queues: Iterable[str],
    *,
    may_continue: Callable[[], bool],
    others: Iterable[Callable[[], object]] = (),
) -> None:
    """Maintenance before bounded runs, for processes without a worker.

    Rescues stale claims and promotes due jobs. *others* are the maintenance steps of extensions.
    """
    # A delayed notification waits on q:maintenance, whichever queue delivers it.
    watched = tuple(dict.fromkeys((*queues, MAINTENANCE_QUEUE)))
    steps = find_steps(store, settings, watched)
    if "rescue" in steps:
        await_workers(store, settings, may_continue=may_continue)
    run_maintenance(store, settings, events, steps)
    for step in others:
        step()
    if "promote" in steps:
        promote_jobs(store, watched)
