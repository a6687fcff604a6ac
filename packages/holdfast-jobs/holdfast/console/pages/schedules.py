"""Schedules with their ticks, and the runs that they and operators started."""

from __future__ import annotations

from holdfast.console.visit import LONGEST_PAGE, Go, Page, PageContext, Shown
from holdfast.operate.page import NEWEST, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.runs import RunFilter

_DONE = {
    "pause": ("The schedule is paused.", "It was paused already."),
    "resume": ("The schedule fires again.", "It was not paused."),
}


def list_schedules(visit: PageContext) -> Shown:
    """Schedules with the outcome of their newest tick."""
    found = visit.operator.schedules.list(limit=LONGEST_PAGE, after=visit.query.get("after", ""))
    return Shown("schedules.html", "Schedules", {"schedules": found})


def show_schedule(visit: PageContext) -> Shown:
    """One schedule: past ticks, skipped ones included, and the next ones."""
    name, schedules = visit.path["name"], visit.operator.schedules
    values = {
        "schedule": schedules.get(name),
        "ticks": schedules.ticks(name, limit=LONGEST_PAGE),
        "following": schedules.next(name, count=5),
    }
    return Shown("schedule.html", name, values)


def act_on_schedule(visit: PageContext) -> Go:
    """Pause, resume or fire a schedule."""
    name, verb = visit.path["name"], visit.path["verb"]
    schedules, reason = visit.operator.schedules, visit.text("reason")
    here = f"/schedules/{name}"
    match verb:
        case "pause":
            return Go(here, _DONE[verb][not schedules.pause(name, reason=reason)])
        case "resume":
            return Go(here, _DONE[verb][not schedules.resume(name, reason=reason)])
        case "fire":
            fired = schedules.trigger(name, reason=reason)
            return Go(f"/jobs/{fired.job_id}" if fired.job_id else here, "The schedule was fired.")
        case _:
            raise InvalidAction({"verb": "must be pause, resume or fire"})


def list_runs(visit: PageContext) -> Shown:
    """Bounded runs, newest first, with their counts."""
    kept, before = visit.kept("name"), visit.maybe("before")
    found = visit.operator.runs.list(
        RunFilter(kept.get("name")),
        limit=LONGEST_PAGE,
        before=NEWEST if before is None else read_id("before", before),
    )
    values = {"runs": found, "kept": kept, "first": before is None}
    return Shown("runs.html", "Runs", values)


def show_run(visit: PageContext) -> Shown:
    """One run: why it started, how it ended, and what it did."""
    return Shown("run.html", "Run", {"run": visit.operator.runs.get(visit.path["run_id"])})


PAGES = (
    Page("/schedules", list_schedules, title="Schedules", group="System", for_all=True),
    Page("/schedules/{name}", show_schedule),
    Page("/schedules/{name}/{verb}", act_on_schedule, "POST"),
    Page("/runs", list_runs, title="Runs", group="System", for_all=True),
    Page("/runs/{run_id}", show_run),
)
