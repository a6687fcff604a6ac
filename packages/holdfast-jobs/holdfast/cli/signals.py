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
    is_draining = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_draining
        for side in sides:
            if is_draining:
                side.stop()
            else:
                side.drain()
        is_draining = True

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
