"""Jobs: the list with its filter, one job, and canceling one or many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast import State
from holdfast.clock import read_instant
from holdfast.console.pages.bulk_actions import read_count
from holdfast.console.visit import LONGEST_PAGE, Go, Page, PageContext, Shown
from holdfast.operate.bulk_action import CancelAction
from holdfast.operate.jobs import JobFilter, JobView
from holdfast.operate.overview import StageView
from holdfast.operate.refusal import CountChanged

FIELDS = ("state", "queue", "job_type", "error_class", "org_id")
_INSTANTS = ("created_at", "not_before_at", "claimed_at", "finished_at")


def list_jobs(visit: PageContext) -> Shown:
    """Jobs, newest first. The filter is the query of the address."""
    kept = visit.kept(*FIELDS)
    before = visit.maybe("before")
    found = visit.operator.overview.search(JobFilter(**kept), limit=LONGEST_PAGE, before=before)
    values = {
        "jobs": found,
        "wanted": JobFilter(**kept),
        "kept": kept,
        "first": before is None,
        "states": [state.value for state in State],
        "queues": sorted(visit.operator.context.app.known_queues),
    }
    return Shown("jobs.html", "Jobs", values)


def show_job(visit: PageContext) -> Shown:
    """One job: why it is in its state, its timeline, stages and facts."""
    job_id = visit.path["job_id"]
    view = visit.operator.jobs.get(job_id)
    stages = visit.operator.overview.stages(view.id)
    trace = _trace_id(view.record.get("traceparent"))
    values = {
        "view": view,
        "job": view.record,
        "instants": {name: _instant(view.record.get(name)) for name in _INSTANTS},
        "why": visit.operator.explain(view.id),
        "stages": stages,
        "pipeline": _pipeline(visit, view, stages),
        "trace": trace,
        "trace_url": _trace_url(visit, trace),
    }
    return Shown("job.html", str(view.record["job_type"]), values)


def cancel(visit: PageContext) -> Go:
    """Cancel one job."""
    job_id = visit.path["job_id"]
    answer = visit.operator.cancel(job_id, reason=visit.text("reason"))
    says = {
        "canceled": "The job was canceled.",
        "requested": "The job is running. A cancel was requested; it stops at its next step.",
        "too_late": "The job had already ended. Nothing was changed.",
    }
    return Go(f"/jobs/{job_id}", says[answer])


def plan_bulk(visit: PageContext) -> Shown:
    """The dry run of a bulk cancel: how many jobs match the filter."""
    return _bulk_page(visit, visit.kept(*FIELDS))


def cancel_all(visit: PageContext) -> Shown | Go:
    """Cancel all jobs that match the filter, if their number is the one that was shown."""
    kept = {name: visit.text(name) for name in FIELDS if visit.text(name)}
    request = CancelAction(JobFilter(**kept), visit.text("reason"))
    try:
        return visit.start(request, expected=read_count(visit))
    except CountChanged as error:
        return _bulk_page(visit, kept, f"{error} Check the number and confirm it.")


def _bulk_page(visit: PageContext, kept: Mapping[str, str], says: str = "") -> Shown:
    visit.require_act()
    found = visit.operator.jobs.cancel_all(JobFilter(**kept), reason="dry run", is_dry_run=True)
    return Shown("jobs_bulk.html", "Cancel jobs", {"kept": kept, "says": says, "answer": found})


def _pipeline(
    visit: PageContext, view: JobView, stages: tuple[StageView, ...]
) -> list[tuple[str, str]]:
    """The stages in their order, each with the class of its place in the run."""
    handler = visit.operator.context.registry.handlers.get(view.record["job_type"])
    done = {stage.stage for stage in stages if stage.finished_at is not None}
    present = view.record["stage"]
    names = [stage.name for stage in handler.stages] if handler is not None else []
    if present not in names:
        names = [*dict.fromkeys([*(stage.stage for stage in stages), present])]
    is_done = view.record["state"] == State.COMPLETED
    return [
        (name, "past" if is_done or name in done else "here" if name == present else "")
        for name in names
    ]


def _trace_id(traceparent: Any) -> str | None:
    parts = str(traceparent or "").split("-")
    return parts[1] if len(parts) >= 3 else None


def _trace_url(visit: PageContext, trace: str | None) -> str | None:
    """The trace in the tracing tool, if one is set. The id may come from a client's header."""
    address = visit.operator.context.app.settings.serve.trace_url
    if address is None or trace is None or re.fullmatch("[0-9a-f]{32}", trace) is None:
        return None
    return str(address).replace("{trace_id}", trace)


def _instant(value: Any) -> datetime | None:
    return None if value is None else read_instant(value)


PAGES = (
    Page("/jobs", list_jobs, title="Jobs", group="Work"),
    Page("/jobs/bulk", plan_bulk),
    Page("/jobs/bulk", cancel_all, "POST"),
    Page("/jobs/{job_id}", show_job),
    Page("/jobs/{job_id}/cancel", cancel, "POST"),
)
