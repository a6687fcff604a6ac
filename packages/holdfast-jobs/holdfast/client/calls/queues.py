"""Calls about queues. Written by tools/client_code.py."""

from __future__ import annotations

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
class Queue:
    """A queue with its rules and how many jobs wait in it."""

    name: str
    weight: int
    max_running: int | None
    max_running_per_tenant: int | None
    max_depth: int | None
    max_depth_per_tenant: int | None
    rate: str | None
    is_paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    set_by: str
    waiting: int
    deferred: int
    tenants: int
    oldest_at: datetime | None


def list_queues(
    *, is_paused: bool | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Queue]]:
    """List queues in order of names. For keys of operations."""
    return Call(
        "list_queues",
        "GET",
        "/v1/queues",
        lambda found: read_page(Queue, found),
        query={"is_paused": is_paused, "limit": limit, "cursor": cursor},
    )


def get_queue(name: str) -> Call[Queue]:
    """Return one queue."""
    return Call(
        "get_queue",
        "GET",
        "/v1/queues/{name}",
        lambda found: read(Queue, found),
        names={"name": name},
    )


def pause_queue(name: str, *, reason: str) -> Call[bool]:
    """Claim no more jobs from a queue; running jobs finish."""
    return Call(
        "pause_queue",
        "POST",
        "/v1/queues/{name}/pause",
        lambda found: bool(found["changed"]),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def resume_queue(name: str, *, reason: str) -> Call[bool]:
    """Claim from a queue again."""
    return Call(
        "resume_queue",
        "POST",
        "/v1/queues/{name}/resume",
        lambda found: bool(found["changed"]),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def set_queue_limits(
    name: str,
    *,
    reason: str,
    weight: int | NotGiven | None = NOT_GIVEN,
    max_running: int | NotGiven | None = NOT_GIVEN,
    max_running_per_tenant: int | NotGiven | None = NOT_GIVEN,
    max_depth: int | NotGiven | None = NOT_GIVEN,
    max_depth_per_tenant: int | NotGiven | None = NOT_GIVEN,
    rate: str | NotGiven | None = NOT_GIVEN,
) -> Call[Queue]:
    """Change the weight and the limits of a queue. The change overrides the code."""
    return Call(
        "set_queue_limits",
        "POST",
        "/v1/queues/{name}/limits",
        lambda found: read(Queue, found),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given(
            {
                "reason": reason,
                "weight": weight,
                "max_running": max_running,
                "max_running_per_tenant": max_running_per_tenant,
                "max_depth": max_depth,
                "max_depth_per_tenant": max_depth_per_tenant,
                "rate": rate,
            }
        ),
    )


def reset_queue(name: str, *, reason: str) -> Call[bool]:
    """Let a queue follow the code and the settings again."""
    return Call(
        "reset_queue",
        "POST",
        "/v1/queues/{name}/reset",
        lambda found: bool(found["changed"]),
        names={"name": name},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
