"""Pages of the console: rewrites that are held for a person.

The list has no text. Only the page of one held rewrite shows its texts, to the role that decides,
and every look at them is audited.
"""

from __future__ import annotations

from holdfast.console.visit import LONGEST_PAGE, ConsolePages, Go, Page, PageContext, Panel, Shown
from holdfast.operate.refusal import InvalidAction
from holdfast_rewrite.held import HeldRewrites

_DONE = {"approve": "delivered unchanged", "edit": "delivered as edited", "reject": "rejected"}


def list_held(visit: PageContext) -> Shown:
    """Held rewrites without text, oldest first."""
    with visit.as_engine():
        found = _held(visit).list(limit=200)
    return Shown("held_rewrites.html", "Held rewrites", {"held": found})


def show_held(visit: PageContext) -> Shown:
    """One held rewrite with both texts, and the decisions."""
    with visit.as_engine():
        found = _held(visit).show(visit.path["request_id"])
    return Shown("held_rewrite.html", "Held rewrite", {"held": found})


def decide(visit: PageContext) -> Go:
    """Approve, edit or reject a held rewrite."""
    request_id, decision = visit.path["request_id"], visit.path["decision"]
    held, reason = _held(visit), visit.text("reason")
    match decision:
        case "approve":
            held.approve(request_id, reason=reason)
        case "edit":
            held.edit(request_id, text=visit.text("text"), reason=reason)
        case "reject":
            held.reject(request_id, reason=reason)
        case _:
            raise InvalidAction({"decision": f"must be one of {', '.join(_DONE)}"})
    return Go("/held-rewrites", f"The rewrite was {_DONE[decision]}.")


def held_panel(visit: PageContext) -> Panel | None:
    """How many rewrites wait for a person."""
    if not visit.can_act:
        return None
    with visit.as_engine():
        found = _held(visit).list(limit=LONGEST_PAGE)
    many = f"{LONGEST_PAGE}+" if len(found) >= LONGEST_PAGE else str(len(found))
    tile = {
        "path": "/held-rewrites",
        "title": "Held rewrites",
        "value": many,
        "says": "wait for a person",
    }
    return Panel("Held rewrites", "held_panel.html", {"tile": tile, "held": found[:5]})


def _held(visit: PageContext) -> HeldRewrites:
    return HeldRewrites(visit.operator.context)


PAGES = ConsolePages(
    pages=(
        Page("/held-rewrites", list_held, title="Held rewrites", group="Work"),
        Page("/held-rewrites/{request_id}", show_held),
        Page("/held-rewrites/{request_id}/{decision}", decide, "POST"),
    ),
    package="holdfast_rewrite",
    panel=held_panel,
)
