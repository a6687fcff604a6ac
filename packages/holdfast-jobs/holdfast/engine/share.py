"""How several queues share a worker: by weight, and none of them for ever behind another. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

# A take is cut into so many pieces at most, so that fifty busy queues do not mean fifty claims.
PIECES = 8


@dataclass(slots=True)
class Shares:
    """What each queue has had, in jobs over its weight. The one that had least goes next."""

    had: dict[str, float] = field(default_factory=dict)
    # Where those that waited the last time stood; it never goes back.
    level: float = 0.0
    _waited: frozenset[str] = frozenset()

    def split(
        self, wanted: int, waiting: Collection[str], weights: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        """How many of *wanted* jobs to ask of each waiting queue, in the order to ask."""
        if not waiting:
            return []
        self._catch_up(waiting)
        after = {queue: self.had[queue] for queue in waiting}
        asked: dict[str, int] = {}
        piece = max(1, wanted // PIECES)
        while wanted > 0:
            # Equal claims go to the heavier queue, then by name: the same state, the same split.
            queue = min(after, key=lambda name: (after[name], -weights.get(name, 1), name))
            size = min(piece, wanted)
            asked[queue] = asked.get(queue, 0) + size
            after[queue] += size / weights.get(queue, 1)
            wanted -= size
        return list(asked.items())

    def spend(self, queue: str, jobs: int, weights: Mapping[str, int]) -> None:
        """Note what a queue was given."""
        self.had[queue] = self.had.get(queue, 0.0) + jobs / weights.get(queue, 1)

    def _catch_up(self, waiting: Collection[str]) -> None:
        """A queue that was empty has saved up nothing, and is let off nothing that it had."""
        stayed = [self.had[queue] for queue in waiting if queue in self._waited]
        self.level = max(self.level, min(stayed, default=self.level))
        for queue in waiting:
            self.had[queue] = max(self.had.get(queue, 0.0), self.level)
        self._waited = frozenset(waiting)
