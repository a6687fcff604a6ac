"""What one pass did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class PassCounts:
    """Counts of one pass over jobs, batches or deliveries.

    *done* counts what the pass did, by verb: ``submitted`` batches, ``sent`` deliveries.
    *outcomes* and *errors* count jobs by outcome and error class.
    """

    done: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    # The store's time at which the pass looked; None if it found nothing.
    now: datetime | None = None

    @classmethod
    def of(cls, *verbs: str) -> PassCounts:
        """The counts of a pass that did each of these once."""
        return cls(Counter(verbs))

    def __getitem__(self, verb: str) -> int:
        return self.done[verb]

    def add(self, other: PassCounts) -> None:
        self.done.update(other.done)
        self.outcomes.update(other.outcomes)
        self.errors.update(other.errors)
        self.now = other.now or self.now
