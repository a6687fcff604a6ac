"""The synchronous client."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.client import operations
from holdfast.client.models import EnqueuedJob, Event, Explanation, Job, JobCounts, Webhook
from holdfast.client.operations import Call, EventReader, Page
from holdfast.client.problems import ApiError, error_from, unreachable
from holdfast.client.transport import TIMEOUT_SECONDS, document_of, httpx2, options

T = TypeVar("T")


class Client:
    """Calls the HTTP API with one key. Use it as a context manager, or close it."""

    def __init__(
        self, url: str, key: str, *, timeout: float = TIMEOUT_SECONDS, transport: Any = None
    ) -> None:
        self._http = httpx2.Client(**options(url, key, timeout, transport))
        self._rng = random.Random()
        self._sleep = time.sleep
        self.jobs = Jobs(self)
        self.webhooks = Webhooks(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, call: Call[T]) -> T:
        """Make a request, again if that is safe. Raises ApiError."""
        for attempt in range(operations.ATTEMPTS):
            retry_after = None
            try:
                response = self._http.request(
                    call.method,
                    call.target,
                    params=call.params,
                    headers=dict(call.headers),
                    json=None if call.body is None else dict(call.body),
                )
            except httpx2.TransportError as exc:
                was_sent = not isinstance(exc, httpx2.ConnectError)
                error: ApiError = unreachable(type(exc).__name__)
                if was_sent and not call.is_repeatable:
                    raise error from None
            else:
                if response.is_success:
                    return call.read(document_of(response))
                error = error_from(response.status_code, document_of(response))
                if response.status_code not in operations.RETRIED:
                    raise error
                retry_after = response.headers.get("retry-after")
            if attempt + 1 == operations.ATTEMPTS:
                raise error
            self._sleep(operations.pause_after(attempt, retry_after, self._rng))
        raise AssertionError("unreachable")

    def events(
        self,
        subjects: Sequence[str] = (),
        *,
        org_id: str | None = None,
        after: str | None = None,
    ) -> Iterator[Event]:
        """Yield committed changes without end, from *after* or from now on.

        A lost connection is opened again and continues after the last event. Raises ApiError if the
        server refuses the stream.
        """
        reader, failures = EventReader(after), 0
        while True:
            reader.begin()
            try:
                for event in self._events(reader, subjects, org_id):
                    failures = 0
                    yield event
                pause = reader.retry_seconds if reader.has_ended else 0.0
            except ApiError as exc:
                if operations.is_final(exc):
                    raise
                pause = operations.pause_after(failures, None, self._rng)
                failures = min(failures + 1, 10)
            except httpx2.TransportError:
                pause = operations.pause_after(failures, None, self._rng)
                failures = min(failures + 1, 10)
            self._sleep(pause)

    def _events(
        self, reader: EventReader, subjects: Sequence[str], org_id: str | None
    ) -> Iterator[Event]:
        call = operations.stream_events(subjects, org_id=org_id, after=reader.position)
        timeout = httpx2.Timeout(TIMEOUT_SECONDS, read=operations.SILENCE_SECONDS)
        with self._http.stream(
            call.method,
            call.target,
            params=call.params,
            headers=dict(call.headers),
            timeout=timeout,
        ) as response:
            if not response.is_success:
                response.read()
                raise error_from(response.status_code, document_of(response))
            for part in response.iter_raw():
                yield from reader.feed(part)


class Jobs:
    """The jobs that the key may see."""

    def __init__(self, client: Client) -> None:
        self._call = client.call

    def enqueue(self, job_type: str, payload: Mapping[str, Any], **given: Any) -> EnqueuedJob:
        """Enqueue a job. A retry is the same job, with or without an idempotency key.

        *given* are ``idempotency_key``, ``org_id``, ``project_id``, ``queue``, ``priority``,
        ``max_attempts``, ``not_before_at`` and ``correlation_id``.
        """
        return self._call(operations.enqueue_job(job_type, payload, **given))

    def get(self, job_id: str) -> Job:
        """Return one job."""
        return self._call(operations.get_job(job_id))

    def list(self, **wanted: Any) -> Page[Job]:
        """One page of jobs, newest first, by ``state``, ``job_type``, ``queue`` or ``org_id``."""
        return self._call(operations.list_jobs(**wanted))

    def every(self, **wanted: Any) -> Iterator[Job]:
        """All jobs of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(**wanted, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return

    def counts(self, *, org_id: str | None = None) -> Sequence[JobCounts]:
        """How many jobs are in each state and queue."""
        return self._call(operations.count_jobs(org_id=org_id))

    def explain(self, job_id: str) -> Explanation:
        """Explain why a job is in its state."""
        return self._call(operations.explain_job(job_id))

    def cancel(self, job_id: str, *, reason: str) -> str:
        """Cancel a job; return canceled, requested or too_late."""
        return self._call(operations.cancel_job(job_id, reason=reason))


class Webhooks:
    """The webhooks of the key's tenant."""

    def __init__(self, client: Client) -> None:
        self._call = client.call

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Webhook]:
        """One page of endpoints, oldest first."""
        return self._call(operations.list_webhooks(limit=limit, cursor=cursor))

    def add(self, url: str, *, reason: str, events: Sequence[str] = ()) -> Webhook:
        """Register an endpoint; its secret is in the answer and is not shown again."""
        return self._call(operations.add_webhook(url, reason=reason, events=events))

    def remove(self, webhook_id: str, *, reason: str) -> bool:
        """Remove an endpoint."""
        return self._call(operations.remove_webhook(webhook_id, reason=reason))
