"""Budgets: the maximum cost per tenant and UTC day. Jobs beyond it wait without an attempt.

The spent amount is today's sum in the ledger, plus the maximum cost of open items. A job whose
model has no price cannot be counted, so a tenant with a budget does not send it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.clock import read_instant
from holdfast.config import Settings
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Statements, Tx
from holdfast_llm.batch.price import to_pico
from holdfast_llm.settings import EVERY_OTHER

SQL = Statements("holdfast_llm.batch", "cost.sql")

OVER_BUDGET = "budget"
EXCEEDS_BUDGET = "exceeds_budget"
UNPRICED = "unpriced"
"""Why a job is released: the budget of the day is spent or reserved, the job may cost more than a
whole day's budget, or its model has no price."""
BUDGET_REASONS = frozenset({OVER_BUDGET, EXCEEDS_BUDGET, UNPRICED})

# Open items may turn out cheaper, so the next submitter checks again after 15 minutes.
LOOK_AGAIN = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Want:
    """A job that is about to be sent, and its maximum cost (Prices.reserve)."""

    job_id: str
    org_id: str
    reserve_pico: int | None
    # The first job of a series of replays.
    first_id: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a job is not sent now, and how long it waits."""

    reason: str
    until: datetime


@dataclass(frozen=True, slots=True)
class _Purse:
    limit: int
    left: int
    # The time of the next check.
    until: datetime


def spent_over_budget(tx: Tx, settings: Settings, orgs: Iterable[str]) -> dict[str, datetime]:
    """The tenants without budget left, and how long their jobs wait. Empty without budgets."""
    purses = _purses(tx, settings, orgs)
    return {org_id: purse.until for org_id, purse in purses.items() if purse.left <= 0}


def hold_over_budget(tx: Tx, settings: Settings, wants: Sequence[Want]) -> dict[str, Hold]:
    """Return the jobs that exceed the budgets of their tenants, by id.

    Call it in the transaction that stores the items with their ``reserve_pico``. Until it ends, no
    other submitter decides about the same tenants.
    """
    budgeted = [want for want in wants if limit_of(settings, want.org_id) is not None]
    if not budgeted:
        return {}
    orgs = sorted({want.org_id for want in budgeted})
    tx.lock_units([f"budget:{org_id}" for org_id in orgs])
    purses = _purses(tx, settings, orgs)
    left = {org_id: purse.left for org_id, purse in purses.items()}
    held = {}
    for want in budgeted:
        cost, purse = want.reserve_pico, purses[want.org_id]
        if cost is None:
            held[want.job_id] = Hold(UNPRICED, purse.until)
        elif cost > purse.limit:
            held[want.job_id] = Hold(EXCEEDS_BUDGET, purse.until)
        elif left[want.org_id] <= 0 or cost > left[want.org_id]:
            held[want.job_id] = Hold(OVER_BUDGET, purse.until)
        else:
            left[want.org_id] -= cost
    return held


def alert_of(account: str, model: str, reason: str, jobs: int) -> BatchAlert:
    """The alert for jobs that were held for *reason*."""
    if reason == UNPRICED:
        return BatchAlert(None, account, BatchTrouble.BUDGET_UNPRICED, model, jobs)
    return BatchAlert(None, account, BatchTrouble.BUDGET_HELD, reason, jobs)


def limit_of(settings: Settings, org_id: str) -> int | None:
    """The daily budget of a tenant; None without a limit."""
    found = settings.budgets.get(org_id) or settings.budgets.get(EVERY_OTHER)
    return None if found is None or found.usd_per_day is None else to_pico(found.usd_per_day)


def _purses(tx: Tx, settings: Settings, orgs: Iterable[str]) -> dict[str, _Purse]:
    limits = {
        org_id: limit
        for org_id in sorted(set(orgs))
        if (limit := limit_of(settings, org_id)) is not None
    }
    if not limits:
        return {}
    found = {}
    for row in tx.many(SQL.sum_spent, r=[{"org_id": org_id} for org_id in limits]):
        org_id = str(row["org_id"])
        now, spent = read_instant(row["now"]), int(row["spent_pico"])
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        is_spent = spent >= limits[org_id]
        until = midnight if is_spent else min(midnight, now + LOOK_AGAIN)
        found[org_id] = _Purse(
            limits[org_id], limits[org_id] - spent - int(row["open_pico"]), until
        )
    return found
