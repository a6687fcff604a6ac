"""Calls about jobs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Required, TypedDict

from holdfast.client.calls.shared import AuditEvent, BulkActionView, BulkPlan
from holdfast.client.models import read, read_either
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
class EnqueuedJob:
    """An enqueued job; *created* is False if it existed already, maybe with another payload."""

    id: str
    org_id: str
    job_type: str
    idempotency_key: str
    created_at: datetime
    created: bool
    differs: bool


@dataclass(frozen=True, slots=True)
class JobItem:
    """A job without its payload and result."""

    id: str
    org_id: str
    project_id: str | None
    job_type: str
    category: str
    state: str
    queue: str
    origin_queue: str
    stage: str
    priority: int
    attempt_count: int
    max_attempts: int
    not_before_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs are in one state and queue."""

    state: str
    queue: str
    jobs: int


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job with everything on record but its payload and result."""

    id: str
    org_id: str
    project_id: str | None
    job_type: str
    category: str
    state: str
    queue: str
    origin_queue: str
    stage: str
    priority: int
    attempt_count: int
    max_attempts: int
    not_before_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None
    actor_type: str
    actor_id: str
    request_id: str
    correlation_id: str
    idempotency_key: str
    payload_hash: str
    unit_key: str | None
    scheduled_for: datetime | None
    traceparent: str | None
    replay_of: str | None
    pipeline_version: str
    claimed_at: datetime | None
    claimed_by: str | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    first_failed_at: datetime | None
    last_error_at: datetime | None
    has_dead_letter: bool


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a job is in its state, and what has to happen next."""

    job_id: str
    state: str
    reason: str
    line: str
    next: str
    until: datetime | None
    facts: Mapping[str, Any]


class JobConditions(TypedDict, total=False):
    """Which waiting and running jobs. At least one condition is required."""

    org_id: str | None
    state: str | None
    job_type: str | None
    queue: str | None
    error_class: str | None


class NewJobOfMany(TypedDict, total=False):
    """A job of a bulk, with its own idempotency key."""

    job_type: Required[str]
    payload: Mapping[str, Any]
    org_id: str | None
    project_id: str | None
    queue: str | None
    priority: str | None
    max_attempts: int | None
    not_before_at: datetime | None
    unit_key: str | None
    limit_key: str | None
    correlation_id: str | None
    idempotency_key: str | None


def cancel_jobs(
    *,
    reason: str,
    filter: JobConditions,
    dry_run: bool | NotGiven = NOT_GIVEN,
    expected: int | NotGiven | None = NOT_GIVEN,
    tolerance: int | NotGiven = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[BulkPlan | BulkActionView]:
    """Cancel every waiting and running job that matches: a dry run, then a job."""
    return Call(
        "cancel_jobs",
        "POST",
        "/v1/jobs/cancel",
        lambda found: read_either(BulkPlan, BulkActionView, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given(
            {
                "reason": reason,
                "dry_run": dry_run,
                "expected": expected,
                "tolerance": tolerance,
                "filter": filter,
            }
        ),
    )


def enqueue_job(
    job_type: str,
    payload: Mapping[str, Any],
    *,
    org_id: str | NotGiven | None = NOT_GIVEN,
    project_id: str | NotGiven | None = NOT_GIVEN,
    queue: str | NotGiven | None = NOT_GIVEN,
    priority: str | NotGiven | None = NOT_GIVEN,
    max_attempts: int | NotGiven | None = NOT_GIVEN,
    not_before_at: datetime | NotGiven | None = NOT_GIVEN,
    unit_key: str | NotGiven | None = NOT_GIVEN,
    limit_key: str | NotGiven | None = NOT_GIVEN,
    correlation_id: str | NotGiven | None = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[EnqueuedJob]:
    """Enqueue one job. With a known Idempotency-Key the original job is returned, with 200."""
    return Call(
        "enqueue_job",
        "POST",
        "/v1/jobs",
        lambda found: read(EnqueuedJob, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given(
            {
                "job_type": job_type,
                "payload": payload,
                "org_id": org_id,
                "project_id": project_id,
                "queue": queue,
                "priority": priority,
                "max_attempts": max_attempts,
                "not_before_at": not_before_at,
                "unit_key": unit_key,
                "limit_key": limit_key,
                "correlation_id": correlation_id,
            }
        ),
    )


def list_jobs(
    *,
    state: str | None = None,
    job_type: str | None = None,
    queue: str | None = None,
    org_id: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[JobItem]]:
    """List jobs, newest first."""
    return Call(
        "list_jobs",
        "GET",
        "/v1/jobs",
        lambda found: read_page(JobItem, found),
        query={
            "state": state,
            "job_type": job_type,
            "queue": queue,
            "org_id": org_id,
            "limit": limit,
            "cursor": cursor,
        },
    )


def enqueue_jobs(
    jobs: Sequence[NewJobOfMany], *, idempotency_key: str | None = None
) -> Call[tuple[EnqueuedJob, ...]]:
    """Enqueue up to 500 jobs of one type: all of them or none.

    A job whose idempotency key is known is returned with ``created: false``, and with
    ``differs: true`` if the original has another payload.
    """
    return Call(
        "enqueue_jobs",
        "POST",
        "/v1/jobs/bulk",
        lambda found: tuple(read(EnqueuedJob, one) for one in found["items"]),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given({"jobs": jobs}),
    )


def count_jobs(*, org_id: str | None = None) -> Call[tuple[JobCounts, ...]]:
    """Count jobs by state and queue."""
    return Call(
        "count_jobs",
        "GET",
        "/v1/jobs/counts",
        lambda found: tuple(read(JobCounts, one) for one in found),
        query={"org_id": org_id},
    )


def get_job(job_id: str) -> Call[JobDetail]:
    """Return one job."""
    return Call(
        "get_job",
        "GET",
        "/v1/jobs/{job_id}",
        lambda found: read(JobDetail, found),
        names={"job_id": job_id},
    )


def list_job_events(job_id: str) -> Call[tuple[AuditEvent, ...]]:
    """Return the timeline of a job, oldest event first."""
    return Call(
        "list_job_events",
        "GET",
        "/v1/jobs/{job_id}/events",
        lambda found: tuple(read(AuditEvent, one) for one in found),
        names={"job_id": job_id},
    )


def explain_job(job_id: str) -> Call[Explained]:
    """Explain why a job is in its state."""
    return Call(
        "explain_job",
        "GET",
        "/v1/jobs/{job_id}/explain",
        lambda found: read(Explained, found),
        names={"job_id": job_id},
    )


def cancel_job(job_id: str, *, reason: str) -> Call[str]:
    """Cancel a job: at once if it is waiting, at its next step if it is running."""
    return Call(
        "cancel_job",
        "POST",
        "/v1/jobs/{job_id}/cancel",
        lambda found: str(found["outcome"]),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
