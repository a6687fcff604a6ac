"""Methods about workers. Written by tools/client_code.py."""

from __future__ import annotations

from holdfast.client.calls.workers import Worker, list_workers
from holdfast.client.operations import (
    AsyncCaller,
    Caller,
)


class Workers:
    """The workers that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def list(self) -> tuple[Worker, ...]:
        """List workers, a thousand at most. For keys of operations."""
        return self._call(list_workers())


class AsyncWorkers:
    """The workers that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def list(self) -> tuple[Worker, ...]:
        """List workers, a thousand at most. For keys of operations."""
        return await self._call(list_workers())
