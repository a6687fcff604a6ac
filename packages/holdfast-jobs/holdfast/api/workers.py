"""Workers: the running ones and those that died recently."""

from __future__ import annotations

from datetime import datetime

from holdfast.api.caller import CallerOf
from holdfast.api.models import Model
from holdfast.api.resource import Resource

router = Resource("workers")


class Worker(Model):
    """A worker and its last heartbeat."""

    worker_id: str
    state: str
    is_gone: bool
    queues: list[str]
    job_types: list[str]
    host: str
    process_id: int
    version: str
    started_at: datetime
    seen_at: datetime
    settled_at: datetime | None
    unsettled: int
    longest_ms: int
    longest_type: str | None


@router.read("", operation_id="list_workers")
def list_workers(caller: CallerOf) -> list[Worker]:
    """List workers, a thousand at most. For keys of operations."""
    return [Worker.model_validate(worker) for worker in caller.operator.workers.list()]
