"""The end of direct calls, stored with the outcome of their jobs or by a maintenance pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import Clock, write_instant
from holdfast.errors import ConfigError
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Row, Statement, Statements, Store, Tx
from holdfast_llm.batch.cost import CallEntry, CallKind, ledger_rows, record_calls
from holdfast_llm.batch.item_outcome import ItemOutcome, ItemState
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.resources import BatchResources

SQL = Statements("holdfast_llm.batch", "call.sql")
COST = Statements("holdfast_llm.batch", "cost.sql")

SWEEP_LIMIT = 500


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """The rows of a call to store with the outcome of its job."""

    batch_id: str
    place: int
    item_outcome: ItemOutcome
    entry: CallEntry
    prices: Prices

    @property
    def end(self) -> dict[str, Any]:
        """The row that ends the item."""
        return _end(
            self.batch_id,
            self.place,
            self.item_outcome.state,
            self.item_outcome.error_class,
            self.item_outcome.error_code,
            self.entry.provider_request_id,
            self.entry.occurred_at,
        )


# The statements that store the end of calls with the outcomes of their jobs: the items, the ledger,
# the completed groups, and the circuits of accounts that answered.
CALL_STORES = (SQL.end_items, COST.record_calls, SQL.close_groups, COST.close_circuits)


def with_call_stores(job_type: str, own: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements of a job type with direct calls: CALL_STORES, then its own."""
    taken = {name for statement in CALL_STORES for name in statement.row_sets}
    for statement in own:
        if clash := sorted(statement.row_sets & taken):
            raise ConfigError(
                f"Job type {job_type!r}: the row set {clash[0]!r} of stores= is used by batch"
                " processing itself. Choose another name."
            )
    return (*CALL_STORES, *own)


def rows_of(called: FinishedCall, clock: Clock) -> dict[str, list[Any]]:
    """The parameters of CALL_STORES for one call."""
    row, shared = ledger_rows(called.prices, called.entry, clock.now())
    is_answered = called.item_outcome.state is ItemState.SUCCEEDED
    return {
        "ends": [called.end],
        "r": [row],
        "g": [shared],
        "ended": [{"batch_id": str(called.batch_id)}],
        "answered": [{"account": called.entry.account}] if is_answered else [],
    }


class CallEndings:
    """Ends direct calls whose worker is gone."""

    def __init__(self, resources: BatchResources) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.events = resources.events

    # -- abandoned calls

    def end_abandoned(self, *, limit: int = SWEEP_LIMIT) -> int:
        """End calls whose worker is gone and whose job has moved on. Bounded and idempotent."""

        def work(tx: Tx) -> Counter[str]:
            found = self.end_unknown(tx, tx.many(SQL.list_abandoned, limit=limit))
            unclosed = tx.many(SQL.list_unclosed, limit=limit)
            if unclosed:
                tx.affected(SQL.close_groups, ended=unclosed)
            return found

        if not count_abandoned(self.store):
            return 0
        found = self.store.write(work)
        self.report_unknown(found)
        return found.total()

    def end_unknown(self, tx: Tx, rows: Sequence[Row]) -> Counter[str]:
        """Record these calls with unknown outcome; return the number per account."""
        if not rows:
            return Counter()
        ends = [
            _end(row["batch_id"], row["batch_item_index"], ItemState.UNKNOWN, None, "no_answer")
            for row in rows
        ]
        ended = {
            (str(row["batch_id"]), row["batch_item_index"])
            for row in tx.many(SQL.end_items, ends=ends)
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
        record_calls(tx, self.resources.prices, entries)
        groups = sorted({batch_id for batch_id, _ in ended})
        if groups:
            tx.affected(SQL.close_groups, ended=[{"batch_id": batch_id} for batch_id in groups])
        return Counter(entry.account for entry in entries)

    def report_unknown(self, calls: Counter[str], reason: str = "no_answer") -> None:
        """Emit alerts for calls that may have been paid for, by account."""
        for account, count in sorted(calls.items()):
            self.events.emit(BatchAlert(None, account, BatchTrouble.UNKNOWN_CALL, reason, count))


def count_abandoned(store: Store) -> int:
    """Count abandoned calls; usually there are none."""

    def look(tx: Tx) -> int:
        return len(tx.many(SQL.list_abandoned, limit=1)) + len(tx.many(SQL.list_unclosed, limit=1))

    return store.read(look)


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
