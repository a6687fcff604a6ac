"""What a pass of the outbox did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class Tally:
    """Counts by word: taken, tried, asked, and what became of them.

    The words are those of DeliveryChange, and ``lost`` where another worker has the delivery.
    """

    counts: Counter[str] = field(default_factory=Counter)
    # The store's time at which the pass looked; None if it found nothing.
    now: datetime | None = None

    def __getitem__(self, word: str) -> int:
        return self.counts[word]

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        self.now = other.now or self.now
