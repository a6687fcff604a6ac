"""Tenants: their share of the workers, backlog and limits."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.console.pages.overview import SHOWN
from holdfast.console.visit import Go, Page, PageContext, Shown, link
from holdfast.operate.page import read_id
from holdfast.operate.refusal import InvalidAction

LONGEST = 200


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant: its rule, and its jobs now."""

    org_id: str
    weight: int
    max_running: int | None
    set_by: str | None
    ready: int
    running: int
    ready_at: datetime | None
    is_capped: bool


def list_tenants(visit: PageContext) -> Shown:
    """Tenants with waiting or running jobs, or with a rule of their own."""
    wanted = visit.maybe("org_id")
    wanted = None if wanted is None else read_id("org_id", wanted.lower())
    only = visit.org_id or wanted
    overview = visit.operator.overview
    ready: Counter[str] = Counter()
    capped = set()
    since: dict[str, list[datetime]] = defaultdict(list)
    for backlog in overview.backlogs(org_id=only):
        ready[backlog.org_id] += backlog.jobs
        if backlog.is_capped:
            capped.add(backlog.org_id)
        if backlog.ready_at is not None:
            since[backlog.org_id].append(backlog.ready_at)
    running: Counter[str] = Counter()
    for one in overview.running(org_id=only):
        running[one.org_id] += one.jobs
    rules = {rule.org_id: rule for rule in visit.operator.tenants.list(limit=LONGEST)}
    known = {*ready, *running, *rules} if only is None else {only}
    rows = []
    for org_id in known:
        rule = rules.get(org_id) or visit.operator.tenants.get(org_id)
        rows.append(
            TenantRow(
                org_id,
                rule.settings.weight,
                rule.settings.max_running,
                rule.set_by,
                ready[org_id],
                running[org_id],
                min(since[org_id], default=None),
                org_id in capped,
            )
        )
    rows.sort(key=lambda row: (-row.ready, -row.running, row.org_id))
    values: dict[str, Any] = {
        "rows": rows[:LONGEST],
        "wanted": wanted,
        "is_cut": len(rows) > LONGEST,
        "busiest": max((row.ready for row in rows), default=0),
        "all_running": sum(row.running for row in rows),
        "groups": overview.dead_letters(org_id=only)[:SHOWN] if only is not None else (),
    }
    return Shown("tenants.html", "Tenants", values)


def set_tenant(visit: PageContext) -> Go:
    """Change the weight and the cap of a tenant, or reset them."""
    org_id, tenants = visit.path["org_id"], visit.operator.tenants
    here = link("/tenants", {"org_id": org_id})
    if visit.text("do") == "reset":
        done = tenants.reset(org_id, reason=visit.text("reason"))
        return Go(here, "The tenant follows the settings again." if done else "It has no rule.")
    cap = visit.text("max_running")
    if cap and not (cap.isascii() and cap.isdigit() and len(cap) < 8):
        raise InvalidAction({"max_running": "must be a whole number, or empty for no limit"})
    tenants.set(
        org_id,
        reason=visit.text("reason"),
        weight=visit.whole("weight"),
        max_running=int(cap) if cap else None,
    )
    return Go(here, "The limits of the tenant were changed.")


PAGES = (
    Page("/tenants", list_tenants, title="Tenants", group="System"),
    Page("/tenants/{org_id}", set_tenant, "POST"),
)
