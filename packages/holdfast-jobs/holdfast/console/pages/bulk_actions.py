"""Bulk actions: the list, and one with its progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.console.pages.overview import STEPS
from holdfast.console.visit import LONGEST_PAGE, Page, PageContext, Shown
from holdfast.operate.bulk_action import BulkAction
from holdfast.operate.refusal import InvalidAction

# What was done with an item, by action.
_DONE: Mapping[str, str] = {
    "recover": "recovered", "triage": "triaged", "remediate": "remediated",
    "validate": "validated", "replay": "replayed", "verify_replay": "verified",
    "resolve": "resolved", "discard": "discarded", "confirm_delivery": "confirmed",
    "resend_delivery": "queued to be sent again", "drop_delivery": "dropped",
    "cancel": "canceled or asked to stop",
}  # fmt: skip
_PATHS: Mapping[str, str] = {
    "dead_letters": "/dead-letters",
    "deliveries": "/deliveries",
    "jobs": "/jobs",
}


def list_actions(visit: PageContext) -> Shown:
    """Bulk actions, newest first."""
    before = visit.maybe("before")
    found = visit.operator.bulk_actions.list(limit=LONGEST_PAGE, before=before)
    values = {"actions": found, "first": before is None, "done": _DONE}
    return Shown("bulk_actions.html", "Bulk actions", values)


def show_action(visit: PageContext) -> Shown:
    """One bulk action. The page updates itself until its job has ended."""
    action = visit.operator.bulk_actions.get(visit.path["action_id"])
    given = {
        name: value
        for name, value in action.request["filter"].items()
        if name not in ("older_than", "since", "until", "recipient")
    }
    back = {name: value for name, value in given.items() if name != "state"}
    done = _DONE[action.action]
    values: dict[str, Any] = {
        "action": action,
        "given": given,
        "done_word": done,
        "path": _PATHS[action.subject],
        "back": back,
        "following": _following(action),
    }
    return Shown("bulk_action.html", f"{action.action.capitalize()} in bulk", values)


def _following(action: BulkAction) -> tuple[str, str] | None:
    """The next step of dead letters, and the state that it begins with."""
    if action.subject != "dead_letters" or not action.done or not action.is_over:
        return None
    state = {"replay": "replayed", "verify_replay": "replayed"}.get(action.action)
    state = state or _DONE[action.action]
    if action.action == "verify_replay":
        return "resolve", state
    return (STEPS[state], state) if state in STEPS else None


def read_count(visit: PageContext) -> int:
    """The count that was on the screen. Raises InvalidAction."""
    if "count" not in visit.form:
        raise InvalidAction({"count": "is missing; begin with the dry run"})
    return visit.whole("count")


PAGES = (
    Page("/bulk-actions", list_actions, title="Bulk actions", group="Records"),
    Page("/bulk-actions/{action_id}", show_action),
)
