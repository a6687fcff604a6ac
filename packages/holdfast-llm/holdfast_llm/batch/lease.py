"""A provider batch under the lease of one worker.

Every write names the fence of the lease. When the row has a newer fence, another worker owns the
batch: the write raises BatchLost and the caller stops working on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import ms, read_instant
from holdfast.document import decode, encode
from holdfast.event import BatchAlert, BatchChange, BatchChanged, BatchTrouble
from holdfast.store import Row, Statement, Statements, Tx
from holdfast_llm.batch.group import name_of
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.adapter import BatchTag, ProviderBatch

SQL = Statements("holdfast_llm.batch", "lease.sql")

_INSTANTS = (
    "creating_at",
    "answered_at",
    "fenced_at",
    "deadline_at",
    "cancel_requested_at",
    "submitted_at",
    "ended_at",
    "next_at",
    "created_at",
    "now",
)


class BatchLost(Exception):
    """Another worker owns the batch."""


@dataclass(frozen=True, slots=True)
class BatchLease:
    """A leased provider batch, as its row was when it was last read."""

    id: str
    account: str
    provider: str
    adapter_kind: str
    model: str
    group_key: str
    state: str
    items: int
    bytes: int
    content_hash: str | None
    create_attempt: int
    creating_at: datetime | None
    answered_at: datetime | None
    fenced_at: datetime | None
    rounds: int
    polls: int
    input_file_id: str | None
    provider_batch_id: str | None
    provider_status: str | None
    result_files: tuple[str, ...]
    counts: Mapping[str, int]
    error_class: str | None
    error_code: str | None
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    submitted_at: datetime | None
    ended_at: datetime | None
    next_at: datetime
    fence: int
    created_at: datetime
    now: datetime

    @classmethod
    def from_row(cls, row: Row) -> BatchLease:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        for name in _INSTANTS:
            values[name] = None if values[name] is None else read_instant(values[name])
        values["id"] = str(values["id"])
        values["result_files"] = tuple(decode(values["result_files"] or "[]"))
        values["counts"] = decode(values["counts"] or "{}")
        return cls(**values)

    @property
    def goes_back(self) -> bool:
        """Whether its jobs are being released. Such a batch is never sent."""
        return self.error_code is not None

    def name(self, environment: str, attempt: int) -> BatchTag:
        """The name of the batch at the provider for create number *attempt*."""
        return name_of(self.id, attempt, environment)

    def alert(self, what: BatchTrouble, detail: str = "", count: int = 1) -> BatchAlert:
        return BatchAlert(self.id, self.account, what, detail, count)

    def changed(self, change: BatchChange, detail: str = "") -> BatchChanged:
        return BatchChanged(self.id, self.provider, self.model, change, self.items, detail)


class BatchLeases:
    """Takes, renews and returns leases of provider batches."""

    def __init__(self, resources: BatchResources) -> None:
        self.store = resources.store
        self.events = resources.events
        self.lease_ms = ms(resources.settings.batch.lease_seconds)

    def take_to_send(self, owner: str) -> BatchLease | None:
        """Lease the outgoing batch that has been due for longest."""
        return self._take(SQL.lease_to_send, owner=owner)

    def take_to_collect(
        self, owner: str, *, only_id: str | None = None, without: Collection[str] = ()
    ) -> BatchLease | None:
        """Lease the submitted batch that has been due for longest, except those in *without*."""
        rows = [{"id": batch_id} for batch_id in without]
        return self._take(SQL.lease_to_collect, owner=owner, only_id=only_id, without=rows)

    def take_quarantined(self, owner: str, batch_id: str) -> BatchLease | None:
        return self._take(SQL.lease_quarantined, owner=owner, id=batch_id)

    def take_kept(self, owner: str, batch_id: str) -> BatchLease | None:
        """Lease a batch with kept answers."""
        return self._take(SQL.lease_kept, owner=owner, id=batch_id)

    def take_orphan_files(self, owner: str, pause_ms: int) -> BatchLease | None:
        """Lease a finished batch that may have left an input file; due again after the pause."""
        return self._take(SQL.lease_orphan_files, owner=owner, pause_ms=pause_ms)

    def _take(self, statement: Statement, **params: Any) -> BatchLease | None:
        row = self.store.maybe(statement, lease_ms=self.lease_ms, **params)
        return None if row is None else BatchLease.from_row(row)

    def hold(self, batch: BatchLease) -> BatchLease:
        """Renew the lease and read the row again. Raises BatchLost."""
        return self.store.write_one(lambda tx: self.hold_in(tx, batch))

    def hold_in(self, tx: Tx, batch: BatchLease) -> BatchLease:
        """:meth:`hold` inside a transaction, which locks the row until it ends."""
        return self._hold(tx, batch.id, batch.fence, batch.state)

    def hold_new(self, batch_id: str, fence: int) -> BatchLease:
        """Renew the lease of a batch that this worker has inserted. Raises BatchLost."""
        return self.store.write_one(lambda tx: self._hold(tx, batch_id, fence, "prepared"))

    def _hold(self, tx: Tx, batch_id: str, fence: int, state: str) -> BatchLease:
        row = tx.maybe(SQL.hold_batch, id=batch_id, fence=fence, was=state, lease_ms=self.lease_ms)
        if row is None:
            raise BatchLost(batch_id)
        return BatchLease.from_row(row)

    def put_off(
        self,
        batch: BatchLease,
        seconds: float,
        *,
        is_poll: bool = False,
        is_round: bool = False,
        seen: ProviderBatch | None = None,
        error_code: str | None = None,
        was_scanned: bool = False,
        was_answered: bool = False,
    ) -> None:
        """Return the lease. The batch is due again after *seconds*."""
        self.write(
            SQL.put_off,
            batch,
            delay_ms=ms(seconds),
            polls=int(is_poll),
            rounds=int(is_round),
            provider_status=None if seen is None else seen.status[:100],
            counts=None if seen is None else encode(counts_of(seen)),
            error_code=error_code,
            was_scanned=int(was_scanned),
            was_answered=int(was_answered),
            was=batch.state,
        )

    def give_up(self, batch: BatchLease) -> None:
        """Return the lease; the batch stays as due as it was."""
        self.write(SQL.return_lease, batch, was=batch.state)

    def quarantine(self, batch: BatchLease, code: str, *, error_class: str | None = None) -> None:
        """Hold the batch for an operator and emit the alert."""
        self.store.write_one(
            lambda tx: self.quarantine_in(tx, batch, code, error_class=error_class)
        )
        self.report_quarantined(batch, code)

    def quarantine_in(
        self, tx: Tx, batch: BatchLease, code: str, *, error_class: str | None = None
    ) -> None:
        said = {"error_class": error_class, "error_code": code, "was": batch.state}
        write_in(tx, SQL.quarantine_batch, batch, **said)

    def report_quarantined(self, batch: BatchLease, code: str) -> None:
        self.events.emit(batch.changed(BatchChange.QUARANTINED, code))
        self.events.emit(batch.alert(BatchTrouble.QUARANTINED, code))

    def write(self, statement: Statement, batch: BatchLease, **params: Any) -> None:
        """Run a statement on the batch's row. Raises BatchLost if the lease is gone."""
        if not self.store.execute(statement, id=batch.id, fence=batch.fence, **params):
            raise BatchLost(batch.id)


def write_in(tx: Tx, statement: Statement, batch: BatchLease, **params: Any) -> None:
    """Run a statement on the batch's row. Raises BatchLost if the lease is gone."""
    if not tx.affected(statement, id=batch.id, fence=batch.fence, **params):
        raise BatchLost(batch.id)


def counts_of(seen: ProviderBatch) -> Mapping[str, int]:
    """The provider's counts as they are stored."""
    told = {"total": seen.total, "succeeded": seen.succeeded, "failed": seen.failed}
    return {name: count for name, count in told.items() if count is not None}
