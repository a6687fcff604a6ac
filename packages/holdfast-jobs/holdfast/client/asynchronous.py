"""The asynchronous client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from holdfast.client import operations
from holdfast.client.models import Event, RewriteEvent
from holdfast.client.operations import Call, EventReader
from holdfast.client.problems import ApiError, error_from, unreachable
from holdfast.client.resources.api_keys import AsyncApiKeys
from holdfast.client.resources.audit import AsyncAudit
from holdfast.client.resources.batches import AsyncBatches
from holdfast.client.resources.bulk_actions import AsyncBulkActions
from holdfast.client.resources.costs import AsyncCosts
from holdfast.client.resources.dead_letters import AsyncDeadLetters
from holdfast.client.resources.deliveries import AsyncDeliveries
from holdfast.client.resources.jobs import AsyncJobs
from holdfast.client.resources.queues import AsyncQueues
from holdfast.client.resources.reviews import AsyncReviews
from holdfast.client.resources.rewrites import AsyncRewrites
from holdfast.client.resources.runs import AsyncRuns
from holdfast.client.resources.schedules import AsyncSchedules
from holdfast.client.resources.tenants import AsyncTenants
from holdfast.client.resources.webhooks import AsyncWebhooks
from holdfast.client.resources.workers import AsyncWorkers
from holdfast.client.resources.workflows import AsyncWorkflows
from holdfast.client.transport import TIMEOUT_SECONDS, document_of, httpx2, options

T = TypeVar("T")


class AsyncClient:
    """Calls the HTTP API with one key. Use it as a context manager, or close it."""

    def __init__(
        self, url: str, key: str, *, timeout: float = TIMEOUT_SECONDS, transport: Any = None
    ) -> None:
        self._http = httpx2.AsyncClient(**options(url, key, timeout, transport))
        self._rng = random.Random()
        self._sleep = asyncio.sleep
        self.api_keys = AsyncApiKeys(self)
        self.audit = AsyncAudit(self)
        self.batches = AsyncBatches(self)
        self.bulk_actions = AsyncBulkActions(self)
        self.costs = AsyncCosts(self)
        self.dead_letters = AsyncDeadLetters(self)
        self.deliveries = AsyncDeliveries(self)
        self.jobs = AsyncJobs(self)
        self.queues = AsyncQueues(self)
        self.reviews = AsyncReviews(self)
        self.rewrites = AsyncRewrites(self)
        self.runs = AsyncRuns(self)
        self.schedules = AsyncSchedules(self)
        self.tenants = AsyncTenants(self)
        self.webhooks = AsyncWebhooks(self)
        self.workers = AsyncWorkers(self)
        self.workflows = AsyncWorkflows(self)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(self, call: Call[T]) -> T:
        """Make a request, again if its answer is lost or says so. Raises ApiError."""
        for attempt in range(operations.ATTEMPTS):
            retry_after = None
            try:
                response = await self._http.request(
                    call.method,
                    call.target,
                    params=call.params,
                    headers=dict(call.headers),
                    json=None if call.body is None else dict(call.body),
                )
            except httpx2.TransportError as exc:
                error: ApiError = unreachable(type(exc).__name__)
            else:
                if response.is_success:
                    return call.read(document_of(response))
                error = error_from(response.status_code, document_of(response))
                if not operations.is_repeated(error):
                    raise error
                retry_after = response.headers.get("retry-after")
            if attempt + 1 == operations.ATTEMPTS:
                raise error
            await self._sleep(operations.pause_after(attempt, retry_after, self._rng))
        raise AssertionError("unreachable")

    async def events(
        self,
        subjects: Sequence[str] = (),
        *,
        org_id: str | None = None,
        after: str | None = None,
    ) -> AsyncIterator[Event]:
        """Yield committed changes without end, from *after* or from now on.

        A lost connection is opened again and continues after the last event. Raises ApiError if the
        server refuses the stream.
        """
        reader = EventReader(after, Event)

        def call() -> Call[Event]:
            return operations.stream_events(subjects, org_id=org_id, after=reader.position)

        async for event in self._follow(reader, call):
            yield event

    async def rewrite_events(
        self, user_id: str, *, home_id: str | None = None, after: str | None = None
    ) -> AsyncIterator[RewriteEvent]:
        """Yield the changes of the messages of one person without end, as :meth:`events` does."""
        reader = EventReader(after, RewriteEvent, "rewrite")

        def call() -> Call[RewriteEvent]:
            return operations.stream_rewrites(user_id, home_id=home_id, after=reader.position)

        async for event in self._follow(reader, call):
            yield event

    async def _follow(
        self, reader: EventReader[T], call: Callable[[], Call[T]]
    ) -> AsyncIterator[T]:
        failures = 0
        while True:
            reader.begin()
            try:
                async for event in self._read(reader, call()):
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
            await self._sleep(pause)

    async def _read(self, reader: EventReader[T], call: Call[T]) -> AsyncIterator[T]:
        timeout = httpx2.Timeout(TIMEOUT_SECONDS, read=operations.SILENCE_SECONDS)
        async with self._http.stream(
            call.method,
            call.target,
            params=call.params,
            headers=dict(call.headers),
            timeout=timeout,
        ) as response:
            if not response.is_success:
                await response.aread()
                raise error_from(response.status_code, document_of(response))
            async for part in response.aiter_raw():
                for event in reader.feed(part):
                    yield event
