"""What a run may do instead of performing jobs: hand them to a provider, or bring answers back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.clock import Clock
from holdfast.config import RunProfile
from holdfast.engine.ledger import RunCounts


@dataclass(slots=True)
class Assignment:
    """One run of an errand under way: what it may do, and what it has done so far.

    The errand counts what it takes in ``counts.claimed`` before it works on it, and looks at
    *goes_on* between two steps.
    """

    run_id: str
    queues: Sequence[str]
    job_types: Sequence[str]
    profile: RunProfile
    clock: Clock
    counts: RunCounts = field(default_factory=RunCounts)
    deadline: float = float("inf")
    was_stopped: bool = False
    _was_late: bool = False

    @property
    def left(self) -> int:
        """How many jobs may still be taken."""
        return self.profile.max_jobs_per_run - self.counts.claimed

    @property
    def is_late(self) -> bool:
        """Whether the time of the run is over; stays so once somebody has looked."""
        self._was_late = self._was_late or self.clock.monotonic() >= self.deadline
        return self._was_late

    @property
    def goes_on(self) -> bool:
        """Whether another step may begin."""
        return not (self.was_stopped or self.is_late)


class Errand(Protocol):
    """Something that runs do for an application."""

    # The states of the jobs that it takes, as the ledger keeps them.
    eligible_statuses: Sequence[str]

    def count_pending(self, assignment: Assignment) -> int:
        """How much there is to do, counted no further than one run may take."""

    def perform(self, assignment: Assignment) -> None:
        """Do it, until nothing is left or the assignment is over."""
