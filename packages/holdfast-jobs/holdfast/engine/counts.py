"""What one pass did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Counts:
    """What one pass did."""

    claimed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def settled(self) -> int:
        return sum(self.outcomes.values())
