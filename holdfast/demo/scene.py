"""How things stand in the demo, for whoever shows it."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from dataclasses import dataclass, field

from holdfast.document import decode
from holdfast.store import Row


@dataclass(slots=True)
class Hand:
    """A worker process of the demo."""

    name: str
    process: subprocess.Popen[bytes]
    held: int = 0
    held_at_death: int | None = None


@dataclass(slots=True)
class Bar:
    """How far one tenant is."""

    name: str
    planned: int
    done: int = 0
    dead: int = 0
    running: int = 0


@dataclass(slots=True)
class Scene:
    """Everything a view may show."""

    began_at: float
    bars: dict[str, Bar]
    hands: list[Hand] = field(default_factory=list)
    caption: str = ""
    news: deque[Row] = field(default_factory=lambda: deque(maxlen=400))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_at

    @property
    def ended(self) -> int:
        return sum(bar.done + bar.dead for bar in self.bars.values())

    @property
    def planned(self) -> int:
        return sum(bar.planned for bar in self.bars.values())


def detail_of(event: Row) -> str:
    """What an audit event adds to its name, in a few words."""
    detail = decode(event["detail"]) if event["detail"] is not None else {}
    if event["name"] == "job.retried":
        return f"again in {detail['delay_ms'] / 1000:.1f} s" if detail["delay_ms"] else "at once"
    return str(detail.get("error_class") or "")
