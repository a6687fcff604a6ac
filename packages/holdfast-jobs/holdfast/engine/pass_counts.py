"""Counts of what one pass did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class PassCounts:
    """Counts of one pass over jobs, schedules, batches or deliveries.

    *done* counts what the pass did, by verb: ``submitted`` batches, ``sent`` deliveries,
    ``enqueued`` jobs of schedules. *outcomes* and *errors* count jobs by outcome and error class.
    """

    done: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    # The time of the store at the start of the pass; None if it found nothing.
    now: datetime | None = None
    # Whether another pass would find work at once.
    more: bool = False

    @classmethod
    def counting(cls, *verbs: str, more: bool = False, **counts: int) -> PassCounts:
        """The counts of a pass that did each of *verbs* once, and *counts* of others."""
        return cls(Counter(verbs) + Counter(counts), more=more)

    def __getitem__(self, verb: str) -> int:
        return self.done[verb]

    def __add__(self, other: PassCounts) -> PassCounts:
        return PassCounts(
            self.done + other.done,
            self.outcomes + other.outcomes,
            self.errors + other.errors,
            other.now or self.now,
            self.more or other.more,
        )

    @property
    def claimed(self) -> int:
        """How many jobs the pass claimed."""
        return self.done["claimed"]

    @property
    def settled(self) -> int:
        """How many jobs the pass settled."""
        return sum(self.outcomes.values())

    def add(self, other: PassCounts) -> None:
        """Add the counts of another pass."""
        self.done.update(other.done)
        self.outcomes.update(other.outcomes)
        self.errors.update(other.errors)
        self.now = other.now or self.now
