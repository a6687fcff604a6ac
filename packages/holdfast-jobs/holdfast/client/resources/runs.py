"""Methods about runs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from holdfast.client.calls.runs import Run, get_run, list_runs, start_run
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Runs:
    """The runs that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def start(
        self,
        *,
        name: str,
        reason: str,
        max_jobs: int | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> Run:
        """Start a bounded run in the server. For an admin of operations.

        The answer is the stored run; Location is where its report is. Without pending work the run has
        ended as skipped.
        """
        return self._call(
            start_run(name=name, reason=reason, max_jobs=max_jobs, idempotency_key=idempotency_key)
        )

    def list(
        self, *, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Run]:
        """List runs, newest first. For keys of operations."""
        return self._call(list_runs(name=name, limit=limit, cursor=cursor))

    def get(self, run_id: str) -> Run:
        """Return one run."""
        return self._call(get_run(run_id))

    def every(self, *, name: str | None = None, limit: int | None = None) -> Iterator[Run]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(name=name, limit=limit, cursor=cursor)
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncRuns:
    """The runs that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def start(
        self,
        *,
        name: str,
        reason: str,
        max_jobs: int | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> Run:
        """Start a bounded run in the server. For an admin of operations.

        The answer is the stored run; Location is where its report is. Without pending work the run has
        ended as skipped.
        """
        return await self._call(
            start_run(name=name, reason=reason, max_jobs=max_jobs, idempotency_key=idempotency_key)
        )

    async def list(
        self, *, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Run]:
        """List runs, newest first. For keys of operations."""
        return await self._call(list_runs(name=name, limit=limit, cursor=cursor))

    async def get(self, run_id: str) -> Run:
        """Return one run."""
        return await self._call(get_run(run_id))

    async def every(
        self, *, name: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Run]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(name=name, limit=limit, cursor=cursor)
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
