"""The first page: what is wrong now, and the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.console.chart import Series, minutes
from holdfast.console.visit import Go, Page, PageContext, Shown, link
from holdfast.errors import HoldfastError, NotFound
from holdfast.operate.overview import LetterGroup, TenantBacklog
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.short_ids import JOBS, resolve_id
from holdfast.operate.workers import WorkerView

SHOWN = 8
# The bulk step that a state leads to.
STEPS: Mapping[str, str] = {
    "open": "triage",
    "triaged": "remediate",
    "remediated": "validate",
    "validated": "replay",
    "replayed": "verify",
}
ORDER = ("open", "triaged", "remediated", "validated", "replaying", "replayed")


@dataclass(frozen=True, slots=True)
class Cause:
    """A group of dead letters with its filter and its next step."""

    error_class: str
    job_type: str
    letters: int
    tenants: int
    escalated: int
    newest_at: datetime
    states: tuple[tuple[str, int], ...]
    filter: Mapping[str, str]
    next: Mapping[str, str] | None
    next_count: int

    @classmethod
    def from_item(cls, group: LetterGroup) -> Cause:
        wanted = {"error_class": group.error_class, "job_type": group.job_type}
        states = tuple((state, group.states[state]) for state in ORDER if state in group.states)
        # The largest group of items with a next step goes first.
        ready = sorted((one for one in states if one[0] in STEPS), key=lambda one: -one[1])
        following = None
        if ready:
            state = ready[0][0]
            following = {**wanted, "state": state, "step": STEPS[state]}
            if state == "triaged" and len(group.kinds) == 1:
                following["kind"] = next(iter(group.kinds))
            elif state == "triaged":
                following = None
        return cls(
            group.error_class,
            group.job_type,
            group.letters,
            group.tenants,
            group.escalated,
            group.newest_at,
            states,
            wanted,
            following,
            ready[0][1] if ready else 0,
        )


@dataclass(frozen=True, slots=True)
class Wait:
    """A backlog and its age in seconds."""

    queue: str
    org_id: str
    jobs: int
    seconds: float
    is_capped: bool

    @classmethod
    def from_item(cls, backlog: TenantBacklog, now: datetime) -> Wait:
        since = backlog.ready_at or now
        seconds = max(0.0, (now - since).total_seconds())
        return cls(backlog.queue, backlog.org_id, backlog.jobs, seconds, backlog.is_capped)


def show_overview(visit: PageContext) -> Shown:
    """What is dead or held by cause, who waits longest, workers, and the last hour."""
    desk = visit.operator.overview
    groups = [Cause.from_item(group) for group in desk.dead_letters()]
    held = desk.held_deliveries()
    throughput = desk.throughput()
    waits = [Wait.from_item(one, throughput.now) for one in desk.backlogs()]
    workers = _workers(visit) if visit.org_id is None else None
    live = [worker for worker in workers or () if not worker.is_gone]
    counts = throughput.succeeded, throughput.retried, throughput.deadlettered
    series = [
        Series("succeeded", "good", counts[0]),
        Series("retried", "warn", counts[1]),
        Series("dead-lettered", "bad", counts[2]),
    ]
    dead = sum(group.letters for group in groups)
    held_count = sum(group.deliveries for group in held)
    ready = sum(one.jobs for one in waits)
    panels = [panel for make in visit.panels if (panel := _panel(make, visit)) is not None]
    values: dict[str, Any] = {
        "groups": groups[:SHOWN],
        "held": held[:SHOWN],
        "dead": dead,
        "held_count": held_count,
        "waits": waits[:SHOWN],
        "longest": waits[0].seconds if waits else None,
        "ready": ready,
        "is_capped": any(one.is_capped for one in waits),
        "running": sum(one.jobs for one in desk.running()),
        "workers": None if workers is None else workers[:SHOWN],
        "live": len(live),
        "gone": len(workers or ()) - len(live),
        "throughput": throughput,
        "chart": minutes(series, throughput.now, label="Attempts of the last hour"),
        "succeeded": sum(counts[0]),
        "retried": sum(counts[1]),
        "died": sum(counts[2]),
        "panels": panels,
        "tiles": [panel.values["tile"] for panel in panels if "tile" in panel.values],
        "verdict": _verdict(dead, held_count, ready, len(live), workers is not None),
    }
    return Shown("overview.html", "Overview", values)


def _workers(visit: PageContext) -> list[WorkerView]:
    return sorted(visit.operator.workers.list(), key=lambda one: (one.is_gone, one.worker_id))


def _panel(make: Any, visit: PageContext) -> Any:
    """The panel of an extension; None if it has none now or cannot be read."""
    try:
        return make(visit)
    except HoldfastError:
        return None


def _verdict(dead: int, held: int, ready: int, live: int, knows_workers: bool) -> str:
    problems = []
    if knows_workers and ready and not live:
        problems.append("jobs wait and no worker is running")
    if dead:
        problems.append(f"{dead:,} dead {'letter needs' if dead == 1 else 'letters need'} work")
    if held:
        problems.append(f"{held:,} {'delivery is' if held == 1 else 'deliveries are'} held")
    if not problems:
        return "Nothing needs attention."
    says = "; ".join(problems)
    return f"{says[0].upper()}{says[1:]}."


def find(visit: PageContext) -> Go:
    """Go to the job with this id or beginning of an id, otherwise to the jobs of this type."""
    wanted = visit.maybe("q")
    if wanted is None:
        return Go("/jobs")
    try:
        job_id = resolve_id(visit.operator.context, JOBS, wanted.lower())
        return Go(f"/jobs/{job_id}")
    except (InvalidAction, NotFound):
        return Go(link("/jobs", {"job_type": wanted}))


PAGES = (
    Page("/", show_overview, title="Overview"),
    Page("/find", find),
)
