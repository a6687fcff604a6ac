"""Huey on SQLite: one thread per process was the fastest. It has no call for many jobs."""

from __future__ import annotations

import logging
import sqlite3
import time
from functools import cached_property
from typing import Any, ClassVar

from huey import SqliteHuey

from bench.peers.adapter import URL, WARM, Adapter, gate, hit, payload, run

FILE = URL.removeprefix("sqlite:///")
logging.getLogger("huey").setLevel(logging.ERROR)


class HueyAdapter(Adapter):
    distribution = "huey"
    settings: ClassVar[dict[str, Any]] = {
        "workers": 1,
        "worker_type": "thread",
        "initial_delay": 0.01,
        "max_delay": 0.05,
    }

    @cached_property
    def huey(self) -> Any:
        return SqliteHuey("bench", filename=FILE, fsync=True, timeout=30)

    @cached_property
    def noop(self) -> Any:
        @self.huey.task(name="noop")
        def noop(payload: dict[str, Any]) -> None:
            hit(payload)

        return noop

    @cached_property
    def _reader(self) -> sqlite3.Connection:
        return sqlite3.connect(FILE, timeout=30)

    def prepare(self) -> None:
        _ = self.huey.storage.conn

    def enqueue_one(self, count: int) -> float:
        noop = self.noop
        began = time.perf_counter()
        for number in range(count):
            noop(payload(number))
        return time.perf_counter() - began

    def enqueue_bulk(self, count: int) -> float:
        return self.enqueue_one(count)

    def work(self) -> None:
        _ = self.noop
        consumer = self.huey.create_consumer(periodic=False, **self.settings)
        gate()
        consumer.run()

    def is_empty(self) -> bool:
        # A task leaves the table when it is claimed.
        return self._reader.execute("SELECT 1 FROM task LIMIT 1").fetchone() is None

    def trickle(self, count: int, pause: float) -> None:
        for number in range(WARM):
            self.noop(payload(number, warm=True))
        time.sleep(1)
        for number in range(count):
            self.noop(payload(number))
            time.sleep(pause)


if __name__ == "__main__":
    run(HueyAdapter())
