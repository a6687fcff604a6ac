"""Accounts that cannot be used in this process because a credential or a setting is missing.

Their jobs are released without an attempt. Another process may have the account.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast.engine.job import Released
from holdfast.errors import ConfigError
from holdfast.event import BatchAlert, BatchTrouble, Events
from holdfast_llm.batch.release import NO_ACCOUNT


@dataclass(slots=True)
class MissingAccounts:
    """How many jobs were released for each provider, and what is missing there."""

    jobs: Counter[str] = field(default_factory=Counter)
    errors: dict[str, ConfigError] = field(default_factory=dict)

    def release(self, provider: str, error: ConfigError, pause_ms: int) -> Released:
        """The outcome of a job whose account is missing."""
        self.jobs[provider] += 1
        self.errors.setdefault(provider, error)
        return Released(NO_ACCOUNT, pause_ms)

    def add(self, other: MissingAccounts) -> None:
        self.jobs.update(other.jobs)
        self.errors = other.errors | self.errors

    def report(self, events: Events) -> None:
        """Emit one alert per provider. The key of an account needs its credential."""
        for provider, jobs in sorted(self.jobs.items()):
            events.emit(BatchAlert(None, provider, BatchTrouble.ACCOUNT_UNUSABLE, NO_ACCOUNT, jobs))
