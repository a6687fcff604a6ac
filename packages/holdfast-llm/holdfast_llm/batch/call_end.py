"""The end of calls: written with the outcome of their jobs, or by whoever finds them open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import write_instant
from holdfast.engine.handler import Keep
from holdfast.engine.job import Claimed
from holdfast.errors import ConfigError
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Row, Statements, Store, Tx
from holdfast_llm.batch.circuit import close_circuit
from holdfast_llm.batch.cost import CallEntry, CallKind, record_calls
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.verdict import ItemState, Verdict

SQL = Statements("holdfast_llm.batch", "call.sql")

SWEEP_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Called:
    """What a call leaves to be written with the outcome of its job."""

    batch_id: str
    place: int
    verdict: Verdict
    entry: CallEntry
    prices: Prices
    # What the application keeps, if its job is completed.
    kept: Any = None

    @property
    def end(self) -> dict[str, Any]:
        """The end of the item."""
        return _end(
            self.batch_id,
            self.place,
            self.verdict.state,
            self.verdict.error_class,
            self.verdict.error_code,
            self.entry.provider_request_id,
            self.entry.occurred_at,
        )


def keeping(job_type: str, keep: Keep | None) -> Keep:
    """Writes the end of calls, and hands on what the application keeps."""

    def write(tx: Tx, pairs: Sequence[tuple[Claimed, Any]]) -> None:
        called = [value for _, value in pairs if isinstance(value, Called)]
        if called:
            end_calls(tx, called)
        own = [(job, value.kept if isinstance(value, Called) else value) for job, value in pairs]
        own = [(job, value) for job, value in own if value is not None]
        if not own:
            return
        if keep is None:
            raise ConfigError(f"Job type {job_type!r} keeps something and declares no keep=.")
        keep(tx, own)

    return write


def end_calls(tx: Tx, called: Sequence[Called]) -> None:
    """End the items of calls, put them into the ledger, and close the groups that are complete."""
    tx.affected(SQL.end_items, ends=[one.end for one in called])
    record_calls(tx, called[0].prices, [one.entry for one in called])
    groups = sorted({one.batch_id for one in called})
    tx.affected(SQL.close_groups, ended=[{"batch_id": batch_id} for batch_id in groups])
    for account in sorted({one.entry.account for one in called if _answered(one)}):
        close_circuit(tx, account)


def _answered(called: Called) -> bool:
    return called.verdict.state is ItemState.SUCCEEDED


# -- calls that nobody ended


def end_abandoned(lane: BatchLane, *, limit: int = SWEEP_LIMIT) -> int:
    """End calls whose worker is gone and whose job went on without them. Bounded, safe twice."""

    def work(tx: Tx) -> Counter[str]:
        found = end_unknown(tx, lane, tx.many(SQL.list_abandoned, limit=limit))
        unclosed = tx.many(SQL.list_unclosed, limit=limit)
        if unclosed:
            tx.affected(SQL.close_groups, ended=unclosed)
        return found

    if not count_abandoned(lane.store):
        return 0
    found = lane.store.write(work)
    tell_unknown(lane, found)
    return found.total()


def count_abandoned(store: Store) -> int:
    """Whether there is something to end; most looks find nothing."""

    def look(tx: Tx) -> int:
        return len(tx.many(SQL.list_abandoned, limit=1)) + len(tx.many(SQL.list_unclosed, limit=1))

    return store.read(look)


def end_unknown(tx: Tx, lane: BatchLane, rows: Sequence[Row]) -> Counter[str]:
    """Record that nobody knows what became of these calls; how many at which account."""
    if not rows:
        return Counter()
    ends = [
        _end(row["batch_id"], row["batch_item_index"], ItemState.UNKNOWN, None, "no_answer")
        for row in rows
    ]
    ended = {
        (str(row["batch_id"]), row["batch_item_index"]) for row in tx.many(SQL.end_items, ends=ends)
    }
    entries = [
        CallEntry(
            org_id=str(row["org_id"]),
            batch_id=str(row["batch_id"]),
            batch_item_index=row["batch_item_index"],
            provider_batch_id="",
            kind=CallKind.UNKNOWN,
            account=row["account"],
            group_key=row["group_key"],
            job_id=str(row["job_id"]),
            job_type=row["job_type"],
            attempt=row["attempt"],
            at_most_pico=row["reserve_pico"],
        )
        for row in rows
        if (str(row["batch_id"]), row["batch_item_index"]) in ended
    ]
    record_calls(tx, Prices(lane.settings.prices), entries)
    groups = sorted({batch_id for batch_id, _ in ended})
    if groups:
        tx.affected(SQL.close_groups, ended=[{"batch_id": batch_id} for batch_id in groups])
    return Counter(entry.account for entry in entries)


def _end(
    batch_id: str,
    place: int,
    state: ItemState,
    error_class: str | None,
    error_code: str | None,
    provider_request_id: str | None = None,
    finished_at: datetime | None = None,
) -> dict[str, Any]:
    return {
        "group_id": str(batch_id),
        "place": place,
        "state": state,
        "error_class": error_class,
        "error_code": error_code,
        "provider_request_id": provider_request_id,
        "finished_at": None if finished_at is None else write_instant(finished_at),
    }


def tell_unknown(lane: BatchLane, calls: Counter[str], reason: str = "no_answer") -> None:
    """Tell of calls that may have been paid for, by account."""
    for account, count in sorted(calls.items()):
        lane.events.emit(BatchAlert(None, account, BatchTrouble.UNKNOWN_CALL, reason, count))
