"""Holdfast in FastAPI and Starlette: the lifespan of an application, and dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.contrib.asyncio import working

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(
    hf: Holdfast,
    *,
    worker: bool = False,
    within: Lifespan | None = None,
    **options: Any,
) -> Lifespan:
    """The lifespan of an application: ``FastAPI(lifespan=lifespan(hf))``.

    It opens the database before the first request and closes it at the end. With *worker*, it also
    runs a worker in a thread of the process, with the *options* of :meth:`Holdfast.worker`.
    *within* is another lifespan, which starts first and ends last.
    """

    @asynccontextmanager
    async def span(_app: Any) -> AsyncIterator[None]:
        await asyncio.to_thread(lambda: hf.store)
        try:
            if worker:
                async with working(hf, **options):
                    yield
            else:
                yield
        finally:
            await asyncio.to_thread(hf.close)

    if within is None:
        return span

    @asynccontextmanager
    async def both(app: Any) -> AsyncIterator[None]:
        async with within(app), span(app):
            yield

    return both


def provide(hf: Holdfast) -> Callable[[], Holdfast]:
    """A dependency that returns the application: ``Annotated[Holdfast, Depends(provide(hf))]``.

    Tests replace it with ``app.dependency_overrides``.
    """

    def holdfast() -> Holdfast:
        return hf

    return holdfast
