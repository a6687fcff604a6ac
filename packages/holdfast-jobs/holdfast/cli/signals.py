"""What a signal does to a command that works: the first drains it, the second stops it."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Protocol


class Drainable(Protocol):
    """Something at work. Both may be called in a signal handler, any number of times."""

    def drain(self) -> None:
        """Take nothing more, and finish what has begun."""

    def stop(self) -> None:
        """Do not even wait for what has begun."""


def drain_on_signals(*sides: Drainable) -> None:
    """Drain all *sides* at the first SIGTERM or SIGINT, and stop them at the second."""
    was_told = False

    def told(_number: int, _frame: FrameType | None) -> None:
        nonlocal was_told
        for side in sides:
            if was_told:
                side.stop()
            else:
                side.drain()
        was_told = True

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
