"""PgQueuer: asyncpg and uvloop. Claims of 2,000 and a pool of 4 were the fastest of several."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, ClassVar

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.peers.adapter import BULK, URL, WARM, Adapter, chunks, gate, hit, payload, run


def encoded(number: int, *, warm: bool = False) -> bytes:
    return json.dumps(payload(number, warm=warm)).encode()


async def queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(URL)))


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(coroutine)


class PgQueuerAdapter(Adapter):
    distribution = "pgqueuer"
    settings: ClassVar[dict[str, Any]] = {"batch_size": 2000, "pool": 4, "bulk": BULK}

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def prepare(self) -> None:
        async def install() -> None:
            await (await queries()).install()

        finish(install())

    def enqueue_one(self, count: int) -> float:
        async def enqueue() -> float:
            jobs = await queries()
            began = time.perf_counter()
            for number in range(count):
                await jobs.enqueue("noop", encoded(number), 0)
            return time.perf_counter() - began

        return float(finish(enqueue()))

    def enqueue_bulk(self, count: int) -> float:
        async def enqueue() -> float:
            jobs = await queries()
            began = time.perf_counter()
            for chunk in chunks(count):
                size = len(chunk)
                await jobs.enqueue(["noop"] * size, [encoded(n) for n in chunk], [0] * size)
            return time.perf_counter() - began

        return float(finish(enqueue()))

    def work(self) -> None:
        async def serve() -> None:
            size = self.settings["pool"]
            pool = await asyncpg.create_pool(URL, min_size=size, max_size=size)
            queuer = PgQueuer(AsyncpgPoolDriver(pool))

            @queuer.entrypoint("noop")
            async def noop(job: Any) -> None:
                hit(json.loads(job.payload))

            gate()
            await queuer.run(
                batch_size=self.settings["batch_size"], dequeue_timeout=timedelta(seconds=30)
            )

        finish(serve())

    def is_empty(self) -> bool:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._reader = self._loop.run_until_complete(asyncpg.connect(URL))
        found = self._reader.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)")
        return not self._loop.run_until_complete(found)

    def trickle(self, count: int, pause: float) -> None:
        async def enqueue() -> None:
            jobs = await queries()
            for number in range(WARM):
                await jobs.enqueue("noop", encoded(number, warm=True), 0)
            await asyncio.sleep(1)
            for number in range(count):
                await jobs.enqueue("noop", encoded(number), 0)
                await asyncio.sleep(pause)

        finish(enqueue())


if __name__ == "__main__":
    run(PgQueuerAdapter())
