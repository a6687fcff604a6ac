"""Bounded runs: start one, and read the log of those that were performed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Body, Model, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.page import NEWEST
from holdfast.operate.runs import RunFilter, RunReport

router = Resource("runs")


class Run(Model):
    """One bounded run; the counts are null while it is in progress."""

    run_id: str
    name: str
    profile: str
    trigger_kind: str
    actor: str
    tick: datetime | None
    max_jobs_per_run: int
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    reason: str | None
    claimed_count: int | None
    succeeded_count: int | None
    failed_count: int | None
    requeued_count: int | None
    released_count: int | None
    canceled_count: int | None
    left_count: int | None
    submitted_count: int | None
    rate_limit_errors: int | None
    capacity_errors: int | None
    error_counts: dict[str, int]

    @classmethod
    def from_item(cls, report: RunReport) -> Run:
        """Render a run of the operator API."""
        given: dict[str, Any] = {name: getattr(report, name, None) for name in cls.model_fields}
        actor = f"{report.actor.type}:{report.actor.id}"
        return cls(**{**given, "actor": actor, "error_counts": dict(report.error_counts)})


class NewRun(Body):
    """A run to start. It is declared in the settings as [runs.NAME]."""

    name: str = Field(min_length=1, max_length=200)
    reason: Reason
    max_jobs: int | None = Field(
        default=None, ge=1, le=100_000, description="Overrides max_jobs_per_run."
    )


@router.write("", operation_id="start_run", status_code=202)
def start_run(new: NewRun, caller: CallerOf, request: Request, response: Response) -> Run:
    """Start a bounded run in the server. For an admin of operations.

    The answer is the stored run; Location is where its report is. Without pending work the run has
    ended as skipped.
    """
    prepared = caller.operator.runs.prepare(new.name, reason=new.reason, max_jobs=new.max_jobs)
    report = request.app.state.run_runner.start(prepared)
    root = request.scope.get("root_path", "")
    response.headers["Location"] = f"{root}/v1/runs/{report.run_id}"
    return Run.from_item(report)


@router.read("", operation_id="list_runs")
def list_runs(
    caller: CallerOf,
    name: Annotated[str | None, Query(max_length=200)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[Run]:
    """List runs, newest first. For keys of operations."""
    pages = caller.pages("runs", name=name)
    before = pages.start(cursor, NEWEST)
    found = caller.operator.runs.list(RunFilter(name), limit=limit, before=before)
    return Listing[Run].model_validate(pages.page(found, Run.from_item))


@router.read("/{run_id}", operation_id="get_run")
def get_run(run_id: str, caller: CallerOf) -> Run:
    """Return one run."""
    return Run.from_item(caller.operator.runs.get(run_id))
