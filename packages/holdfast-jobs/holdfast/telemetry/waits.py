"""How long the oldest ready job of each queue waits: the figure to scale workers by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.store import Tx
from holdfast.telemetry.gauges import BOUND, OLDEST, SQL, seconds_of

if TYPE_CHECKING:
    from holdfast.app import Holdfast


@dataclass(frozen=True, slots=True)
class QueueWait:
    """The longest wait in one queue, and how many jobs are ready in it."""

    queue: str
    wait_seconds: float
    ready: int
    is_paused: bool


def queue_waits(hf: Holdfast) -> list[QueueWait]:
    """The wait of every queue, also of those without jobs. Its cost is bounded."""
    asked = [{"name": name} for name in hf.known_queues]

    def work(tx: Tx) -> list[QueueWait]:
        tx.one(SQL.bound_reading)
        rows = tx.many(SQL.count_waiting, queues=asked, bound=BOUND, oldest=OLDEST)
        return [
            QueueWait(
                row["queue"],
                round(max(seconds_of(row["ready_ms"]), seconds_of(row["due_ms"])), 3),
                row["ready"] + row["due"],
                bool(row["is_paused"]),
            )
            for row in sorted(rows, key=lambda row: str(row["queue"]))
            if row["queue"] != "q:deadletter"
        ]

    return hf.store.read(work)
