"""For how long a process has found its database available.

After an interruption every worker needs a moment to renew its leases. Whoever takes away a lease
that ran out has to know whether its worker could have renewed it.
"""

from __future__ import annotations

import math
import time
from collections import deque

# Shorter ones are a connection that was replaced at once, or a busy file.
SHORTEST_SECONDS = 0.2
# Of the last so many interruptions the lengths are known.
KEPT = 100


class Availability:
    """What one process has seen of its database, from any thread."""

    def __init__(self, since: float | None = None) -> None:
        self._since = time.monotonic() if since is None else since
        self._away_since: float | None = None
        self._interruptions: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def seconds(self, interruption: float) -> float:
        """For how long there was no interruption of this length or a longer one."""
        now = time.monotonic()
        away_since = self._away_since
        if away_since is not None and now - away_since >= interruption:
            return 0.0
        ends = [end for end, length in list(self._interruptions) if length >= interruption]
        return now - max([*ends, self._since])

    def note_away(self) -> None:
        """The database did not answer."""
        if self._away_since is None:
            self._away_since = time.monotonic()

    def note_answer(self) -> None:
        """The database answered."""
        away_since = self._away_since
        if away_since is not None:
            self._away_since = None
            self.note_wait(time.monotonic() - away_since)

    def note_wait(self, seconds: float) -> None:
        """The database answered after so long: others may have waited for it as long."""
        if seconds >= SHORTEST_SECONDS:
            self._interruptions.append((time.monotonic(), seconds))


ALWAYS = Availability(-math.inf)
"""That of a store which does not look."""
