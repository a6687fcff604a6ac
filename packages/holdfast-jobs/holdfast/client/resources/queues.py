"""Methods about queues. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from holdfast.client.calls.queues import (
    Queue,
    get_queue,
    list_queues,
    pause_queue,
    reset_queue,
    resume_queue,
    set_queue_limits,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Queues:
    """The queues that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(
        self, *, is_paused: bool | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Queue]:
        """List queues in order of names. For keys of operations."""
        return self._call(list_queues(is_paused=is_paused, limit=limit, cursor=cursor))

    def get(self, name: str) -> Queue:
        """Return one queue."""
        return self._call(get_queue(name))

    def pause(self, name: str, *, reason: str) -> bool:
        """Claim no more jobs from a queue; running jobs finish."""
        return self._call(pause_queue(name, reason=reason))

    def resume(self, name: str, *, reason: str) -> bool:
        """Claim from a queue again."""
        return self._call(resume_queue(name, reason=reason))

    def set_limits(
        self,
        name: str,
        *,
        reason: str,
        weight: int | NotGiven | None = NOT_GIVEN,
        max_running: int | NotGiven | None = NOT_GIVEN,
        max_running_per_tenant: int | NotGiven | None = NOT_GIVEN,
        max_depth: int | NotGiven | None = NOT_GIVEN,
        max_depth_per_tenant: int | NotGiven | None = NOT_GIVEN,
        rate: str | NotGiven | None = NOT_GIVEN,
    ) -> Queue:
        """Change the weight and the limits of a queue. The change overrides the code."""
        return self._call(
            set_queue_limits(
                name,
                reason=reason,
                weight=weight,
                max_running=max_running,
                max_running_per_tenant=max_running_per_tenant,
                max_depth=max_depth,
                max_depth_per_tenant=max_depth_per_tenant,
                rate=rate,
            )
        )

    def reset(self, name: str, *, reason: str) -> bool:
        """Let a queue follow the code and the settings again."""
        return self._call(reset_queue(name, reason=reason))

    def every(self, *, is_paused: bool | None = None, limit: int | None = None) -> Iterator[Queue]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(is_paused=is_paused, limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncQueues:
    """The queues that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self, *, is_paused: bool | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Queue]:
        """List queues in order of names. For keys of operations."""
        return await self._call(list_queues(is_paused=is_paused, limit=limit, cursor=cursor))

    async def get(self, name: str) -> Queue:
        """Return one queue."""
        return await self._call(get_queue(name))

    async def pause(self, name: str, *, reason: str) -> bool:
        """Claim no more jobs from a queue; running jobs finish."""
        return await self._call(pause_queue(name, reason=reason))

    async def resume(self, name: str, *, reason: str) -> bool:
        """Claim from a queue again."""
        return await self._call(resume_queue(name, reason=reason))

    async def set_limits(
        self,
        name: str,
        *,
        reason: str,
        weight: int | NotGiven | None = NOT_GIVEN,
        max_running: int | NotGiven | None = NOT_GIVEN,
        max_running_per_tenant: int | NotGiven | None = NOT_GIVEN,
        max_depth: int | NotGiven | None = NOT_GIVEN,
        max_depth_per_tenant: int | NotGiven | None = NOT_GIVEN,
        rate: str | NotGiven | None = NOT_GIVEN,
    ) -> Queue:
        """Change the weight and the limits of a queue. The change overrides the code."""
        return await self._call(
            set_queue_limits(
                name,
                reason=reason,
                weight=weight,
                max_running=max_running,
                max_running_per_tenant=max_running_per_tenant,
                max_depth=max_depth,
                max_depth_per_tenant=max_depth_per_tenant,
                rate=rate,
            )
        )

    async def reset(self, name: str, *, reason: str) -> bool:
        """Let a queue follow the code and the settings again."""
        return await self._call(reset_queue(name, reason=reason))

    async def every(
        self, *, is_paused: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[Queue]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(is_paused=is_paused, limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
