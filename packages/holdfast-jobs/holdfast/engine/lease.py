"""Leases of claims: renewed while the job runs, and asked for by whoever looks for stale ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.engine.job import Claimed, ClaimId, claim_of
from holdfast.errors import StoreBusy
from holdfast.store import Row, Statements, Store

SQL = Statements("holdfast.engine", "job.sql")


@dataclass(frozen=True, slots=True)
class Renewed:
    """Which leases still hold, and which of their jobs somebody wants stopped."""

    held: frozenset[ClaimId]
    cancel_requested: frozenset[ClaimId]


def renew_leases(
    store: Store, jobs: Sequence[Claimed], *, lease_ms: int, seconds: float = 1.0
) -> Renewed:
    """Extend the leases that are still ours, within *seconds* and whoever has a transaction open.

    A row that another transaction holds is passed over, and SQLite's writer is not waited for:
    what is still ours is then extended beside its row.
    """
    held = [_held(job) for job in jobs]
    rows: list[Row] = []
    with suppress(StoreBusy):
        rows = store.write_soon(
            lambda tx: tx.many(SQL.renew_free_leases, held=held, lease_ms=lease_ms),
            lock_seconds=seconds,
            seconds=seconds,
            single=True,
        )
    renewed = {claim_of(row) for row in rows}
    left = [claim for claim in held if claim_of(claim) not in renewed]
    if left:
        ours = store.many(SQL.find_leases, held=left)
        if ours:
            claims = [{name: row[name] for name in _CLAIM} for row in ours]
            store.extend_leases(claims, lease_ms)
        rows = [*rows, *ours]
    return Renewed(
        frozenset(map(claim_of, rows)),
        frozenset(claim_of(row) for row in rows if row["cancel_requested_at"] is not None),
    )


def without_extended(
    store: Store, stale: Sequence[Claimed], dead_worker_id: str | None = None
) -> list[Claimed]:
    """Of claims that the database takes for stale, those that were not extended beside it.

    What a dead worker extended does not count.
    """
    if not stale:
        return []
    extended = store.extended_leases([_held(job) for job in stale])
    return [
        job for job in stale if job.claim_id not in extended or job.claimed_by == dead_worker_id
    ]


def find_canceled(store: Store, jobs: Sequence[Claimed]) -> frozenset[ClaimId]:
    """Of the claims we hold, those whose job somebody wants stopped."""
    held = [_held(job) for job in jobs]
    rows = store.many(SQL.find_canceled, held=held)
    return frozenset(map(claim_of, rows))


_CLAIM = ("org_id", "id", "lease_token")


def _held(job: Claimed) -> Mapping[str, Any]:
    return {"org_id": job.org_id, "id": job.id, "lease_token": job.lease_token}
