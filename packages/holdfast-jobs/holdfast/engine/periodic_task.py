"""Periodic tasks: work of a bounded run other than executing jobs.

For example, submitting jobs to a provider as a batch, or collecting its replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.clock import Clock
from holdfast.config import RunProfile
from holdfast.engine.run_log import RunCounts


@dataclass(slots=True)
class RunBudget:
    """The limits of one run of a periodic task, and how much is used.

    The task adds jobs to ``counts.claimed`` before it processes them, and checks *may_continue*
    between two steps.
    """

    run_id: str
    queues: Sequence[str]
    job_types: Sequence[str]
    profile: RunProfile
    clock: Clock
    counts: RunCounts = field(default_factory=RunCounts)
    deadline: float = float("inf")
    stop_requested: bool = False
    _was_late: bool = False

    @property
    def left(self) -> int:
        """How many more jobs the run may take."""
        return self.profile.max_jobs_per_run - self.counts.claimed

    @property
    def is_late(self) -> bool:
        """Whether the run time is over. Once True, it stays True."""
        self._was_late = self._was_late or self.clock.monotonic() >= self.deadline
        return self._was_late

    @property
    def may_continue(self) -> bool:
        """Whether another step may start."""
        return not (self.stop_requested or self.is_late)


class PeriodicTask(Protocol):
    """Work that a bounded run does for an application."""

    # The states of the jobs that it takes, as the run log stores them.
    eligible_statuses: Sequence[str]

    def count_pending(self, budget: RunBudget) -> int:
        """The amount of pending work, counted up to the limit of one run."""

    def perform(self, budget: RunBudget) -> None:
        """Process pending work until nothing is left or the budget is used up."""
