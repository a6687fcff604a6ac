"""Calls about runs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.client.models import read
from holdfast.client.operations import (
    NOT_GIVEN,
    Call,
    NotGiven,
    Page,
    given,
    new_key,
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


def start_run(
    *,
    name: str,
    reason: str,
    max_jobs: int | NotGiven | None = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[Run]:
    """Start a bounded run in the server. For an admin of operations.

    The answer is the stored run; Location is where its report is. Without pending work the run has
    ended as skipped.
    """
    return Call(
        "start_run",
        "POST",
        "/v1/runs",
        lambda found: read(Run, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given({"name": name, "reason": reason, "max_jobs": max_jobs}),
    )


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
