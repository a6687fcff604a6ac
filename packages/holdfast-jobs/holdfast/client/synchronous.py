"""The synchronous client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.client import operations
from holdfast.client.models import Event, RewriteEvent
from holdfast.client.operations import Call, EventReader
from holdfast.client.problems import ApiError, error_from, unreachable
from holdfast.client.resources.api_keys import ApiKeys
from holdfast.client.resources.audit import Audit
from holdfast.client.resources.batches import Batches
from holdfast.client.resources.bulk_actions import BulkActions
from holdfast.client.resources.costs import Costs
from holdfast.client.resources.dead_letters import DeadLetters
from holdfast.client.resources.deliveries import Deliveries
from holdfast.client.resources.jobs import Jobs
from holdfast.client.resources.queues import Queues
from holdfast.client.resources.reviews import Reviews
from holdfast.client.resources.rewrites import Rewrites
from holdfast.client.resources.runs import Runs
from holdfast.client.resources.schedules import Schedules
from holdfast.client.resources.tenants import Tenants
from holdfast.client.resources.webhooks import Webhooks
from holdfast.client.resources.workers import Workers
from holdfast.client.resources.workflows import Workflows
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
        self.api_keys = ApiKeys(self)
        self.audit = Audit(self)
        self.batches = Batches(self)
        self.bulk_actions = BulkActions(self)
        self.costs = Costs(self)
        self.dead_letters = DeadLetters(self)
        self.deliveries = Deliveries(self)
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.reviews = Reviews(self)
        self.rewrites = Rewrites(self)
        self.runs = Runs(self)
        self.schedules = Schedules(self)
        self.tenants = Tenants(self)
        self.webhooks = Webhooks(self)
        self.workers = Workers(self)
        self.workflows = Workflows(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, call: Call[T]) -> T:
        """Make a request, again if its answer is lost or says so. Raises ApiError."""
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
        reader = EventReader(after, Event)

        def call() -> Call[Event]:
            return operations.stream_events(subjects, org_id=org_id, after=reader.position)

        return self._follow(reader, call)

    def rewrite_events(
        self, user_id: str, *, home_id: str | None = None, after: str | None = None
    ) -> Iterator[RewriteEvent]:
        """Yield the changes of the messages of one person without end, as :meth:`events` does."""
        reader = EventReader(after, RewriteEvent, "rewrite")

        def call() -> Call[RewriteEvent]:
            return operations.stream_rewrites(user_id, home_id=home_id, after=reader.position)

        return self._follow(reader, call)

    def _follow(self, reader: EventReader[T], call: Callable[[], Call[T]]) -> Iterator[T]:
        failures = 0
        while True:
            reader.begin()
            try:
                for event in self._read(reader, call()):
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

    def _read(self, reader: EventReader[T], call: Call[T]) -> Iterator[T]:
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
