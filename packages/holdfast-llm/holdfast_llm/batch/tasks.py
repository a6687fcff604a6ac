"""The two runs of batch processing: submit and collect. Both serve every job type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.engine import run_log
from holdfast.engine.periodic_task import RunBudget
from holdfast.store import Statements
from holdfast_llm.batch.finish_call import count_abandoned

if TYPE_CHECKING:
    from holdfast_llm.batch.declare import Batching

SQL = Statements("holdfast_llm.batch", "tasks.sql")


class SubmitTask:
    """Submits waiting jobs to providers, and resolves batches of a crashed submitter."""

    eligible_statuses: Sequence[str] = ("queued",)

    def __init__(self, batching: Batching) -> None:
        self.batching = batching

    def count_pending(self, budget: RunBudget) -> int:
        store, profile = self.batching.app.store, budget.profile
        most = profile.max_jobs_per_run
        due = store.one(SQL.count_to_submit, most=most)["batches"]
        queues, types = budget.queues, budget.job_types
        return int(due) + run_log.count_pending(store, queues, types, profile, of_batch=True)

    def perform(self, budget: RunBudget) -> None:
        backoff = budget.profile.retry_backoff_seconds
        self.batching.service_with(backoff).submit_once(budget)


class CollectTask:
    """Polls batches, collects answers, and ends abandoned calls."""

    eligible_statuses: Sequence[str] = ("batch_submitted",)

    def __init__(self, batching: Batching) -> None:
        self.batching = batching

    def count_pending(self, budget: RunBudget) -> int:
        store, most = self.batching.app.store, budget.profile.max_jobs_per_run
        due = store.one(SQL.count_to_collect, most=most)["batches"]
        return int(due) + count_abandoned(store)

    def perform(self, budget: RunBudget) -> None:
        service = self.batching.service_with(budget.profile.retry_backoff_seconds)
        service.finish_abandoned_calls()
        service.collect_once(budget)
