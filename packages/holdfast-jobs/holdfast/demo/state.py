"""What the views show while the demo runs."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.demo.acts import ActState
from holdfast.demo.app import FIRMS, FLOOD, QUIET
from holdfast.demo.waits import wait_of
from holdfast.document import decode
from holdfast.engine.job import State
from holdfast.store import Row

ODD = ("job.failed", "job.retried", "job.deadlettered", "job.lease_lost")


@dataclass(slots=True)
class WorkerProcess:
    """A worker process of the demo."""

    name: str
    process: subprocess.Popen[bytes]
    held: int = 0
    held_at_death: int | None = None


@dataclass(slots=True)
class Bar:
    """The jobs of one tenant. Waits are in seconds, from enqueue to claim."""

    name: str
    waiting: int = 0
    running: int = 0
    done: int = 0
    dead: int = 0
    last_wait: float = 0.0
    worst_wait: float = 0.0


@dataclass(slots=True)
class DemoState:
    """Everything that a view shows."""

    began_at: float
    bars: dict[str, Bar] = field(
        default_factory=lambda: {firm.org_id: Bar(firm.name) for firm in FIRMS}
    )
    workers: list[WorkerProcess] = field(default_factory=list)
    acts: dict[str, ActState] = field(default_factory=dict)
    caption: str = ""
    news: deque[Row] = field(default_factory=lambda: deque(maxlen=400))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_at

    @property
    def ended(self) -> int:
        return sum(bar.done + bar.dead for bar in self.bars.values())

    @property
    def flood(self) -> Bar:
        return self.bars[FLOOD.org_id]

    @property
    def quiet(self) -> list[Bar]:
        return [self.bars[firm.org_id] for firm in QUIET]

    def update(self, states: Iterable[Row], held: Iterable[Row], news: Sequence[Row]) -> None:
        """Set the counts from rows of the database."""
        counts = Counter({(row["org_id"], row["state"]): row["jobs"] for row in states})
        for org_id, bar in self.bars.items():
            bar.waiting = counts[org_id, State.QUEUED]
            bar.running = counts[org_id, State.PROCESSING]
            bar.done = counts[org_id, State.COMPLETED]
            bar.dead = counts[org_id, State.FAILED]
        claimed = {row["claimed_by"]: row["jobs"] for row in held}
        for worker in self.workers:
            worker.held = claimed.get(worker.name, 0)
        for event in news:
            if event["name"] == "job.started" and event["attempt"] == 1:
                bar = self.bars[event["org_id"]]
                bar.last_wait = wait_of(event)
                bar.worst_wait = max(bar.worst_wait, bar.last_wait)
            # The ordinary events of the flood would hide those of the other tenants.
            if event["org_id"] != FLOOD.org_id or event["name"] in ODD:
                self.news.append(event)


def detail_of(event: Row) -> str:
    """What an audit event adds to its name, in a few words."""
    detail = decode(event["detail"]) if event["detail"] is not None else {}
    if event["name"] == "job.retried":
        return f"again in {detail['delay_ms'] / 1000:.1f} s" if detail["delay_ms"] else "at once"
    return str(detail.get("error_class") or "")
