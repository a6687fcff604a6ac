"""Profile one drained no-op job: Python calls, CPU of worker and server, statements, WAL.

    python bench/drained_job.py [--jobs 5000]

Calls are counted by a profile function in every thread, in a drain of its own. The difference of a
long and a short drain leaves out what a worker does once. CPU, statements and WAL are those of an
unprofiled drain. PostgreSQL is a private server with durable commits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.throughput import ORG, PAD
from holdfast import Holdfast, Settings
from holdfast.store import open_store
from holdfast.store.store import Tx
from tests.postgres_server import PostgresServer


class Calls:
    """Counts Python and C calls of all threads that start inside the block."""

    def __init__(self) -> None:
        self.python = 0
        self.c = 0

    def __enter__(self) -> Calls:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.c += 1


def noop(job: object, payload: object) -> None:
    """Do nothing."""


def drain(url: str) -> None:
    with Holdfast(settings=Settings(db=url, claim_limit=1000, settle_limit=1000)) as hf:
        hf.job("noop")(noop)
        hf.worker(queues=["q:default"], concurrency=4).run(until_idle=True)


def fill(url: str, jobs: int) -> None:
    with Holdfast(settings=Settings(db=url)) as hf:
        hf.job("noop")(noop)
        for start in range(0, jobs, 1000):
            chunk = [{"i": number, "pad": PAD} for number in range(start, min(start + 1000, jobs))]
            hf.enqueue_many("noop", chunk, org_id=ORG)


def count_calls(url: str, jobs: int) -> tuple[float, float]:
    """Python and C calls per job."""
    found = []
    for size in (jobs // 5, jobs):
        fill(url, size)
        with Calls() as calls:
            drain(url)
        found.append((calls.python, calls.c, size))
    (py, c, few), (more_py, more_c, many) = found
    return (more_py - py) / (many - few), (more_c - c) / (many - few)


def server_ticks(process_id: int) -> float:
    """CPU seconds of a PostgreSQL server and of its processes, ended ones included."""
    total = 0
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    for one in (process_id, *map(int, children)):
        try:
            stat = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended just now.
        total += sum(map(int, stat[11:15] if one == process_id else stat[11:13]))
    return total / 100


def profile(url: str, jobs: int, server: PostgresServer | None) -> None:
    python, c = count_calls(url, jobs)
    fill(url, jobs)
    ran: Counter[str] = Counter()
    ready = Tx._ready

    def noted(tx: Tx, statement: Any, params: dict[str, Any]) -> Any:
        ran[statement.name] += 1
        return ready(tx, statement, params)

    wal = 0
    ticks = server_ticks(server.process.pid) if server and server.process else 0.0
    with mock.patch.object(Tx, "_ready", noted):
        before, began = _wal(url), time.process_time()
        drain(url)
        worker = time.process_time() - began
        wal = _wal(url) - before
    if server and server.process:
        ticks = server_ticks(server.process.pid) - ticks
    print(f"{'postgresql' if server else 'sqlite'}, per job of {jobs}:")
    print(f"  Python calls      {python:8.1f}")
    print(f"  C calls           {c:8.1f}")
    print(f"  CPU worker, us    {worker / jobs * 1e6:8.1f}")
    if server:
        print(f"  CPU server, us    {ticks / jobs * 1e6:8.1f}")
        print(f"  WAL, bytes        {wal / jobs:8.0f}")
    print(f"  statements        {sum(ran.values()) / jobs:8.4f}")


def _wal(url: str) -> int:
    if not url.startswith("postgresql"):
        return 0
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert row is not None
        return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder:
        profile(f"sqlite:///{folder}/work.db", jobs, None)
    server = PostgresServer(durable=True)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE drained")
        store = open_store(server.dsn("drained"), check=False)
        store.migrate()
        store.close()
        profile(server.dsn("drained"), jobs, server)
    finally:
        server.close()


if __name__ == "__main__":
    main()
