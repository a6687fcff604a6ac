"""Leased: a batch that one worker collects, and everything it may write about it.

Each write names the fence that the lease was given with. Where the row has another one by then, the
batch is another worker's: whoever notices leaves it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import ms, read_instant
from holdfast.document import decode, encode
from holdfast.event import BatchAlert, BatchChange, BatchChanged, BatchTrouble
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.provider.adapter import Seen

SQL = Statements("holdfast_llm.batch", "collect.sql")


class BatchLost(Exception):
    """Another worker has the batch: a calm end for this one."""


@dataclass(frozen=True, slots=True)
class Leased:
    """A batch under our lease, as it stood when we took it."""

    id: str
    account: str
    provider: str
    model: str
    state: str
    items: int
    create_attempt: int
    rounds: int
    polls: int
    input_file_id: str | None
    provider_batch_id: str | None
    provider_status: str | None
    result_files: tuple[str, ...]
    counts: Mapping[str, int]
    error_code: str | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    submitted_at: datetime | None
    ended_at: datetime | None
    next_at: datetime
    fence: int
    now: datetime

    @classmethod
    def of(cls, row: Row) -> Leased:
        values = {name: row[name] for name in cls.__slots__}
        for name in _INSTANTS:
            values[name] = None if values[name] is None else read_instant(values[name])
        values["result_files"] = tuple(decode(values["result_files"] or "[]"))
        values["counts"] = decode(values["counts"] or "{}")
        return cls(**values)

    def alert(self, what: BatchTrouble, detail: str = "", count: int = 1) -> BatchAlert:
        return BatchAlert(self.id, self.account, what, detail, count)

    def changed(self, change: BatchChange, detail: str = "") -> BatchChanged:
        return BatchChanged(self.id, self.provider, self.model, change, self.items, detail)


_INSTANTS = ("deadline_at", "cancel_requested_at", "submitted_at", "ended_at", "next_at", "now")


def lease_next(
    lane: BatchLane,
    *,
    worker_id: str,
    only_id: str | None = None,
    without: Collection[str] = (),
) -> Leased | None:
    """Take the batch that has been due for longest, if there is one; none of those *without*."""
    row = lane.store.write(
        lambda tx: tx.maybe(
            SQL.lease_batch,
            worker_id=worker_id,
            lease_ms=lease_ms(lane),
            only_id=only_id,
            without=[{"id": batch_id} for batch_id in without],
        )
    )
    return None if row is None else Leased.of(row)


def lease_ms(lane: BatchLane) -> int:
    return ms(lane.settings.batch.lease_seconds)


def hold_in(tx: Tx, lane: BatchLane, batch: Leased) -> None:
    """Keep the batch from all others until the transaction ends, and for a lease longer."""
    held = tx.affected(
        SQL.hold_batch, id=batch.id, fence=batch.fence, state=batch.state, lease_ms=lease_ms(lane)
    )
    if not held:
        raise BatchLost(batch.id)


def hold(lane: BatchLane, batch: Leased) -> None:
    lane.store.write(lambda tx: hold_in(tx, lane, batch))


def put_off(
    lane: BatchLane,
    batch: Leased,
    seconds: float,
    *,
    is_poll: bool = False,
    is_round: bool = False,
    seen: Seen | None = None,
    error_code: str | None = None,
) -> None:
    """Give the batch back, to be looked at again after that long."""
    write(
        lane,
        "put_off",
        batch,
        delay_ms=ms(seconds),
        polls=int(is_poll),
        rounds=int(is_round),
        provider_status=None if seen is None else seen.status[:100],
        counts=None if seen is None else encode(counts_of(seen)),
        error_code=error_code,
    )


def quarantine(
    lane: BatchLane, batch: Leased, code: str, *, error_class: str | None = None
) -> None:
    """Leave the batch to an operator, and say so."""
    write(lane, "quarantine_batch", batch, error_class=error_class, error_code=code)
    tell_quarantined(lane, batch, code)


def tell_quarantined(lane: BatchLane, batch: Leased, code: str) -> None:
    lane.events.emit(batch.changed(BatchChange.QUARANTINED, code))
    lane.events.emit(batch.alert(BatchTrouble.QUARANTINED, code))


def write(lane: BatchLane, statement: str, batch: Leased, **params: Any) -> None:
    """Write to the batch's row, if it is still ours."""
    lane.store.write(lambda tx: write_in(tx, statement, batch, **params))


def write_in(tx: Tx, statement: str, batch: Leased, **params: Any) -> None:
    if not tx.affected(getattr(SQL, statement), id=batch.id, fence=batch.fence, **params):
        raise BatchLost(batch.id)


def counts_of(seen: Seen) -> Mapping[str, int]:
    """What the provider counts, as it is kept."""
    told = {"total": seen.total, "succeeded": seen.succeeded, "failed": seen.failed}
    return {name: count for name, count in told.items() if count is not None}
