"""Calls about runs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.client.models import read
from holdfast.client.operations import (
    Call,
    Page,
    read_page,
)


@dataclass(frozen=True, slots=True)
class Run:
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
    error_counts: Mapping[str, int]


def list_runs(
    *, name: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Run]]:
    """List runs, newest first. For keys of operations."""
    return Call(
        "list_runs",
        "GET",
        "/v1/runs",
        lambda found: read_page(Run, found),
        query={"name": name, "limit": limit, "cursor": cursor},
    )


def get_run(run_id: str) -> Call[Run]:
    """Return one run."""
    return Call(
        "get_run",
        "GET",
        "/v1/runs/{run_id}",
        lambda found: read(Run, found),
        names={"run_id": run_id},
    )
