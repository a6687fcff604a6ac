"""Methods about jobs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.client.calls.jobs import (
    EnqueuedJob,
    Explained,
    JobConditions,
    JobCounts,
    JobDetail,
    JobItem,
    NewJobOfMany,
    cancel_job,
    cancel_jobs,
    count_jobs,
    enqueue_job,
    enqueue_jobs,
    explain_job,
    get_job,
    list_job_events,
    list_jobs,
)
from holdfast.client.calls.shared import AuditEvent, BulkActionView, BulkPlan
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Jobs:
    """The jobs that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def cancel_all(
        self,
        *,
        reason: str,
        filter: JobConditions,
        dry_run: bool | NotGiven = NOT_GIVEN,
        expected: int | NotGiven | None = NOT_GIVEN,
        tolerance: int | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> BulkPlan | BulkActionView:
        """Cancel every waiting and running job that matches: a dry run, then a job."""
        return self._call(
            cancel_jobs(
                reason=reason,
                dry_run=dry_run,
                expected=expected,
                tolerance=tolerance,
                filter=filter,
                idempotency_key=idempotency_key,
            )
        )

    def enqueue(
        self,
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
    ) -> EnqueuedJob:
        """Enqueue one job. With a known Idempotency-Key the original job is returned, with 200."""
        return self._call(
            enqueue_job(
                job_type,
                payload,
                org_id=org_id,
                project_id=project_id,
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                not_before_at=not_before_at,
                unit_key=unit_key,
                limit_key=limit_key,
                correlation_id=correlation_id,
                idempotency_key=idempotency_key,
            )
        )

    def list(
        self,
        *,
        state: str | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        org_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobItem]:
        """List jobs, newest first."""
        return self._call(
            list_jobs(
                state=state,
                job_type=job_type,
                queue=queue,
                org_id=org_id,
                limit=limit,
                cursor=cursor,
            )
        )

    def enqueue_many(
        self, jobs: Sequence[NewJobOfMany], *, idempotency_key: str | None = None
    ) -> tuple[EnqueuedJob, ...]:
        """Enqueue up to 500 jobs of one type: all of them or none.

        A job whose idempotency key is known is returned with ``created: false``, and with
        ``differs: true`` if the original has another payload.
        """
        return self._call(enqueue_jobs(jobs, idempotency_key=idempotency_key))

    def counts(self, *, org_id: str | None = None) -> tuple[JobCounts, ...]:
        """Count jobs by state and queue."""
        return self._call(count_jobs(org_id=org_id))

    def get(self, job_id: str) -> JobDetail:
        """Return one job."""
        return self._call(get_job(job_id))

    def events(self, job_id: str) -> tuple[AuditEvent, ...]:
        """Return the timeline of a job, oldest event first."""
        return self._call(list_job_events(job_id))

    def explain(self, job_id: str) -> Explained:
        """Explain why a job is in its state."""
        return self._call(explain_job(job_id))

    def cancel(self, job_id: str, *, reason: str) -> str:
        """Cancel a job: at once if it is waiting, at its next step if it is running."""
        return self._call(cancel_job(job_id, reason=reason))

    def every(
        self,
        *,
        state: str | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        org_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(
                state=state,
                job_type=job_type,
                queue=queue,
                org_id=org_id,
                limit=limit,
                cursor=cursor,
            )
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncJobs:
    """The jobs that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def cancel_all(
        self,
        *,
        reason: str,
        filter: JobConditions,
        dry_run: bool | NotGiven = NOT_GIVEN,
        expected: int | NotGiven | None = NOT_GIVEN,
        tolerance: int | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> BulkPlan | BulkActionView:
        """Cancel every waiting and running job that matches: a dry run, then a job."""
        return await self._call(
            cancel_jobs(
                reason=reason,
                dry_run=dry_run,
                expected=expected,
                tolerance=tolerance,
                filter=filter,
                idempotency_key=idempotency_key,
            )
        )

    async def enqueue(
        self,
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
    ) -> EnqueuedJob:
        """Enqueue one job. With a known Idempotency-Key the original job is returned, with 200."""
        return await self._call(
            enqueue_job(
                job_type,
                payload,
                org_id=org_id,
                project_id=project_id,
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                not_before_at=not_before_at,
                unit_key=unit_key,
                limit_key=limit_key,
                correlation_id=correlation_id,
                idempotency_key=idempotency_key,
            )
        )

    async def list(
        self,
        *,
        state: str | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        org_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobItem]:
        """List jobs, newest first."""
        return await self._call(
            list_jobs(
                state=state,
                job_type=job_type,
                queue=queue,
                org_id=org_id,
                limit=limit,
                cursor=cursor,
            )
        )

    async def enqueue_many(
        self, jobs: Sequence[NewJobOfMany], *, idempotency_key: str | None = None
    ) -> tuple[EnqueuedJob, ...]:
        """Enqueue up to 500 jobs of one type: all of them or none.

        A job whose idempotency key is known is returned with ``created: false``, and with
        ``differs: true`` if the original has another payload.
        """
        return await self._call(enqueue_jobs(jobs, idempotency_key=idempotency_key))

    async def counts(self, *, org_id: str | None = None) -> tuple[JobCounts, ...]:
        """Count jobs by state and queue."""
        return await self._call(count_jobs(org_id=org_id))

    async def get(self, job_id: str) -> JobDetail:
        """Return one job."""
        return await self._call(get_job(job_id))

    async def events(self, job_id: str) -> tuple[AuditEvent, ...]:
        """Return the timeline of a job, oldest event first."""
        return await self._call(list_job_events(job_id))

    async def explain(self, job_id: str) -> Explained:
        """Explain why a job is in its state."""
        return await self._call(explain_job(job_id))

    async def cancel(self, job_id: str, *, reason: str) -> str:
        """Cancel a job: at once if it is waiting, at its next step if it is running."""
        return await self._call(cancel_job(job_id, reason=reason))

    async def every(
        self,
        *,
        state: str | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        org_id: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[JobItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                state=state,
                job_type=job_type,
                queue=queue,
                org_id=org_id,
                limit=limit,
                cursor=cursor,
            )
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
