"""Holdfast as a peer of the shared benchmark harness: `info reset single bulk worker latency`.

The harness brings `common` (the payload, the meter, the gate). Settings come in BENCH_SET:
``{"backend": "postgres" | "sqlite", "threads": n, "claim": n}``.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import common

from holdfast import Holdfast, Settings
from holdfast.store import open_store

SET: dict[str, Any] = {
    "backend": "postgres",
    "kind": "sync",
    "threads": 4,
    "claim": 1000,
    "bulk": 1000,
    **common.SETTINGS,
}
DB = "b_holdfast"
FILE = common.ROOT + "/sqlite/holdfast.db"
SQLITE = SET["backend"] == "sqlite"
URL = f"sqlite:///{FILE}" if SQLITE else common.pg_dsn(DB)
ORG = "0198c0de-0000-7000-8000-00000000000a"
UNFINISHED = "state in ('queued', 'processing')"


def app() -> Holdfast:
    hf = Holdfast(settings=Settings(db=URL, claim_limit=SET["claim"], settle_limit=SET["claim"]))
    if SET["kind"] == "sync":

        @hf.job("noop")
        def noop(job: object, payload: dict[str, Any]) -> None:
            common.hit(payload)

    else:

        @hf.job("noop")
        async def anoop(job: object, payload: dict[str, Any]) -> None:
            common.hit(payload)

    return hf


def info() -> None:
    table = "holdfast_job" if SQLITE else "holdfast.job"
    common.emit(
        peer="holdfast",
        version=version("holdfast"),
        backend=SET["backend"],
        keeps_history=True,
        store="sqlite" if SQLITE else "pg",
        db=FILE if SQLITE else DB,
        bulk=True,
        settings=SET,
        pending=f"select count(*) from {table} where {UNFINISHED}",
        notes="job rows and one audit row per state change kept; fenced, row-level security on",
    )


def reset() -> None:
    if SQLITE:
        for suffix in ("", "-wal", "-shm", ".lock"):
            Path(FILE + suffix).unlink(missing_ok=True)
    else:
        common.fresh_db(DB)
    store = open_store(URL, check=False)
    store.migrate()
    store.close()


def single(n: int) -> None:
    hf = app()
    _ = hf.store  # exclude connecting from the measurement
    began = time.perf_counter()
    for i in range(n):
        hf.enqueue("noop", common.payload(i), org_id=ORG)
    common.emit(elapsed=time.perf_counter() - began)


def bulk(n: int) -> None:
    hf = app()
    _ = hf.store  # exclude connecting from the measurement
    began = time.perf_counter()
    for chunk in common.chunks(n, SET["bulk"]):
        hf.enqueue_many("noop", [common.payload(i) for i in chunk], org_id=ORG)
    common.emit(elapsed=time.perf_counter() - began)


def worker() -> None:
    hf = app()
    running = hf.worker(queues=["q:default"], concurrency=SET["threads"])
    common.gate()
    running.run()


def latency(count: int, pause: float, warm: int) -> None:
    hf = app()
    for i in range(warm):
        hf.enqueue("noop", common.payload(i, 1), org_id=ORG)
    time.sleep(1)
    for i in range(count):
        hf.enqueue("noop", common.payload(i), org_id=ORG)
        time.sleep(pause / 1000)
    hf.close()


if __name__ == "__main__":
    os.umask(0o022)
    common.main(
        __file__, info=info, reset=reset, single=single, bulk=bulk, worker=worker, latency=latency
    )
