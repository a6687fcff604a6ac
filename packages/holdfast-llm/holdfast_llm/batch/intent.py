"""Intent: a batch on its way to a provider, under the lease of one worker.

Each write names the fence that the lease was given with. Where that is not the row's fence, another
worker has the batch: whoever notices leaves it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.clock import ms, read_instant
from holdfast.event import BatchAlert, BatchChange, BatchChanged, BatchTrouble
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch.group import name_of
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import BatchLost, lease_ms
from holdfast_llm.provider.adapter import Name

SQL = Statements("holdfast_llm.batch", "submit.sql")


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch under our lease, as it stood when we last looked."""

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
    input_file_id: str | None
    provider_batch_id: str | None
    error_class: str | None
    error_code: str | None
    fence: int
    created_at: datetime
    now: datetime

    @classmethod
    def of(cls, row: Row) -> Intent:
        values: dict[str, Any] = {name: row[name] for name in cls.__slots__}
        for name in ("creating_at", "answered_at", "fenced_at", "created_at", "now"):
            values[name] = None if values[name] is None else read_instant(values[name])
        return cls(**values)

    @property
    def goes_back(self) -> bool:
        """Whether its jobs are on their way back: then it is never sent."""
        return self.error_code is not None

    def name(self, lane: BatchLane, attempt: int) -> Name:
        return name_of(self.id, attempt, lane.settings.batch.environment)

    def alert(self, what: BatchTrouble, detail: str = "", count: int = 1) -> BatchAlert:
        return BatchAlert(self.id, self.account, what, detail, count)

    def changed(self, change: BatchChange, detail: str = "") -> BatchChanged:
        return BatchChanged(self.id, self.provider, self.model, change, self.items, detail)


def lease_next(lane: BatchLane, *, owner: str) -> Intent | None:
    """Take the batch on its way out that has been due for longest, if there is one."""
    row = lane.store.write(
        lambda tx: tx.maybe(SQL.lease_intent, owner=owner, lease_ms=lease_ms(lane))
    )
    return None if row is None else Intent.of(row)


def hold(lane: BatchLane, batch_id: str, fence: int) -> Intent:
    """The batch as it stands, and ours for another lease. Raises BatchLost."""
    return lane.store.write(lambda tx: hold_in(tx, lane, batch_id, fence))


def hold_in(tx: Tx, lane: BatchLane, batch_id: str, fence: int) -> Intent:
    row = tx.maybe(SQL.hold_intent, id=batch_id, fence=fence, lease_ms=lease_ms(lane))
    if row is None:
        raise BatchLost(batch_id)
    return Intent.of(row)


def put_off(
    lane: BatchLane,
    intent: Intent,
    seconds: float,
    *,
    is_round: bool = False,
    was_scanned: bool = False,
    was_answered: bool = False,
) -> None:
    """Give the batch back, to be looked at again after that long."""
    write(
        lane,
        "put_intent_off",
        intent,
        delay_ms=ms(seconds),
        rounds=int(is_round),
        was_scanned=int(was_scanned),
        was_answered=int(was_answered),
    )


def write(lane: BatchLane, statement: str, intent: Intent, **params: Any) -> None:
    """Write to the batch's row. Raises BatchLost if it is not ours any more."""
    lane.store.write(lambda tx: write_in(tx, statement, intent, **params))


def write_in(tx: Tx, statement: str, intent: Intent, **params: Any) -> None:
    if not tx.affected(getattr(SQL, statement), id=intent.id, fence=intent.fence, **params):
        raise BatchLost(intent.id)
