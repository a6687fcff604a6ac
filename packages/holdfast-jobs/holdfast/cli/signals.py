"""Signal handling of commands: the first signal drains, the second stops."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Protocol


class Drainable(Protocol):
    """A running part of a command. Both methods are safe in signal handlers and may repeat."""

    def drain(self) -> None:
        """Claim nothing more, and finish started work."""

    def stop(self) -> None:
        """Stop without waiting for started work."""


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
