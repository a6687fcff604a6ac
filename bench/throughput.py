"""Compare Holdfast's throughput with the bare database, in one run, on both databases.

    python bench/throughput.py [--jobs 20000] [--backlog 200000] [--rounds 3]

The floor is plain SQL with the minimum of a queue (insert; claim and complete in groups of 500, no
audit, no history), on the same server, alternating with Holdfast. Compare the ratios: absolute
figures depend on the machine. PostgreSQL is a private server with durable commits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import Holdfast, Settings
from holdfast.store import open_store
from holdfast.store.sqlite import SqliteStore
from tests.postgres_server import PostgresServer

ORG = "0198c0de-0000-7000-8000-00000000000a"
GROUP = 500
BULK = 1000
PAD = "x" * 150


def payload(number: int) -> dict[str, Any]:
    return {"t": time.time(), "i": number, "pad": PAD}


class Measured:
    """Holdfast on one database."""

    def __init__(self, url: str) -> None:
        self.hf = Holdfast(settings=Settings(db=url, claim_limit=1000, settle_limit=1000))
        self.seen: list[float] = []
        self.goal = 0
        self.reached = threading.Event()

        @self.hf.job("noop")
        def noop(job: object, payload: dict[str, Any]) -> None:
            self.seen.append(time.time() - payload["t"])
            if len(self.seen) >= self.goal:
                self.reached.set()

    def single(self, count: int) -> float:
        began = time.perf_counter()
        for number in range(count):
            self.hf.enqueue("noop", payload(number), org_id=ORG)
        return count / (time.perf_counter() - began)

    def bulk(self, count: int) -> float:
        began = time.perf_counter()
        for start in range(0, count, BULK):
            chunk = [payload(number) for number in range(start, min(start + BULK, count))]
            self.hf.enqueue_many("noop", chunk, org_id=ORG)
        return count / (time.perf_counter() - began)

    def drain(self, count: int) -> float:
        """Return jobs per second from the first claim until *count* are done; release the rest."""
        self.seen.clear()
        self.reached.clear()
        self.goal = count
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        thread = threading.Thread(target=worker.run)
        began = time.perf_counter()
        thread.start()
        self.reached.wait(600)
        rate = len(self.seen) / (time.perf_counter() - began)
        worker.drain()
        thread.join()
        return rate

    def pick_up(self, count: int = 200) -> tuple[float, float]:
        """Return milliseconds from before the enqueue to the start of the handler: p50, p99."""
        self.seen.clear()
        self.reached.clear()
        self.goal = count
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        thread = threading.Thread(target=worker.run)
        thread.start()
        time.sleep(1.0)
        for number in range(count):
            self.hf.enqueue("noop", payload(number), org_id=ORG)
            time.sleep(0.02)
        self.reached.wait(30)
        worker.drain()
        thread.join()
        latencies = sorted(value * 1000 for value in self.seen)
        return statistics.median(latencies), latencies[int(len(latencies) * 0.99) - 1]


class Floor:
    """The minimum of a queue in the same database, written by hand."""

    CREATE = (
        "CREATE TABLE bare (id integer PRIMARY KEY, state text NOT NULL, payload text NOT NULL)"
    )

    def __init__(self, execute: Callable[..., Any], mark: str) -> None:
        self.execute = execute
        self.mark = mark

    def bulk(self, count: int) -> float:
        self.execute("DROP TABLE IF EXISTS bare")
        self.execute(self.CREATE)
        self.execute("CREATE INDEX bare_queued ON bare (id) WHERE state = 'queued'")
        began = time.perf_counter()
        for start in range(0, count, BULK):
            rows = range(start, min(start + BULK, count))
            values = ", ".join(f"({self.mark}, 'queued', {self.mark})" for _ in rows)
            given = [item for number in rows for item in (number, json.dumps(payload(number)))]
            self.execute(f"INSERT INTO bare (id, state, payload) VALUES {values}", given)
        return count / (time.perf_counter() - began)

    def drain(self, count: int) -> float:
        pick = f"SELECT id FROM bare WHERE state = 'queued' ORDER BY id LIMIT {GROUP}"
        began = time.perf_counter()
        for _ in range(count // GROUP):
            claimed = self.execute(
                f"UPDATE bare SET state = 'taken' WHERE id IN ({pick}) RETURNING id, payload"
            ).fetchall()
            ids = ", ".join(str(row[0]) for row in claimed)
            self.execute(f"UPDATE bare SET state = 'done' WHERE id IN ({ids})")
        return count / (time.perf_counter() - began)


def measure(name: str, url: str, floor: Floor, wanted: argparse.Namespace) -> None:
    rates: dict[str, list[float]] = {}

    def note(what: str, rate: float) -> None:
        rates.setdefault(what, []).append(rate)

    for _ in range(wanted.rounds):
        measured = Measured(url)
        note("floor bulk", floor.bulk(wanted.jobs))
        note("floor drain", floor.drain(wanted.jobs))
        note("bulk", measured.bulk(wanted.jobs))
        note("drain", measured.drain(wanted.jobs))
        note("single", measured.single(min(2000, wanted.jobs)))
        measured.drain(min(2000, wanted.jobs))
        measured.hf.close()
    medians = {what: statistics.median(values) for what, values in rates.items()}
    measured = Measured(url)
    half, worst = measured.pick_up()
    print(f"\n{name}: {measured.hf.store.version()}")
    print(f"  enqueue in bulk    {medians['bulk']:>9,.0f}/s   {_ratio(medians, 'bulk')}")
    print(f"  drain, 1 process   {medians['drain']:>9,.0f}/s   {_ratio(medians, 'drain')}")
    print(f"  enqueue one a call {medians['single']:>9,.0f}/s")
    print(f"  pick-up when idle  {half:>9.1f} ms   p99 {worst:.1f} ms")
    if wanted.backlog:
        measured.bulk(wanted.backlog)
        rate = measured.drain(wanted.jobs)
        print(
            f"  drain with {wanted.backlog:,} queued {rate:,.0f}/s   "
            f"{rate / medians['drain']:.2f} of the drain above"
        )
    measured.hf.close()


def _ratio(medians: dict[str, float], what: str) -> str:
    floor = medians["floor " + what]
    return f"{medians[what] / floor:.2f} of the floor ({floor:,.0f}/s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bench.db"
        store = open_store(url)
        assert isinstance(store, SqliteStore)
        floor = Floor(store._writer.execute, "?")
        measure("SQLite, synchronous=FULL", url, floor, wanted)
        store.close()
    server = PostgresServer(durable=True)
    try:
        store = open_store(server.dsn(), check=False)
        store.migrate()
        store.close()
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            floor = Floor(connection.execute, "%s")
            measure("PostgreSQL, durable commits", server.dsn(), floor, wanted)
    finally:
        server.close()


if __name__ == "__main__":
    main()
