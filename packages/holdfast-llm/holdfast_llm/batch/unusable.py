"""Accounts that cannot be used here, for want of a credential or a setting: nobody's job pays.

Another process may have what is missing, or somebody brings it. Until then the jobs wait.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast.engine.job import Released
from holdfast.errors import ConfigError
from holdfast.event import BatchAlert, BatchTrouble
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.release import NO_ACCOUNT, overflow_ms


@dataclass(slots=True)
class Unusable:
    """How many jobs went back for which provider, and what is missing there."""

    jobs: Counter[str] = field(default_factory=Counter)
    missing: dict[str, ConfigError] = field(default_factory=dict)

    def give_back(self, lane: BatchLane, provider: str, missing: ConfigError) -> Released:
        """The outcome of a job that waits for its account."""
        self.jobs[provider] += 1
        self.missing.setdefault(provider, missing)
        return Released(NO_ACCOUNT, overflow_ms(lane))

    def add(self, other: Unusable) -> None:
        self.jobs.update(other.jobs)
        self.missing = other.missing | self.missing

    def tell(self, lane: BatchLane) -> None:
        """Tell of each provider once. The key of an account is not known without its credential."""
        for provider, jobs in sorted(self.jobs.items()):
            lane.events.emit(
                BatchAlert(None, provider, BatchTrouble.ACCOUNT_UNUSABLE, NO_ACCOUNT, jobs)
            )
