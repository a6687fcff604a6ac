"""The operations of the API that the client uses, without a transport.

Both clients run the same calls, and a test compares every one with the OpenAPI document.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from holdfast.client.models import (
    EnqueuedJob,
    Event,
    Explanation,
    Job,
    JobCounts,
    Webhook,
    read,
)
from holdfast.client.problems import ApiError, StreamEnded

T = TypeVar("T")

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
# Three heartbeats: a stream that is silent for longer is dead.
SILENCE_SECONDS = 50.0
RETRIED = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    operation_id: str
    method: str
    path: str
    read: Callable[[Any], T]
    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    # Whether it may be sent again after an attempt without an answer.
    is_repeatable: bool = True

    @property
    def target(self) -> str:
        """The path with its names filled in."""
        return self.path.format(
            **{name: quote(value, safe="") for name, value in self.names.items()}
        )

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """The query without what is not set."""
        found: list[tuple[str, str]] = []
        for name, value in self.query.items():
            listed = value if isinstance(value, (list, tuple)) else [value]
            found += [(name, _text(one)) for one in listed if one is not None]
        return tuple(found)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing. *next* is the cursor of the following page."""

    items: tuple[T, ...]
    next: str | None


def _listing(model: type[T]) -> Callable[[Any], Page[T]]:
    return lambda found: Page(tuple(read(model, one) for one in found["items"]), found["next"])


def enqueue_job(
    job_type: str,
    payload: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
    org_id: str | None = None,
    project_id: str | None = None,
    queue: str | None = None,
    priority: str | None = None,
    max_attempts: int | None = None,
    not_before_at: datetime | None = None,
    correlation_id: str | None = None,
) -> Call[EnqueuedJob]:
    """Enqueue a job. Without a key the client makes one, so that a retry is the same job."""
    body = {
        "job_type": job_type,
        "payload": dict(payload),
        "org_id": org_id,
        "project_id": project_id,
        "queue": queue,
        "priority": priority,
        "max_attempts": max_attempts,
        "not_before_at": None if not_before_at is None else not_before_at.isoformat(),
        "correlation_id": correlation_id,
    }
    return Call(
        "enqueue_job",
        "POST",
        "/v1/jobs",
        lambda found: read(EnqueuedJob, found),
        body={name: value for name, value in body.items() if value is not None},
        headers={"Idempotency-Key": idempotency_key or f"client:{uuid.uuid4()}"},
    )


def list_jobs(
    *,
    state: str | None = None,
    job_type: str | None = None,
    queue: str | None = None,
    org_id: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Job]]:
    """List jobs, newest first."""
    query = {"state": state, "job_type": job_type, "queue": queue, "org_id": org_id}
    query |= {"limit": limit, "cursor": cursor}  # type: ignore[dict-item]
    return Call("list_jobs", "GET", "/v1/jobs", _listing(Job), query=query)


def get_job(job_id: str) -> Call[Job]:
    """Return one job."""
    return _of_job("get_job", "/v1/jobs/{job_id}", job_id, lambda found: read(Job, found))


def explain_job(job_id: str) -> Call[Explanation]:
    """Explain why a job is in its state."""
    path = "/v1/jobs/{job_id}/explain"
    return _of_job("explain_job", path, job_id, lambda found: read(Explanation, found))


def count_jobs(*, org_id: str | None = None) -> Call[list[JobCounts]]:
    """Count jobs by state and queue."""
    return Call(
        "count_jobs",
        "GET",
        "/v1/jobs/counts",
        lambda found: [read(JobCounts, one) for one in found],
        query={"org_id": org_id},
    )


def cancel_job(job_id: str, *, reason: str) -> Call[str]:
    """Cancel a job; return canceled, requested or too_late."""
    return Call(
        "cancel_job",
        "POST",
        "/v1/jobs/{job_id}/cancel",
        lambda found: str(found["outcome"]),
        names={"job_id": job_id},
        body={"reason": reason},
        is_repeatable=False,
    )


def _of_job(operation_id: str, path: str, job_id: str, reading: Callable[[Any], T]) -> Call[T]:
    return Call(operation_id, "GET", path, reading, names={"job_id": job_id})


def list_webhooks(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Webhook]]:
    """List endpoints, oldest first."""
    query = {"limit": limit, "cursor": cursor}
    return Call("list_webhooks", "GET", "/v1/webhooks", _listing(Webhook), query=query)


def add_webhook(url: str, *, reason: str, events: Sequence[str] = ()) -> Call[Webhook]:
    """Register an endpoint; its secret is in the answer and is not shown again."""
    return Call(
        "add_webhook",
        "POST",
        "/v1/webhooks",
        lambda found: read(Webhook, found),
        body={"url": url, "events": list(events), "reason": reason},
        is_repeatable=False,
    )


def remove_webhook(webhook_id: str, *, reason: str) -> Call[bool]:
    """Remove an endpoint."""
    return Call(
        "remove_webhook",
        "POST",
        "/v1/webhooks/{webhook_id}/remove",
        lambda found: bool(found["changed"]),
        names={"webhook_id": webhook_id},
        body={"reason": reason},
        is_repeatable=False,
    )


def stream_events(
    subjects: Sequence[str] = (), *, org_id: str | None = None, after: str | None = None
) -> Call[Event]:
    """Stream committed changes, from *after* or from now on."""
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = after
    query = {"subject": list(subjects), "org_id": org_id}
    return Call(
        "stream_events",
        "GET",
        "/v1/events",
        lambda found: read(Event, found),
        query=query,
        headers=headers,
    )


def pause_after(attempt: int, retry_after: str | None, rng: random.Random) -> float:
    """How long to wait before the next attempt: what the server says, or longer each time."""
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), LONGEST_PAUSE_SECONDS)
    longest = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS)
    return rng.uniform(longest / 2, longest)


class EventReader:
    """Reads server-sent events from bytes, and keeps the position to resume from."""

    def __init__(self, after: str | None) -> None:
        self.position = after
        self.retry_seconds = 2.0
        # Whether the server said farewell.
        self.has_ended = False
        self._text = b""
        self._fields: dict[str, list[str]] = {}

    def begin(self) -> None:
        """Begin with a new connection. Half an event of the one before is dropped."""
        self._text, self._fields, self.has_ended = b"", {}, False

    def feed(self, part: bytes) -> Iterator[Event]:
        """Yield the events that *part* completes. Raises StreamEnded."""
        *lines, self._text = (self._text + part).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line:
                name, _, value = line.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            named, self._fields = self._fields, {}
            yield from self._dispatch(named)

    def _dispatch(self, named: Mapping[str, list[str]]) -> Iterator[Event]:
        if "id" in named:
            self.position = named["id"][-1]
        if "retry" in named and named["retry"][-1].isdecimal():
            self.retry_seconds = int(named["retry"][-1]) / 1000
        if "data" not in named:
            return
        document = json.loads("\n".join(named["data"]))
        match named.get("event", ["message"])[-1]:
            case "change":
                yield read(Event, {**document, "position": self.position})
            case "end":
                self.has_ended = True
                if document.get("reason") == "access_ended":
                    raise StreamEnded(
                        401, "access_ended", "The key of the stream is no longer valid."
                    )


def is_final(error: ApiError) -> bool:
    """Whether a stream that got this error is not opened again."""
    return error.status not in RETRIED and error.status != 0
