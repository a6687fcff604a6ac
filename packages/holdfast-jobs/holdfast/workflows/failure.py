"""The failure of a job that waited too long."""

from __future__ import annotations

from holdfast.errors import Permanent


class WaitTimedOut(Permanent):
    """No event arrived before the timeout of `job.wait_for`.

    Fault: the sender of the event is late. Remedy: catch it in the handler, or wait longer.
    """

    error_class = "WAIT_TIMED_OUT"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"No event {name!r} arrived in time.", event=name)
