"""How long a process has found its database available.

After an outage every worker needs a moment to renew its leases. A rescuer must know whether the
worker of an expired lease had the chance to renew it.
"""

from __future__ import annotations

import math
import time
from collections import deque

# Shorter ones are a replaced connection or a busy file.
SHORTEST_SECONDS = 0.2
# How many interruptions are remembered.
KEPT = 100


class Availability:
    """The availability of the database as seen by one process. Thread-safe."""

    def __init__(self, since: float | None = None) -> None:
        self._since = time.monotonic() if since is None else since
        self._away_since: float | None = None
        self._interruptions: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def seconds(self, interruption: float) -> float:
        """Return the seconds since the last interruption of at least *interruption* seconds."""
        now = time.monotonic()
        away_since = self._away_since
        if away_since is not None and now - away_since >= interruption:
            return 0.0
        ends = [end for end, length in list(self._interruptions) if length >= interruption]
        return now - max([*ends, self._since])

    def note_away(self) -> None:
        """Record that the database did not answer."""
        if self._away_since is None:
            self._away_since = time.monotonic()

    def note_answer(self) -> None:
        """Record that the database answered."""
        away_since = self._away_since
        if away_since is not None:
            self._away_since = None
            self.note_wait(time.monotonic() - away_since)

    def note_wait(self, seconds: float) -> None:
        """Record an answer after *seconds*: other processes may have waited as long."""
        if seconds >= SHORTEST_SECONDS:
            self._interruptions.append((time.monotonic(), seconds))


ALWAYS = Availability(-math.inf)
"""The availability of a store that does not track it."""
