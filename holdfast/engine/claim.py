"""Claim: take due jobs under a lease, renew it, and ask whether it still holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.engine.job import Actor, ActorType, Claimed
from holdfast.engine.quarantine import bury_broken_in
from holdfast.errors import RuleBroken
from holdfast.ids import JobId
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")


def claim_jobs(
    store: Store, *, queue: str, worker_id: str, limit: int, lease_ms: int
) -> list[Claimed]:
    """Take up to *limit* due jobs of *queue*, most urgent and oldest first."""

    def work(tx: Tx) -> list[tuple[Any, ...]]:
        return tx.values(
            SQL.claim_jobs, queue=queue, worker_id=worker_id, limit=limit, lease_ms=lease_ms
        )

    try:
        claimed = with_stages(store, [Claimed(*row) for row in store.write_one(work)])
    except RuleBroken:
        claimed = _claim_one_by_one(store, queue, worker_id, limit, lease_ms)
    # The order of RETURNING is nobody's promise.
    claimed.sort(key=lambda job: (job.priority, str(job.created_at), job.id))
    return claimed


# How many broken rows that cannot even be buried a claim looks past.
PASS_OVER = 500


def _claim_one_by_one(
    store: Store, queue: str, worker_id: str, limit: int, lease_ms: int
) -> list[Claimed]:
    """The same when one of the rows breaks a rule: it is buried, the others are taken."""
    due = store.read(lambda tx: tx.values(SQL.list_due, queue=queue, limit=limit + PASS_OVER))
    actor = Actor(ActorType.SYSTEM, worker_id)
    claimed: list[Claimed] = []
    for org_id, job_id in due:
        if len(claimed) >= limit:
            break

        def take(tx: Tx, org_id: str = org_id, job_id: str = job_id) -> list[Claimed]:
            rows = tx.values(
                SQL.claim_job, org_id=org_id, id=job_id, worker_id=worker_id, lease_ms=lease_ms
            )
            return [Claimed(*row) for row in rows]

        def bury(tx: Tx, rule: str, org_id: str = org_id, job_id: str = job_id) -> None:
            tx.affected(SQL.repair_job, org_id=org_id, id=job_id)
            for job in take(tx):
                bury_broken_in(tx, job, rule=rule, actor=actor)

        try:
            claimed += with_stages(store, store.write(take))
        except RuleBroken as exc:
            with suppress(RuleBroken):
                store.write(partial(bury, rule=exc.rule))
    return claimed


def with_stages(store: Store, claimed: list[Claimed]) -> list[Claimed]:
    """Give jobs that were under way before what their stages stored."""
    begun = [
        {"org_id": job.org_id, "id": job.id}
        for job in claimed
        if job.lease_token > 1 or job.replay_of is not None
    ]
    if not begun:
        return claimed
    stored: dict[str, list[Row]] = defaultdict(list)
    for row in store.read(lambda tx: tx.many(SQL.list_stages, jobs=begun)):
        stored[row["job_id"]].append(row)
    return [_with_stored(job, stored[job.id]) if job.id in stored else job for job in claimed]


def _with_stored(job: Claimed, rows: Iterable[Row]) -> Claimed:
    outputs: dict[str, Any] = {}
    checkpoint: Any = None
    for row in rows:
        if row["output"] is not None:
            outputs[row["stage"]] = decode(row["output"])
        elif row["stage"] == job.stage and row["checkpoint"] is not None:
            checkpoint = decode(row["checkpoint"])
    return replace(job, outputs=outputs, checkpoint=checkpoint)


@dataclass(frozen=True, slots=True)
class Renewed:
    """Which leases still hold, and which of their jobs somebody wants stopped."""

    held: frozenset[JobId]
    cancel_requested: frozenset[JobId]


def renew_leases(store: Store, jobs: Sequence[Claimed], *, lease_ms: int) -> Renewed:
    """Extend the leases that are still ours, in one statement."""
    held = [_held(job) for job in jobs]
    rows = store.write_one(lambda tx: tx.many(SQL.renew_leases, held=held, lease_ms=lease_ms))
    return Renewed(
        frozenset(row["id"] for row in rows),
        frozenset(row["id"] for row in rows if row["cancel_requested_at"] is not None),
    )


def find_canceled(store: Store, jobs: Sequence[Claimed]) -> frozenset[JobId]:
    """Of the jobs we hold, those that somebody wants stopped."""
    held = [_held(job) for job in jobs]
    rows = store.read(lambda tx: tx.many(SQL.find_canceled, held=held))
    return frozenset(row["id"] for row in rows)


def read_clock(store: Store) -> datetime:
    """The instant that decides: the store's own."""
    return read_instant(store.read(lambda tx: tx.one(SQL.read_clock))["now"])


def _held(job: Claimed) -> Mapping[str, Any]:
    return {"org_id": job.org_id, "id": job.id, "lease_token": job.lease_token}
