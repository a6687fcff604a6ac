"""What the processes of a contender execute. Standard library only: it runs in their environments.

A contender is a module that passes an Adapter to `run`, or a script in another language that
answers the same commands:

    describe             print {"version", "settings"}
    prepare              create the schema in the empty database BENCH_URL
    enqueue-one N        enqueue N jobs with one call each, print {"seconds"}
    enqueue-bulk N       enqueue N jobs with the bulk call, print {"seconds"}
    work                 execute jobs until killed
    watch                wait for the file `handled`, then print {"empty_at"} when no job is left
    trickle N PAUSE_MS   enqueue N jobs for an idle worker, one at a time

Processes of one phase share the folder BENCH_FOLDER: a worker writes `ready.<pid>` and its meter
there, and waits for the file `go`.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

URL = os.environ.get("BENCH_URL", "")
FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
PAD = "x" * 150
# Jobs a bulk call takes; all contenders are at or near their best with it.
BULK = 1000
WARM = 20

HEAD = struct.Struct("<ddQ")
KEPT = 1000
METER_BYTES = 64 + 8 * KEPT


def payload(number: int, *, warm: bool = False) -> dict[str, Any]:
    """About 200 bytes of JSON."""
    return {"t": time.time(), "i": number, "warm": warm, "pad": PAD}


def chunks(count: int) -> Iterator[range]:
    for start in range(0, count, BULK):
        yield range(start, min(start + BULK, count))


class Meter:
    """Start of the first and last job, count and first waits of a process, in shared memory.

    One `hit` takes about a microsecond.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        self._first = 0.0
        self._handled = 0

    def hit(self, payload: dict[str, Any]) -> None:
        """Count the start of a job."""
        now = time.time()
        if payload["warm"]:
            return
        with self._lock:
            page = self._map or self._open()
            if not self._handled:
                self._first = now
            if self._handled < KEPT:
                struct.pack_into("<d", page, 64 + 8 * self._handled, now - payload["t"])
            self._handled += 1
            HEAD.pack_into(page, 0, self._first, now, self._handled)

    def _open(self) -> mmap.mmap:
        with (self._folder / f"{os.getpid()}.meter").open("w+b") as file:
            file.truncate(METER_BYTES)
            self._map = mmap.mmap(file.fileno(), METER_BYTES)
        return self._map


hit = Meter().hit


def gate() -> None:
    """Report that this worker is ready, and wait until the clock starts."""
    (FOLDER / f"ready.{os.getpid()}").touch()
    wait_for(FOLDER / "go")


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.001)


class Adapter:
    """One job system. Enqueues return the seconds of the calls, without connecting."""

    distribution: ClassVar[str]
    # The settings that were the fastest of several.
    settings: ClassVar[dict[str, Any]]

    def prepare(self) -> None:
        raise NotImplementedError

    def enqueue_one(self, count: int) -> float:
        raise NotImplementedError

    def enqueue_bulk(self, count: int) -> float:
        raise NotImplementedError

    def work(self) -> None:
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Whether the database reports that every job is done."""
        raise NotImplementedError

    def trickle(self, count: int, pause: float) -> None:
        """Enqueue WARM jobs, wait a second, then enqueue *count*, *pause* seconds apart."""
        raise NotImplementedError


def run(adapter: Adapter) -> None:
    """Execute the command of this process."""
    from importlib.metadata import version

    match sys.argv[1:]:
        case ["describe"]:
            emit(version=version(adapter.distribution), settings=adapter.settings)
        case ["prepare"]:
            adapter.prepare()
        case ["enqueue-one", count]:
            emit(seconds=adapter.enqueue_one(int(count)))
        case ["enqueue-bulk", count]:
            emit(seconds=adapter.enqueue_bulk(int(count)))
        case ["work"]:
            adapter.work()
        case ["watch"]:
            adapter.is_empty()  # connects before the clock matters
            (FOLDER / "watching").touch()
            wait_for(FOLDER / "handled")
            while not adapter.is_empty():
                time.sleep(0.002)
            emit(empty_at=time.time())
        case ["trickle", count, pause_ms]:
            adapter.trickle(int(count), float(pause_ms) / 1000)
        case other:
            raise SystemExit(f"unknown command: {other}")


def emit(**values: Any) -> None:
    print(json.dumps(values), flush=True)
