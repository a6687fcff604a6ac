"""Queues: depth, limits, pause and resume; and the limit keys that jobs share."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from holdfast.console.visit import LONGEST_PAGE, Go, Page, PageContext, Shown
from holdfast.errors import UnknownQueue
from holdfast.operate.overview import Depth
from holdfast.operate.refusal import InvalidAction

LIMITS = (
    ("weight", "Weight", "share of the workers, 1 to 100"),
    ("max_running", "Running at once", ""),
    ("max_running_per_tenant", "Running at once per tenant", ""),
    ("max_depth", "Waiting at most", "further jobs are rejected"),
    ("max_depth_per_tenant", "Waiting at most per tenant", ""),
    ("rate", "Starts at most", "such as 100/minute"),
)


def list_queues(visit: PageContext) -> Shown:
    """Queues with their depth, limits and pauses."""
    rules = visit.operator.context.app.queues.rules().queues
    depths = visit.operator.overview.depths()
    rows = [(depth, rules.get(depth.queue)) for depth in depths]
    keys = visit.operator.limit_keys.list(limit=LONGEST_PAGE)
    most = max((depth.ready for depth in depths), default=0)
    return Shown("queues.html", "Queues", {"rows": rows, "most": most, "keys": keys})


def show_queue(visit: PageContext) -> Shown:
    """One queue: who waits in it, its limits, and the forms that change them."""
    name = visit.path["name"]
    rules = visit.operator.context.app.queues.rules().queues
    overview = visit.operator.overview
    depth = next((one for one in overview.depths() if one.queue == name), None)
    if depth is None and name not in rules:
        raise UnknownQueue(name, rules)
    values: dict[str, Any] = {
        "name": name,
        "depth": depth or Depth(name, 0, 0, 0, 0, None),
        "rule": rules.get(name),
        "limits": LIMITS,
        "backlogs": [one for one in overview.backlogs() if one.queue == name][:LONGEST_PAGE],
    }
    return Shown("queue.html", name, values)


def act_on_queue(visit: PageContext) -> Go:
    """Pause or resume a queue, change its limits, or reset them."""
    name, verb = visit.path["name"], visit.path["verb"]
    queues, reason = visit.operator.queues, visit.text("reason")
    here = f"/queues/{quote(name, safe='')}"
    match verb:
        case "pause":
            done = queues.pause(name, reason=reason)
            says = "The queue is paused. Running jobs finish." if done else "It was paused already."
        case "resume":
            done = queues.resume(name, reason=reason)
            says = "Workers claim from the queue again." if done else "It was not paused."
        case "limits":
            queues.set(name, reason=reason, **_changes(visit))
            says = "The limits of the queue were changed."
        case "reset":
            done = queues.reset(name, reason=reason)
            says = (
                ("The queue uses its declared limits again.")
                if done
                else "The queue already uses its declared limits."
            )
        case _:
            raise InvalidAction({"verb": "must be pause, resume, limits or reset"})
    return Go(here, says)


def _changes(visit: PageContext) -> Any:
    """The limits of the form; an empty field removes a limit."""
    found: dict[str, Any] = {}
    for name, _, _ in LIMITS:
        if name not in visit.form:
            continue
        value = visit.text(name)
        if name == "rate":
            found[name] = value or None
        elif value:
            found[name] = visit.whole(name)
        elif name != "weight":
            found[name] = None
    return found


PAGES = (
    Page("/queues", list_queues, title="Queues", group="System", for_all=True),
    Page("/queues/{name}", show_queue),
    Page("/queues/{name}/{verb}", act_on_queue, "POST"),
)
