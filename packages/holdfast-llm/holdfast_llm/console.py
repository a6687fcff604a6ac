"""Pages of the console: provider batches and the costs of model calls."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from holdfast.console.visit import LONGEST_PAGE, ConsolePages, Go, Page, PageContext, Panel, Shown
from holdfast.operate.page import NEWEST, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast_llm.operate.batches import BatchFilter
from holdfast_llm.operate.costs import By, CostFilter, CostGroup

GROUPS: dict[str, tuple[By, ...]] = {
    "day": (By.DAY,),
    "model": (By.PROVIDER, By.MODEL, By.MODE),
    "language pair": (By.LANGUAGE_PAIR,),
    "job type": (By.JOB_TYPE,),
}


def list_batches(visit: PageContext) -> Shown:
    """Batches, newest first: by default those that are not finished."""
    kept, before = visit.kept("state", "ended"), visit.maybe("before")
    batches = visit.operator.batches
    found = batches.list(
        BatchFilter(state=kept.get("state")),
        with_ended="ended" in kept or "state" in kept,
        limit=LONGEST_PAGE,
        before=NEWEST if before is None else read_id("before", before),
    )
    values = {
        "batches": found,
        "kept": kept,
        "first": before is None,
        "outstanding": batches.outstanding(),
    }
    return Shown("batches.html", "Batches", values)


def show_batch(visit: PageContext) -> Shown:
    """One batch: its items, the provider's state, and its progress."""
    after = visit.maybe("after")
    if after is not None and not (after.isascii() and after.isdigit() and len(after) < 10):
        raise InvalidAction({"after": "must be a whole number"})
    view = visit.operator.batches.show(
        visit.path["batch_id"], limit=LONGEST_PAGE, after=-1 if after is None else int(after)
    )
    items = view.items
    following = items[-1].batch_item_index if len(items) == LONGEST_PAGE else None
    values = {"view": view, "batch": view.batch, "following": following}
    return Shown("batch.html", "Batch", values)


def cancel_batch(visit: PageContext) -> Go:
    """Cancel a batch at its provider, or release its items."""
    batch_id, verb = visit.path["batch_id"], visit.path["verb"]
    batches, reason = visit.operator.batches, visit.text("reason")
    match verb:
        case "cancel":
            batches.cancel(batch_id, reason=reason)
            says = "The batch is being canceled at its provider."
        case "release":
            batches.release(batch_id, reason=reason)
            says = "The items were released. They are submitted again."
        case _:
            raise InvalidAction({"verb": "must be cancel or release"})
    return Go(f"/batches/{batch_id}", says)


def show_costs(visit: PageContext) -> Shown:
    """Costs by day, model or language pair, beside the price without batching."""
    by = visit.query.get("by", "day")
    if by not in GROUPS:
        raise InvalidAction({"by": f"must be one of {', '.join(GROUPS)}"})
    days = visit.query.get("days", "30")
    if days not in ("7", "30", "90"):
        raise InvalidAction({"days": "must be 7, 30 or 90"})
    until = visit.operator.context.app.clock.now().date()
    since = until - timedelta(days=int(days) - 1)
    report = visit.operator.costs.report(CostFilter(GROUPS[by], since, until))
    groups = list(report.groups)
    if by == "day":
        groups.sort(key=lambda group: next(iter(group.group.values()), ""), reverse=True)
    values = {
        "report": report,
        "groups": groups,
        "by": by,
        "days": days,
        "options": list(GROUPS),
        "most": max((_cost(group) for group in groups), default=Decimal(0)),
    }
    return Shown("costs.html", "Costs", values)


def money_panel(visit: PageContext) -> Panel | None:
    """Work at providers, and about what it costs at the average price of the last week."""
    if visit.org_id is not None or not visit.can_act:
        return None
    outstanding = visit.operator.batches.outstanding()
    items = outstanding["outstanding_items"]
    today = visit.operator.context.app.clock.now().date()
    week = visit.operator.costs.report(CostFilter((By.MODE,), today - timedelta(days=6), today))
    batched = [group for group in week.groups if group.group.get("mode") == "batch"]
    calls = sum(group.calls - group.unpriced for group in batched)
    spent = sum((_cost(group) for group in batched), Decimal(0))
    about = spent / calls * items if calls else None
    in_flight = f"${about:,.2f}" if about is not None else "unpriced"
    tile: dict[str, Any] = {
        "path": "/batches",
        "title": "Money in flight",
        "value": in_flight if items else "$0.00",
        "says": f"{items:,} items in {outstanding['outstanding_batches']:,} batches",
    }
    values = {"tile": tile, "week": week.total}
    return Panel("Money", "money_panel.html", values)


def _cost(group: CostGroup) -> Decimal:
    return Decimal(group.cost_usd or 0)


PAGES = ConsolePages(
    pages=(
        Page("/batches", list_batches, title="Batches", group="Work", for_all=True),
        Page("/batches/{batch_id}", show_batch),
        Page("/batches/{batch_id}/{verb}", cancel_batch, "POST"),
        Page("/costs", show_costs, title="Costs", group="Records"),
    ),
    package="holdfast_llm",
    panel=money_panel,
)
