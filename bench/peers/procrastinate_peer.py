"""Procrastinate: psycopg and asyncio. Ten jobs at a time and a pool of 4 were the fastest."""

from __future__ import annotations

import asyncio
import time
from functools import cached_property
from typing import Any, ClassVar

import procrastinate
import psycopg

from bench.peers.adapter import BULK, URL, WARM, Adapter, chunks, gate, hit, payload, run

POOL = 4


class ProcrastinateAdapter(Adapter):
    distribution = "procrastinate"
    settings: ClassVar[dict[str, Any]] = {"concurrency": 10, "pool": POOL, "bulk": BULK}

    def __init__(self) -> None:
        self.app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=POOL, max_size=POOL)
        )

        @self.app.task(name="noop")
        async def noop(payload: dict[str, Any]) -> None:
            hit(payload)

        self.noop = noop

    @cached_property
    def _reader(self) -> psycopg.Connection[Any]:
        return psycopg.connect(URL, autocommit=True)

    def prepare(self) -> None:
        async def apply() -> None:
            async with self.app.open_async():
                await self.app.schema_manager.apply_schema_async()

        asyncio.run(apply())

    def enqueue_one(self, count: int) -> float:
        async def enqueue() -> float:
            async with self.app.open_async():
                began = time.perf_counter()
                for number in range(count):
                    await self.noop.defer_async(payload=payload(number))
                return time.perf_counter() - began

        return asyncio.run(enqueue())

    def enqueue_bulk(self, count: int) -> float:
        async def enqueue() -> float:
            async with self.app.open_async():
                began = time.perf_counter()
                for chunk in chunks(count):
                    await self.noop.batch_defer_async(*({"payload": payload(n)} for n in chunk))
                return time.perf_counter() - began

        return asyncio.run(enqueue())

    def work(self) -> None:
        async def serve() -> None:
            async with self.app.open_async():
                gate()
                await self.app.run_worker_async(
                    concurrency=self.settings["concurrency"], listen_notify=True
                )

        asyncio.run(serve())

    def is_empty(self) -> bool:
        unfinished = "SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"
        return self._reader.execute(unfinished).fetchone() is None

    def trickle(self, count: int, pause: float) -> None:
        async def enqueue() -> None:
            async with self.app.open_async():
                for number in range(WARM):
                    await self.noop.defer_async(payload=payload(number, warm=True))
                await asyncio.sleep(1)
                for number in range(count):
                    await self.noop.defer_async(payload=payload(number))
                    await asyncio.sleep(pause)

        asyncio.run(enqueue())


if __name__ == "__main__":
    run(ProcrastinateAdapter())
