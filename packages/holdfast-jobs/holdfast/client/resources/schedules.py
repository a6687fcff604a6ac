"""Methods about schedules. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from holdfast.client.calls.schedules import (
    ComingTick,
    Fired,
    Schedule,
    Tick,
    get_schedule,
    list_coming_ticks,
    list_schedule_ticks,
    list_schedules,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
)
from holdfast.client.operations import (
    AsyncCaller,
    Caller,
    Page,
)


class Schedules:
    """The schedules that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(
        self,
        *,
        is_paused: bool | None = None,
        set_by: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """List schedules in order of names. For keys of operations."""
        return self._call(
            list_schedules(is_paused=is_paused, set_by=set_by, limit=limit, cursor=cursor)
        )

    def get(self, name: str) -> Schedule:
        """Return one schedule."""
        return self._call(get_schedule(name))

    def ticks(self, name: str, *, limit: int | None = None) -> tuple[Tick, ...]:
        """Return the newest ticks of a schedule."""
        return self._call(list_schedule_ticks(name, limit=limit))

    def next(self, name: str, *, count: int | None = None) -> tuple[ComingTick, ...]:
        """Return the next ticks of a schedule."""
        return self._call(list_coming_ticks(name, count=count))

    def pause(self, name: str, *, reason: str) -> bool:
        """Fire a schedule no more."""
        return self._call(pause_schedule(name, reason=reason))

    def resume(self, name: str, *, reason: str) -> bool:
        """Fire a schedule again."""
        return self._call(resume_schedule(name, reason=reason))

    def trigger(self, name: str, *, reason: str) -> Fired:
        """Fire a schedule now. For an admin of operations."""
        return self._call(trigger_schedule(name, reason=reason))

    def every(
        self, *, is_paused: bool | None = None, set_by: str | None = None, limit: int | None = None
    ) -> Iterator[Schedule]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(is_paused=is_paused, set_by=set_by, limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncSchedules:
    """The schedules that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(
        self,
        *,
        is_paused: bool | None = None,
        set_by: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """List schedules in order of names. For keys of operations."""
        return await self._call(
            list_schedules(is_paused=is_paused, set_by=set_by, limit=limit, cursor=cursor)
        )

    async def get(self, name: str) -> Schedule:
        """Return one schedule."""
        return await self._call(get_schedule(name))

    async def ticks(self, name: str, *, limit: int | None = None) -> tuple[Tick, ...]:
        """Return the newest ticks of a schedule."""
        return await self._call(list_schedule_ticks(name, limit=limit))

    async def next(self, name: str, *, count: int | None = None) -> tuple[ComingTick, ...]:
        """Return the next ticks of a schedule."""
        return await self._call(list_coming_ticks(name, count=count))

    async def pause(self, name: str, *, reason: str) -> bool:
        """Fire a schedule no more."""
        return await self._call(pause_schedule(name, reason=reason))

    async def resume(self, name: str, *, reason: str) -> bool:
        """Fire a schedule again."""
        return await self._call(resume_schedule(name, reason=reason))

    async def trigger(self, name: str, *, reason: str) -> Fired:
        """Fire a schedule now. For an admin of operations."""
        return await self._call(trigger_schedule(name, reason=reason))

    async def every(
        self, *, is_paused: bool | None = None, set_by: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Schedule]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(is_paused=is_paused, set_by=set_by, limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
