"""The signal of a handler that waits for an event."""

from __future__ import annotations

from holdfast.errors import Snooze


class AwaitEvent(Snooze):
    """Run the job again when its event has arrived, at the latest after *delay*."""
