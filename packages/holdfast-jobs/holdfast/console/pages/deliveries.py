"""Deliveries: messages that wait, were sent, or need a decision."""

from __future__ import annotations

from typing import Any

from holdfast.console.pages.bulk_actions import read_count
from holdfast.console.visit import LONGEST_PAGE, Go, Page, PageContext, Shown
from holdfast.operate.bulk_action import DeliveryAction
from holdfast.operate.delivery_bulk import DeliveryBulkResult
from holdfast.operate.delivery_filter import DeliveryFilter, State
from holdfast.operate.page import NEWEST, read_id
from holdfast.operate.refusal import CountChanged, InvalidAction

FIELDS = ("state", "channel", "reason", "subject", "org_id", "job_id")
DECISIONS = ("confirm", "resend", "drop")
_DONE = {"confirm": "confirmed", "resend": "queued to be sent again", "drop": "dropped"}


def list_deliveries(visit: PageContext) -> Shown:
    """Deliveries, newest first: by default those that are not finished."""
    kept = visit.kept(*FIELDS, "ended")
    given: dict[str, Any] = {name: value for name, value in kept.items() if name != "ended"}
    before = visit.maybe("before")
    found = visit.operator.deliveries.list(
        DeliveryFilter(**given),
        with_ended=kept.get("ended") == "yes",
        limit=LONGEST_PAGE,
        before=NEWEST if before is None else read_id("before", before),
    )
    values = {
        "deliveries": found,
        "kept": kept,
        "given": given,
        "first": before is None,
        "states": [state.value for state in State],
        "groups": visit.operator.overview.held_deliveries(org_id=given.get("org_id")),
        "decisions": DECISIONS,
        "can_decide": visit.can_act and bool(given) and given.get("state") in ("held", "failed"),
    }
    return Shown("deliveries.html", "Deliveries", values)


def show_delivery(visit: PageContext) -> Shown:
    """One delivery with its attempts and evidence, without its text and address."""
    view = visit.operator.deliveries.show(visit.path["delivery_id"])
    return Shown("delivery.html", "Delivery", {"view": view, "delivery": view.delivery})


def decide(visit: PageContext) -> Go:
    """Confirm, resend or drop one delivery."""
    delivery_id, decision = visit.path["delivery_id"], visit.path["decision"]
    deliveries, reason = visit.operator.deliveries, visit.text("reason")
    match decision:
        case "confirm":
            provider_id = visit.text("provider_id") or None
            deliveries.confirm(delivery_id, reason=reason, provider_id=provider_id)
        case "resend":
            deliveries.resend(delivery_id, reason=reason)
        case "drop":
            deliveries.drop(delivery_id, reason=reason)
        case _:
            raise InvalidAction({"decision": f"must be one of {', '.join(DECISIONS)}"})
    return Go(f"/deliveries/{delivery_id}", f"The delivery was {_DONE[decision]}.")


def plan_bulk(visit: PageContext) -> Shown:
    """The dry run of a decision about all deliveries of a filter."""
    visit.require_act()
    return _bulk_page(visit, visit.query.get("decision", ""), visit.kept(*FIELDS))


def decide_all(visit: PageContext) -> Shown | Go:
    """Decide about all deliveries of the filter, if their number is the one that was shown."""
    kept = {name: visit.text(name) for name in FIELDS if visit.text(name)}
    # The filter has a field with the name of the form's reason.
    kept.pop("reason", None)
    if visit.text("held_reason"):
        kept["reason"] = visit.text("held_reason")
    decision = visit.text("decision")
    if decision not in DECISIONS:
        raise InvalidAction({"decision": f"must be one of {', '.join(DECISIONS)}"})
    given: dict[str, Any] = dict(kept)
    request = DeliveryAction(f"{decision}_delivery", DeliveryFilter(**given), visit.text("reason"))
    try:
        return visit.start(request, expected=read_count(visit))
    except CountChanged as error:
        return _bulk_page(visit, decision, kept, f"{error} Check the number and confirm it.")


def _bulk_page(visit: PageContext, decision: str, kept: dict[str, str], says: str = "") -> Shown:
    found = _run(visit, decision, kept, is_dry_run=True)
    carried = {("held_reason" if name == "reason" else name): kept[name] for name in kept}
    values = {
        "decision": decision,
        "kept": kept,
        "carried": carried,
        "says": says,
        "answer": found,
    }
    return Shown("deliveries_bulk.html", f"{decision.capitalize()} deliveries", values)


def _run(visit: PageContext, decision: str, kept: dict[str, Any], **how: Any) -> DeliveryBulkResult:
    deliveries = visit.operator.deliveries
    verbs = {
        "confirm": deliveries.confirm_all,
        "resend": deliveries.resend_all,
        "drop": deliveries.drop_all,
    }
    if decision not in verbs:
        raise InvalidAction({"decision": f"must be one of {', '.join(DECISIONS)}"})
    return verbs[decision](DeliveryFilter(**kept), **{"reason": "dry run", **how})


PAGES = (
    Page("/deliveries", list_deliveries, title="Deliveries", group="Work"),
    Page("/deliveries/bulk", plan_bulk),
    Page("/deliveries/bulk", decide_all, "POST"),
    Page("/deliveries/{delivery_id}", show_delivery),
    Page("/deliveries/{delivery_id}/{decision}", decide, "POST"),
)
