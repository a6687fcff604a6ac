"""Queues: list them, pause and resume them, and change their limits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Done, Model, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.queues import QueueFilter, QueueView

router = Resource("queues")


class Queue(Model):
    """A queue with its rules and how many jobs wait in it."""

    name: str
    weight: int
    max_running: int | None
    max_running_per_tenant: int | None
    max_depth: int | None
    max_depth_per_tenant: int | None
    rate: str | None = Field(description="Such as 10/1s.")
    is_paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    set_by: str
    waiting: int
    deferred: int
    tenants: int
    oldest_at: datetime | None

    @classmethod
    def from_item(cls, view: QueueView) -> Queue:
        """Render a queue of the operator API."""
        rules = view.settings
        return cls(
            name=view.name,
            weight=rules.weight,
            max_running=rules.max_running,
            max_running_per_tenant=rules.max_running_per_tenant,
            max_depth=rules.max_depth,
            max_depth_per_tenant=rules.max_depth_per_tenant,
            rate=None if rules.rate is None else str(rules.rate),
            is_paused=view.paused_at is not None,
            paused_at=view.paused_at,
            paused_by=view.paused_by,
            pause_reason=view.pause_reason,
            set_by=view.set_by,
            waiting=view.waiting,
            deferred=view.deferred,
            tenants=view.tenants,
            oldest_at=view.oldest_at,
        )


class QueueChange(Body):
    """Rules to change; a rule that is null is lifted, and a rule that is left out stays."""

    reason: Reason
    weight: int | None = Field(default=None, ge=1, le=100)
    max_running: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_running_per_tenant: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_depth: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_depth_per_tenant: int | None = Field(default=None, ge=1, le=2**31 - 1)
    rate: str | None = Field(default=None, max_length=50)


@router.read("", operation_id="list_queues")
def list_queues(
    caller: CallerOf, is_paused: bool | None = None, limit: Limit = 50, cursor: Cursor = None
) -> Listing[Queue]:
    """List queues in order of names. For keys of operations."""
    pages = caller.pages("queues", is_paused=is_paused)
    after = pages.start(cursor, "")
    found = caller.operator.queues.list(QueueFilter(is_paused), limit=limit, after=after)
    return Listing[Queue].model_validate(pages.page(found, Queue.from_item))


@router.read(
    "/{name}", operation_id="get_queue", volatile=("waiting", "deferred", "tenants", "oldest_at")
)
def get_queue(name: str, caller: CallerOf) -> Queue:
    """Return one queue."""
    return Queue.from_item(caller.operator.queues.get(name))


@router.write("/{name}/pause", operation_id="pause_queue")
def pause_queue(name: str, action: Action, caller: CallerOf) -> Done:
    """Claim no more jobs from a queue; running jobs finish."""
    return Done(changed=caller.operator.queues.pause(name, reason=action.reason))


@router.write("/{name}/resume", operation_id="resume_queue")
def resume_queue(name: str, action: Action, caller: CallerOf) -> Done:
    """Claim from a queue again."""
    return Done(changed=caller.operator.queues.resume(name, reason=action.reason))


@router.write("/{name}/limits", operation_id="set_queue_limits")
def set_queue_limits(name: str, change: QueueChange, caller: CallerOf) -> Queue:
    """Change the weight and the limits of a queue. The change overrides the code."""
    given: Any = change.model_dump(exclude={"reason"}, exclude_unset=True)
    return Queue.from_item(caller.operator.queues.set(name, reason=change.reason, **given))


@router.write("/{name}/reset", operation_id="reset_queue")
def reset_queue(name: str, action: Action, caller: CallerOf) -> Done:
    """Let a queue follow the code and the settings again."""
    return Done(changed=caller.operator.queues.reset(name, reason=action.reason))
