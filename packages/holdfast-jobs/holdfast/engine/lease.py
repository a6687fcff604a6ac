"""Renew the leases of claimed jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from holdfast.clock import read_instant
from holdfast.engine.job import Claimed, ClaimId, claim_of, claim_row
from holdfast.errors import StoreBusy
from holdfast.store import Row, Statements, Store

SQL = Statements("holdfast.engine", "job.sql")

_CLAIM = ("org_id", "id", "lease_token")


@dataclass(frozen=True, slots=True)
class Renewed:
    """The leases that are still held, and the jobs for which a cancel was requested."""

    lease_held: frozenset[ClaimId]
    cancel_requested: frozenset[ClaimId]


def renew_leases(
    store: Store, jobs: Sequence[Claimed], *, lease_ms: int, seconds: float = 1.0
) -> Renewed:
    """Extend the leases that are still held, within *seconds*, even if transactions are open.

    A row that another transaction has locked is skipped, and the writer lock of SQLite is not
    awaited: leases that are still held are then extended outside the job row.
    """
    held = [claim_row(job) for job in jobs]
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
    asked = store.many(SQL.find_canceled, held=held) if rows else []
    return Renewed(
        frozenset(map(claim_of, rows)),
        frozenset(map(claim_of, asked)),
    )


def read_clock(store: Store) -> datetime:
    """The current time of the store, which decides leases and deadlines."""
    return read_instant(store.one(SQL.read_clock)["now"])
