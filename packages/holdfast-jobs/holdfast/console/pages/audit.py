"""The audit: search it, and verify its seals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.actor import Role
from holdfast.console.visit import LONGEST_PAGE, Page, PageContext, Shown
from holdfast.operate.audit import NEWEST, AuditFilter
from holdfast.operate.refusal import InvalidAction

FIELDS = ("org_id", "job_id", "actor", "name", "correlation_id", "since", "until")


def search_audit(visit: PageContext) -> Shown:
    """Events, newest first. The filter is the query of the address."""
    return _page(visit)


def verify_audit(visit: PageContext) -> Shown:
    """Check the seals, and count the events that they do not cover."""
    audit = visit.operator.audit
    if not hasattr(audit, "verify"):
        raise InvalidAction({"audit": "is not sealed; enable the extension seal"})
    tampered = list(audit.verify())
    return _page(visit, {"tampered": tampered, "cover": audit.cover()})


def _page(visit: PageContext, checked: dict[str, Any] | None = None) -> Shown:
    kept = visit.kept(*FIELDS)
    before = visit.maybe("before")
    events: Any = ()
    needs_tenant = visit.org_id is None and visit.role is Role.OPERATOR and "org_id" not in kept
    if not needs_tenant:
        wanted = AuditFilter(
            kept.get("org_id"),
            kept.get("job_id"),
            kept.get("actor"),
            kept.get("correlation_id"),
            None,
            kept.get("name"),
            _day(kept, "since"),
            _day(kept, "until", days=1),
        )
        events = visit.operator.audit.list(
            wanted, limit=LONGEST_PAGE, before=NEWEST if before is None else _cursor(before)
        )
    values = {
        "events": events,
        "kept": kept,
        "first": before is None,
        "checked": checked,
        "needs_tenant": needs_tenant,
        "can_verify": visit.can_act and hasattr(visit.operator.audit, "verify"),
    }
    return Shown("audit.html", "Audit", values)


def _cursor(before: str) -> int:
    if not (before.isascii() and before.isdigit() and len(before) < 19):
        raise InvalidAction({"before": "must be the value of next from the previous page"})
    return int(before)


def _day(kept: dict[str, str], name: str, *, days: int = 0) -> datetime | None:
    if name not in kept:
        return None
    try:
        return datetime.strptime(kept[name], "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=days)
    except ValueError:
        raise InvalidAction({name: "must be a day such as 2026-01-31"}) from None


PAGES = (
    Page("/audit", search_audit, title="Audit", group="Records"),
    Page("/audit/verify", verify_audit, "POST"),
)
