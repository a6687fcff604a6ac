"""Constraints that fail because another transaction moved the same job first."""

from __future__ import annotations

from holdfast.errors import RuleBroken, StoreBusy

# Raised by the triggers of transitions, when another transaction settled or claimed the job first.
JOB_MOVED = "job_moved"
# The keys of facts and claims. A row with the same key is that of a transaction that was faster.
RECORDED_ONCE = frozenset(
    {"job_attempt_pkey", "job_outcome_pkey", "job_running_pkey", "job_submitted_pkey"}
)
# After so many reruns it is no race: rows that were changed by hand contradict each other.
MOST_RACES = 5


class LostRace(StoreBusy):
    """Another transaction recorded the same fact of a job. A rerun finds it."""

    def __init__(self, refusal: RuleBroken) -> None:
        super().__init__(f"Another transaction moved a job: {refusal}. Try again.")
        self.refusal = refusal


def error_of(rule: str, message: str) -> RuleBroken | StoreBusy:
    """The error for a violated constraint: StoreBusy if the transaction is worth a rerun."""
    if rule == JOB_MOVED:
        return StoreBusy(f"Another transaction moved a job: {message}. Try again.")
    broken = RuleBroken(rule, message)
    return LostRace(broken) if rule in RECORDED_ONCE else broken
