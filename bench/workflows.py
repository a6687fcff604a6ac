"""Measure workflows beside plain jobs, in one run, on both databases.

    python bench/workflows.py [--items 10000] [--rounds 3] [--processes 1] [--only drain]

1. drain: a map over so many items with a join, from the start of the worker until the join runs,
   and as many plain jobs until the last one runs. They take turns.
2. await: ``await handle`` for a no-op, from before the enqueue until the result is there, and the
   same until the settle of the job is committed.
3. waiting: 1,000 workflows that wait for an event: threads, connections and running jobs.

Compare the ratios: absolute figures depend on the machine. PostgreSQL is a private server with
durable commits.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import Context, Holdfast, Settings, chain, chord
from holdfast.event import JobSettled
from holdfast.store import open_store
from holdfast.store.query import Statement
from tests.postgres_server import PostgresServer

ORG = "0198c0de-0000-7000-8000-00000000000a"
PAD = "x" * 150


class Measured:
    """Holdfast on one database, with a plain job, a mapped one and a join."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.hf = Holdfast(settings=Settings(db=url, claim_limit=1000, settle_limit=1000))
        self.seen = 0
        self.goal = 0
        self.reached = threading.Event()
        self.started: dict[int, float] = {}

        @self.hf.job("noop")
        def noop(number: int, pad: str) -> int:
            self.started[number] = time.perf_counter()
            self.seen += 1
            if self.seen >= self.goal:
                self.reached.set()
            return number

        @self.hf.job("mapped")
        def mapped(number: int, pad: str) -> int:
            return number

        @self.hf.job("join")
        def join(job: Context) -> int:
            found = len(job.results["mapped"])
            self.reached.set()
            return found

        @self.hf.job("waiting")
        async def waiting(job: Context) -> Any:
            return await job.wait_for("approved", timeout="1d")

        self.noop, self.mapped, self.join, self.waiting = noop, mapped, join, waiting

    def items(self, count: int) -> list[dict[str, Any]]:
        return [{"number": number, "pad": PAD} for number in range(count)]

    def drain_plain(self, count: int, processes: int) -> float:
        self.seen, self.goal = 0, count
        self.noop.configure(org_id=ORG).enqueue_many(self.items(count))
        return count / self.run("noop", count, processes)

    def drain_mapped(self, count: int, processes: int) -> tuple[float, float]:
        """Items per second of the drain, and of the enqueue."""
        began = time.perf_counter()
        handle = chord(self.mapped.map(self.items(count)), self.join.step()).enqueue(org_id=ORG)
        enqueued = count / (time.perf_counter() - began)
        seconds = self.run("join", 1, processes)
        assert handle.result(timeout=60) == count
        return count / seconds, enqueued

    def run(self, last: str, count: int, processes: int) -> float:
        """Seconds from the start of the workers until *count* jobs of the type *last* ended."""
        self.reached.clear()
        if processes == 1:
            worker = self.hf.worker(queues=["q:default"], concurrency=4)
            thread = threading.Thread(target=worker.run)
            began = time.perf_counter()
            thread.start()
            self.reached.wait(600)
            seconds = time.perf_counter() - began
            worker.drain()
            thread.join()
            return seconds
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(processes + 1)
        stop = context.Event()
        workers = [
            context.Process(target=work, args=(self.url, ready, stop)) for _ in range(processes)
        ]
        for one in workers:
            one.start()
        before = self.ended(last)
        ready.wait()
        began = time.perf_counter()
        while self.ended(last) < before + count:
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        stop.set()
        for one in workers:
            one.join()
        return seconds

    def ended(self, job_type: str) -> int:
        text = (
            "SELECT count(*) AS jobs FROM holdfast.job_outcome AS ended"
            " JOIN holdfast.job_envelope AS job ON job.org_id = ended.org_id"
            " AND job.id = ended.job_id WHERE job.job_type = :t AND ended.state = 'completed'"
        )
        found = self.hf.store.read(
            lambda tx: tx.many(Statement("count", "many", "", text, frozenset()), t=job_type)
        )
        return int(found[0]["jobs"])

    def await_results(self, count: int = 200) -> tuple[float, float]:
        """Milliseconds until the settle of a no-op, and until ``await handle`` returns: p50s."""
        settled: dict[str, float] = {}

        def note(event: Any) -> None:
            if isinstance(event, JobSettled):
                settled[event.about.job_id] = time.perf_counter()

        self.hf.events.subscribe(note)
        self.goal = sys.maxsize
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        thread = threading.Thread(target=worker.run)
        thread.start()
        begun: dict[str, float] = {}
        ended: dict[str, float] = {}

        async def call() -> None:
            job = self.noop.configure(org_id=ORG)
            await (await job.aenqueue(number=-1, pad=""))
            for number in range(count):
                began = time.perf_counter()
                handle = await job.aenqueue(number=number, pad=PAD)
                await handle
                begun[handle.id], ended[handle.id] = began, time.perf_counter()

        asyncio.run(call())
        worker.drain()
        thread.join()
        until_settle = [settled[key] - begun[key] for key in begun if key in settled]
        until_result = [ended[key] - begun[key] for key in begun]
        return (
            statistics.median(until_settle) * 1000,
            statistics.median(until_result) * 1000,
        )

    def wait(self, count: int = 1_000) -> dict[str, Any]:
        """The resources of waiting workflows, beside an idle worker."""
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        thread = threading.Thread(target=worker.run)
        thread.start()
        # The pools of threads and connections grow with the first jobs.
        self.approve([chain(self.waiting.step()).enqueue(org_id=ORG) for _ in range(300)])
        time.sleep(2)
        idle = threading.active_count(), self.connections()
        handles = [chain(self.waiting.step()).enqueue(org_id=ORG) for _ in range(count)]
        while self.snoozed() < count:
            time.sleep(0.05)
        time.sleep(2)
        waiting = threading.active_count(), self.connections()
        running = len(worker._in_flight)
        self.approve(handles)
        worker.drain()
        thread.join()
        return {"idle": idle, "waiting": waiting, "running": running}

    def approve(self, handles: list[Any]) -> None:
        for handle in handles:
            self.hf.send_event("approved", 1, workflow_id=handle.id, org_id=ORG)
        assert all(handle.result(timeout=120) == 1 for handle in handles)

    def snoozed(self) -> int:
        text = "SELECT count(*) AS jobs FROM holdfast.job_wait WHERE state = 'waiting'"
        statement = Statement("count", "many", "", text, frozenset())
        waits = self.hf.store.read(lambda tx: tx.many(statement))[0]["jobs"]
        text = "SELECT count(*) AS jobs FROM holdfast.job_running"
        statement = Statement("count", "many", "", text, frozenset())
        return int(waits) - self.hf.store.read(lambda tx: tx.many(statement))[0]["jobs"]

    def connections(self) -> int:
        if self.hf.store.is_embedded:
            return len(list(Path("/proc/self/fd").iterdir()))
        text = (
            "SELECT count(*) AS found FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        statement = Statement("count", "many", "", text, frozenset())
        return int(self.hf.store.read(lambda tx: tx.many(statement))[0]["found"])


def work(url: str, ready: Any, stop: Any) -> None:
    """One worker process."""
    hf = Measured(url).hf
    worker = hf.worker(queues=["q:default"], concurrency=4)
    ready.wait()
    thread = threading.Thread(target=worker.run)
    thread.start()
    stop.wait()
    worker.drain()
    thread.join()


def measure(name: str, url: str, wanted: argparse.Namespace) -> None:
    measured = Measured(url)
    measured.hf.worker()
    if wanted.only in (None, "drain"):
        ratios = []
        for _ in range(wanted.rounds):
            plain = measured.drain_plain(wanted.items, wanted.processes)
            mapped, enqueued = measured.drain_mapped(wanted.items, wanted.processes)
            ratios.append(mapped / plain)
            print(
                f"{name}: plain {plain:,.0f}/s, map and join {mapped:,.0f}/s,"
                f" ratio {mapped / plain:.2f}; enqueue of the workflow {enqueued:,.0f} items/s"
            )
        print(f"{name}: map and join over plain drain, median {statistics.median(ratios):.2f}")
    if wanted.only in (None, "await"):
        settle, result = measured.await_results()
        print(
            f"{name}: no-op until settled p50 {settle:.1f} ms, await handle p50 {result:.1f} ms,"
            f" ratio {result / settle:.2f}"
        )
    if wanted.only in (None, "waiting"):
        found = measured.wait()
        print(
            f"{name}: threads and connections idle {found['idle']}, with 1,000 waiting workflows"
            f" {found['waiting']}; running jobs {found['running']}"
        )
    measured.hf.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", choices=("drain", "await", "waiting"))
    parser.add_argument("--database", choices=("sqlite", "postgres"))
    wanted = parser.parse_args()
    if wanted.database != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            measure("SQLite", f"sqlite:///{folder}/bench.db", wanted)
    if wanted.database != "sqlite":
        server = PostgresServer(durable=True)
        try:
            store = open_store(server.dsn(), check=False)
            from holdfast.config.extensions import installed
            from holdfast.extension import components_of

            store.components = tuple(components_of(installed().values()))
            store.migrate()
            store.close()
            measure("PostgreSQL", server.dsn(), wanted)
        finally:
            server.close()


if __name__ == "__main__":
    main()
