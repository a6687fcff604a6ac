"""Budgets of workflow steps: the maximum cost of the model calls of a step.

This package stores them. An extension that records costs (``Extension.enforces_budgets``) reads
them with :func:`find_budgets` before each call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from holdfast.store import Statements, Tx

SQL = Statements("holdfast.workflows", "workflow.sql")

PICO = 10**12
"""Units per dollar."""


@dataclass(frozen=True, slots=True)
class BudgetedJob:
    """A job that is about to cost money. *first_id* is the first job of a series of replays."""

    org_id: str
    job_id: str
    first_id: str


@dataclass(frozen=True, slots=True)
class StepBudget:
    """A step of a workflow, and its maximum cost in trillionths of a dollar."""

    org_id: str
    workflow_id: str
    step: str
    limit_pico: int


def find_budgets(tx: Tx, jobs: Iterable[BudgetedJob]) -> dict[str, StepBudget]:
    """The budgets of the steps that *jobs* belong to, by job id. Other jobs are left out."""
    wanted = [
        {"org_id": job.org_id, "job_id": job.job_id, "first_id": job.first_id} for job in jobs
    ]
    return {
        str(row["job_id"]): StepBudget(
            str(row["org_id"]), str(row["workflow_id"]), row["step"], int(row["budget_pico"])
        )
        for row in (tx.many(SQL.find_budgets, jobs=wanted) if wanted else ())
    }


def to_pico(usd: Decimal) -> int:
    """Convert dollars to whole trillionths."""
    return int(usd * PICO)


def to_usd(pico: int) -> str:
    """Convert trillionths to dollars, with all digits and at least two decimals."""
    whole, rest = divmod(pico, PICO)
    return f"{whole}.{f'{rest:012d}'.rstrip('0'):0<2}"
