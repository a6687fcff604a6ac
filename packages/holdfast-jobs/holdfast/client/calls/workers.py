"""Calls about workers. Written by tools/client_code.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.client.models import read
from holdfast.client.operations import (
    Call,
)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker and its last heartbeat."""

    worker_id: str
    state: str
    is_gone: bool
    queues: tuple[str, ...]
    job_types: tuple[str, ...]
    host: str
    process_id: int
    version: str
    started_at: datetime
    seen_at: datetime
    settled_at: datetime | None
    unsettled: int
    longest_ms: int
    longest_type: str | None


def list_workers() -> Call[tuple[Worker, ...]]:
    """List workers, a thousand at most. For keys of operations."""
    return Call(
        "list_workers",
        "GET",
        "/v1/workers",
        lambda found: tuple(read(Worker, one) for one in found),
    )
