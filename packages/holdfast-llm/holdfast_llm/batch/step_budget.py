"""Budgets of workflow steps: the maximum cost of all model calls of a step.

A step has spent what the ledger says about its jobs. Jobs whose calls are still open count with
their maximum cost. A budget does not reset: a job that exceeds it fails, and an operator raises the
budget and replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from holdfast.store import Statements, Tx
from holdfast.workflows.budget import BudgetedJob, StepBudget, find_budgets, to_usd
from holdfast_llm.batch.budget import UNPRICED, Hold, Want
from holdfast_llm.batch.failure import StepBudgetExceeded

SQL = Statements("holdfast_llm.batch", "cost.sql")

STEP_BUDGET = "step_budget"
"""Why a job is released: open calls of its step may use the rest of the budget."""

# Open calls of the step may turn out cheaper.
PAUSE = timedelta(minutes=1)


def refuse_over_step_budget(tx: Tx, wants: Sequence[Want]) -> dict[str, Hold | StepBudgetExceeded]:
    """The jobs that exceed the budget of their step, by id; the others are recorded as allowed.

    Call it in the transaction that stores the items, like ``hold_over_budget`` and after it.
    """
    jobs = [BudgetedJob(want.org_id, want.job_id, want.first_id or want.job_id) for want in wants]
    budgets = find_budgets(tx, jobs)
    if not budgets:
        return {}
    steps = sorted(set(budgets.values()), key=_lock_name)
    tx.lock_units([_lock_name(step) for step in steps])
    spent, reserved = _sum(tx, steps)
    now = tx.clock.now()
    refused: dict[str, Hold | StepBudgetExceeded] = {}
    for want in wants:
        step, cost = budgets.get(want.job_id), want.reserve_pico
        if step is None:
            continue
        if cost is None:
            refused[want.job_id] = Hold(UNPRICED, now + PAUSE)
        elif spent[step] + cost > step.limit_pico:
            refused[want.job_id] = _exceeded(step, spent[step], cost)
        elif spent[step] + reserved[step] + cost > step.limit_pico:
            refused[want.job_id] = Hold(STEP_BUDGET, now + PAUSE)
        else:
            reserved[step] += cost
    allowed = [
        {**_key(step), "job_id": job_id}
        for job_id, step in budgets.items()
        if job_id not in refused
    ]
    if allowed:
        tx.affected(SQL.allow_jobs, r=allowed)
    return refused


def _sum(
    tx: Tx, steps: Sequence[StepBudget]
) -> tuple[dict[StepBudget, int], dict[StepBudget, int]]:
    by_key = {tuple(_key(step).values()): step for step in steps}
    spent, reserved = {}, {}
    for row in tx.many(SQL.sum_step_spent, r=[_key(step) for step in steps]):
        step = by_key[str(row["org_id"]), str(row["workflow_id"]), row["step"]]
        spent[step], reserved[step] = int(row["spent_pico"]), int(row["open_pico"])
    return spent, reserved


def _exceeded(step: StepBudget, spent: int, cost: int) -> StepBudgetExceeded:
    return StepBudgetExceeded(
        step=step.step,
        budget_usd=to_usd(step.limit_pico),
        spent_usd=to_usd(spent),
        at_most_usd=to_usd(cost),
        remedy=f"holdfast workflows budget {step.workflow_id}",
    )


def _key(step: StepBudget) -> Mapping[str, str]:
    return {"org_id": step.org_id, "workflow_id": step.workflow_id, "step": step.step}


def _lock_name(step: StepBudget) -> str:
    return f"step_budget:{step.org_id}:{step.workflow_id}:{step.step}"
