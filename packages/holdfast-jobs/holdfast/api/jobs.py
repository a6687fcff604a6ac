"""Jobs: enqueue, list, inspect, explain and cancel them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from holdfast.api.caller import Caller, CallerOf
from holdfast.api.models import Action, AuditEvent, Body, IdempotencyKey, Model, NamedId
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.problems import ProblemError
from holdfast.api.resource import Resource
from holdfast.operate.jobs import JobFilter, JobRequest
from holdfast.operate.page import NEWEST

router = Resource("jobs")

MOST_JOBS = 500
"""How many jobs one request may enqueue: one statement."""


class JobItem(Model):
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


class JobDetail(JobItem):
    """A job with everything on record but its payload and result."""

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


class NewJob(Body):
    """A request to enqueue a job. The fields are those of the Python API."""

    job_type: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)
    org_id: NamedId | None = Field(
        default=None, description="The tenant; only a key of operations names one."
    )
    project_id: NamedId | None = None
    queue: str | None = Field(default=None, max_length=200)
    priority: str | None = Field(default=None, description="high, normal or low.")
    max_attempts: int | None = Field(default=None, ge=1, le=1000)
    not_before_at: datetime | None = None
    unit_key: str | None = Field(default=None, max_length=200)
    limit_key: str | None = Field(default=None, max_length=200)
    correlation_id: str | None = Field(default=None, max_length=200)


class NewJobOfMany(NewJob):
    """A job of a bulk, with its own idempotency key."""

    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)


class NewJobs(Body):
    """Jobs to enqueue, all or none. Those of one type are one transaction."""

    jobs: list[NewJobOfMany] = Field(min_length=1, max_length=MOST_JOBS)


class EnqueuedJob(Model):
    """An enqueued job; *created* is False if it existed already, maybe with another payload."""

    id: str
    org_id: str
    job_type: str
    idempotency_key: str
    created_at: datetime
    created: bool
    differs: bool = False


class EnqueuedJobs(Model):
    """The enqueued jobs, in the order of the request."""

    items: list[EnqueuedJob]


class Canceled(Model):
    """The effect of a cancel: canceled, requested (it is running) or too_late."""

    outcome: str


class Explained(Model):
    """Why a job is in its state, and what has to happen next."""

    job_id: str
    state: str
    reason: str
    line: str
    next: str
    until: datetime | None
    facts: dict[str, Any]


class JobCounts(Model):
    """How many jobs are in one state and queue."""

    state: str
    queue: str
    jobs: int


@router.write(
    "",
    operation_id="enqueue_job",
    status_code=201,
    responses={200: {"description": "The key is known: the original job.", "model": EnqueuedJob}},
)
def enqueue_job(
    job: NewJob, caller: CallerOf, response: Response, idempotency_key: IdempotencyKey = None
) -> EnqueuedJob:
    """Enqueue one job. With a known Idempotency-Key the original job is returned, with 200."""
    made = _enqueue(caller, job, idempotency_key)
    if not made.created:
        response.status_code = 200
    return made


@router.write("/bulk", operation_id="enqueue_jobs", status_code=201)
def enqueue_jobs(new: NewJobs, caller: CallerOf) -> EnqueuedJobs:
    """Enqueue up to 500 jobs of one type: all of them or none.

    A job whose idempotency key is known is returned with ``created: false``, and with
    ``differs: true`` if the original has another payload.
    """
    first = new.jobs[0]
    if any(job.job_type != first.job_type for job in new.jobs):
        raise ProblemError(
            422,
            "several_job_types",
            "The jobs of one request have one type, so that all are enqueued or none.",
            "Send one request for each job type.",
            errors=[("jobs", "must have the same job_type")],
        )
    requests = [
        JobRequest(
            payload=job.payload,
            org_id=caller.tenant(job.org_id),
            actor=caller.identity.actor,
            **_options(caller, job, job.idempotency_key),
        )
        for job in new.jobs
    ]
    made = caller.operator.jobs.enqueue_many(first.job_type, requests)
    return EnqueuedJobs(items=[EnqueuedJob.model_validate(item) for item in made])


def _enqueue(caller: Caller, job: NewJob, idempotency_key: str | None) -> EnqueuedJob:
    made = caller.operator.jobs.enqueue(
        job.job_type,
        job.payload,
        org_id=caller.tenant(job.org_id),
        **_options(caller, job, idempotency_key),
    )
    if made.differs:
        raise ProblemError(
            422,
            "idempotency_key_reused",
            "The idempotency key was used for a job with another payload.",
            "Use a new key for a new request.",
        )
    return EnqueuedJob.model_validate(made)


def _options(caller: Caller, job: NewJob, idempotency_key: str | None) -> Any:
    given = job.model_dump(
        exclude={"job_type", "payload", "org_id", "idempotency_key"}, exclude_none=True
    )
    if "project_id" in given:
        given["project_id"] = str(given["project_id"])
    if idempotency_key is not None:
        given["idempotency_key"] = idempotency_key
    return {"request_id": caller.request_id, **given}


@router.read("", operation_id="list_jobs", as_tenant=True)
def list_jobs(
    caller: CallerOf,
    state: Annotated[str | None, Query(max_length=50)] = None,
    job_type: Annotated[str | None, Query(max_length=200)] = None,
    queue: Annotated[str | None, Query(max_length=200)] = None,
    org_id: NamedId | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[JobItem]:
    """List jobs, newest first."""
    tenant = None if org_id is None else str(org_id)
    wanted = JobFilter(org_id=tenant, state=state, job_type=job_type, queue=queue)
    pages = caller.pages("jobs", org_id=tenant, state=state, job_type=job_type, queue=queue)
    found = caller.operator.jobs.list(wanted, limit=limit, before=pages.start(cursor, NEWEST))
    return Listing[JobItem].model_validate(pages.page(found, JobItem.model_validate))


@router.read("/counts", operation_id="count_jobs", as_tenant=True)
def count_jobs(caller: CallerOf, org_id: NamedId | None = None) -> list[JobCounts]:
    """Count jobs by state and queue."""
    found = caller.operator.jobs.counts(org_id=None if org_id is None else str(org_id))
    return [JobCounts.model_validate(count) for count in found]


@router.read("/{job_id}", operation_id="get_job", as_tenant=True, volatile=("lease_expires_at",))
def get_job(job_id: str, caller: CallerOf) -> JobDetail:
    """Return one job."""
    view = caller.operator.jobs.get(job_id)
    return JobDetail.model_validate(
        {**view.record, "has_dead_letter": view.dead_letter is not None}
    )


@router.read("/{job_id}/events", operation_id="list_job_events", as_tenant=True)
def list_job_events(job_id: str, caller: CallerOf) -> list[AuditEvent]:
    """Return the timeline of a job, oldest event first."""
    return [AuditEvent.from_item(event) for event in caller.operator.jobs.get(job_id).events]


@router.read("/{job_id}/explain", operation_id="explain_job")
def explain_job(job_id: str, caller: CallerOf) -> Explained:
    """Explain why a job is in its state."""
    return Explained.model_validate(caller.operator.jobs.explain(job_id))


@router.write("/{job_id}/cancel", operation_id="cancel_job")
def cancel_job(job_id: str, action: Action, caller: CallerOf) -> Canceled:
    """Cancel a job: at once if it is waiting, at its next step if it is running."""
    return Canceled(outcome=caller.operator.jobs.cancel(job_id, reason=action.reason))
