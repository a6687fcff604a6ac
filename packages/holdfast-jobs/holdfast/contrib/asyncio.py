"""Holdfast in an asyncio program: a worker beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.worker.worker import Worker


@asynccontextmanager
async def working(hf: Holdfast, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker in a thread while the block runs; it drains at the end.

    *options* are those of :meth:`Holdfast.worker`. Asynchronous handlers run on the event loop of
    the worker, not on that of the caller.
    """
    worker = await asyncio.to_thread(hf.worker, **options)
    thread = threading.Thread(target=worker.run, name="holdfast-worker", daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.drain()
        await asyncio.to_thread(thread.join)
