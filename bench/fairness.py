"""Measure cost and effect of fairness, in one run, on both databases.

    python bench/fairness.py [--backlog 100000] [--seconds 20] [--rounds 3] [--jobs 20000]
                             [--only wait|drain|queues] [--db sqlite|postgres]

wait    a quiet tenant's wait until its handler starts, beside one tenant with a full backlog,
        relative to its wait alone with the same load, worker and handlers (10 to 30 ms); with 20
        and with 1,000 quiet tenants. Target: p99 at most 2.
drain   jobs per second of fair claims relative to claims ordered by created_at, on the same
        backlog of one noisy and 20 or 1,000 quiet tenants. Target: at least 0.9.
queues  16 worker processes on 50 queues relative to one queue. Target: at least 0.85, and every
        job executed once.

Compare the ratios: absolute figures depend on the machine. PostgreSQL is a private server with
durable commits.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from holdfast import Holdfast, Settings
from holdfast.engine.claim import FLOW, ClaimRequest, Order, claim_queue
from holdfast.engine.job import SYSTEM, Claimed
from holdfast.engine.limits import read_rules
from holdfast.engine.settle import Settled
from holdfast.engine.worker.fetcher import Fetcher
from holdfast.store import Store, Tx, open_store
from holdfast.store.query import Statement
from tests.postgres_server import PostgresServer

PAD = "x" * 150
# Random between 0.5 and 1.5 times the duration: equal handlers that start together would stay in
# step, and a new job would wait for that rhythm.
HANDLER_SECONDS = 0.02
QUEUES = [f"q:bench{number}" for number in range(50)]
# Where a job of this benchmark is until it ends. A job that is claimed between the two counts is
# counted by the second.
PLACES = ("holdfast.job_ready", "holdfast.job_running")


def make(url: str) -> Holdfast:
    """Build the application; worker processes import this file as a module."""
    hf = Holdfast(settings=Settings(db=url))
    for queue in QUEUES:
        hf.queue(queue)

    @hf.job("noop")
    def noop(job: object, payload: dict[str, Any]) -> None:
        return None

    @hf.job("quiet")
    def quiet(job: object, payload: dict[str, Any]) -> None:
        waited = time.time() - payload["t"]
        with open(os.environ["BENCH_WAITS"], "a") as file:
            file.write(f"{waited}\n")
        time.sleep(HANDLER_SECONDS * random.uniform(0.5, 1.5))

    @hf.job("noisy")
    def noisy(job: object, payload: dict[str, Any]) -> None:
        time.sleep(HANDLER_SECONDS * random.uniform(0.5, 1.5))

    return hf


if os.environ.get("BENCH_DB"):
    hf = make(os.environ["BENCH_DB"])


@contextmanager
def worker(url: str, folder: Path, *options: str) -> Iterator[Path]:
    """Start a worker process; return the file with the waits."""
    waits = folder / f"waits-{uuid.uuid4().hex}.txt"
    waits.touch()
    command = [sys.executable, "-m", "holdfast", "--app", "fairness:hf", "--db", url, "worker"]
    process = subprocess.Popen(
        [*command, "--log-level", "error", "--drain-seconds", "1", *options],
        cwd=ROOT / "bench",
        env={**os.environ, "BENCH_DB": url, "BENCH_WAITS": str(waits), "PYTHONPATH": str(ROOT)},
    )
    try:
        yield waits
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def trickle(hf: Holdfast, tenants: list[str], seconds: float, a_second: float) -> None:
    """Enqueue jobs of quiet tenants one after the other, evenly."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        org_id = tenants[number % len(tenants)]
        hf.enqueue("quiet", {"t": time.time(), "i": number}, org_id=org_id)
        number += 1
        time.sleep(max(0.0, began + number / a_second - time.monotonic()))


def fill(hf: Holdfast, job_type: str, org_id: str, count: int, **options: Any) -> None:
    for start in range(0, count, 5_000):
        chunk = [{"i": i, "pad": PAD} for i in range(start, min(start + 5_000, count))]
        hf.enqueue_many(job_type, chunk, org_id=org_id, **options)


def measure_wait(
    databases: Databases, tenants: int, backlog: int, seconds: float, rounds: int
) -> list[Any]:
    """Return the quiet tenants' p50 and p99 in milliseconds, alone and beside a noisy one."""
    alone, beside = [], []
    for _ in range(rounds):
        # Alternating, because the machine's speed varies.
        alone.append(wait_for_start(databases, tenants, 0, seconds))
        beside.append(wait_for_start(databases, tenants, backlog, seconds))
    ratios = [mine[1] / theirs[1] for mine, theirs in zip(beside, alone, strict=True)]
    medians = [
        statistics.median(wait[part] for wait in waits)
        for part in (0, 1)
        for waits in (alone, beside)
    ]
    return [tenants, *medians, statistics.median(ratios), max(ratios)]


def wait_for_start(
    databases: Databases, tenants: int, backlog: int, seconds: float
) -> tuple[float, float]:
    """Return p50 and p99 of the wait of quiet tenants, beside one with *backlog* waiting jobs."""
    with databases.fresh() as (url, folder):
        hf = make(url)
        if backlog:
            fill(hf, "noisy", str(uuid.uuid4()), backlog)
            databases.come_to_rest(url)
        with worker(url, folder, "--concurrency", "10") as waits:
            time.sleep(2.0)
            trickle(hf, [str(uuid.uuid4()) for _ in range(tenants)], seconds, a_second=40)
            time.sleep(2.0)
            found = [float(line) * 1e3 for line in waits.read_text().splitlines()]
        hf.close()
    return percentile(found, 0.5), percentile(found, 0.99)


class Oldest:
    """A fetcher that claims in the order of created_at, for comparison."""

    is_over = False

    def __init__(self, store: Store) -> None:
        self.store = store

    def hear(self) -> None:
        return None

    def take(self, wanted: int) -> list[Claimed]:
        ask = ClaimRequest("q:default", "bench", wanted, 60_000, order=Order.CREATED_AT_ASC)
        return claim_queue(self.store, read_rules(self.store), ask)

    def is_limited(self, queue: str) -> bool:
        return False

    def take_dead_lettered(self) -> list[Settled]:
        return []

    def close(self) -> None:
        return None


def drain(hf: Holdfast, count: int, fair: bool) -> float:
    """Return jobs per second from the first claim until *count* are done; release the rest."""
    seen, reached = [0], threading.Event()

    def note_event(event: object) -> None:
        if type(event).__name__ == "JobSettled":
            seen[0] += 1
            if seen[0] >= count:
                reached.set()

    hf.events.subscribers[:] = [note_event]
    oldest: Fetcher | None = None if fair else Oldest(hf.store)
    running = hf.worker(queues=["q:default"], concurrency=4, fetcher=oldest)
    thread = threading.Thread(target=running.run)
    began = time.perf_counter()
    thread.start()
    reached.wait(600)
    rate = seen[0] / (time.perf_counter() - began)
    running.drain()
    thread.join()
    return rate


def measure_drain(databases: Databases, tenants: int, backlog: int, rounds: int) -> list[Any]:
    """Drain the backlog of one noisy tenant and five jobs of each quiet one."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds):
        # Alternating, with a different one first, because the machine's speed varies.
        for fair in (True, False) if turn % 2 else (False, True):
            with databases.fresh() as (url, _):
                hf = make(url)
                fill(hf, "noop", str(uuid.uuid4()), backlog)
                for _ in range(tenants):
                    fill(hf, "noop", str(uuid.uuid4()), 5)
                rates[fair].append(drain(hf, backlog + 5 * tenants, fair))
                hf.close()
    ratios = [fair / oldest for fair, oldest in zip(rates[True], rates[False], strict=True)]
    return [
        tenants,
        statistics.median(rates[False]),
        statistics.median(rates[True]),
        statistics.median(ratios),
    ]


def run_processes(databases: Databases, queues: list[str], count: int) -> tuple[float, bool]:
    """Return the rate of 16 worker processes, and whether every job was executed once."""
    with databases.fresh() as (url, folder):
        hf = make(url)
        hf.worker(queues=queues)
        for queue in queues:
            hf.queues.pause(queue, reason="fill it first", actor=SYSTEM)
        with worker(
            url, folder, "--processes", "16", "--concurrency", "2", "--queues", ",".join(queues)
        ):
            time.sleep(25.0)
            for queue in queues:
                fill(hf, "noop", str(uuid.uuid4()), count // len(queues), queue=queue)
            hf.store.write(resume_all)
            hf.store.announce(queues)
            while any(_look(hf.store, f"SELECT count(*) AS n FROM {place}") for place in PLACES):
                time.sleep(0.2)
        rows = "SELECT finished_at FROM holdfast.job_outcome WHERE state = 'completed'"
        times = hf.store.read(lambda tx: tx.many(Statement("look", "many", "", rows, frozenset())))
        ended = sorted(_seconds(row["finished_at"]) for row in times)
        starts = "SELECT sum(events) AS n FROM holdfast.audit_event WHERE name = 'job.started'"
        started = _look(hf.store, starts)
        hf.close()
        whole = count // len(queues) * len(queues)
        # From the first tenth to the end, to exclude the start of the burst.
        first, last = ended[len(ended) // 10], ended[-1]
        return 0.9 * len(ended) / (last - first), len(ended) == whole == started


def resume_all(tx: Tx) -> None:
    """Resume all queues at once, to exclude enqueueing from the measurement."""
    go = "UPDATE holdfast.queue SET paused_at = NULL, paused_by = NULL, pause_reason = NULL"
    tx.affected(Statement("go", "affected", "", go, frozenset()))
    tx.affected(FLOW.raise_revision)


def _seconds(value: Any) -> float:
    from holdfast.clock import read_instant

    return read_instant(value).timestamp()


def _look(store: Store, text: str) -> int:
    statement = Statement("look", "one", "", text, frozenset())
    return int(store.read(lambda tx: tx.one(statement))["n"])


def measure_queues(databases: Databases, count: int, rounds: int) -> list[Any]:
    one, many, right = [], [], True
    for _ in range(rounds):
        for queues, rates in ((QUEUES[:1], one), (QUEUES, many)):
            rate, correct = run_processes(databases, queues, count)
            rates.append(rate)
            right = right and correct
    ratios = [m / o for m, o in zip(many, one, strict=True)]
    return [statistics.median(one), statistics.median(many), statistics.median(ratios), right]


class Databases:
    """Fresh, migrated databases of one kind."""

    def __init__(self, kind: str, server: PostgresServer | None) -> None:
        self.kind = kind
        self.server = server
        self._number = 0

    def come_to_rest(self, url: str) -> None:
        """Run the server's maintenance after a bulk load now, outside the measurement."""
        if self.server is not None:
            import psycopg

            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute("VACUUM ANALYZE")
                admin.execute("CHECKPOINT")

    @contextmanager
    def fresh(self) -> Iterator[tuple[str, Path]]:
        with tempfile.TemporaryDirectory() as folder:
            if self.server is None:
                url = f"sqlite:///{folder}/bench.db"
            else:
                import psycopg

                self._number += 1
                name = f"bench{self._number}"
                with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
                    admin.execute(f"CREATE DATABASE {name}")
                url = self.server.dsn(name)
            store = open_store(url, check=False)
            store.migrate()
            store.close()
            yield url, Path(folder)


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    print(f"\n{title}")
    cells = [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in [columns, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--only", choices=["wait", "drain", "queues"])
    parser.add_argument("--db", choices=["sqlite", "postgres"])
    given = parser.parse_args()
    kinds = [given.db] if given.db else ["sqlite", "postgres"]
    server = PostgresServer(durable=True) if "postgres" in kinds else None
    try:
        waits, drains, queues = [], [], []
        for kind in kinds:
            databases = Databases(kind, server if kind == "postgres" else None)
            if given.only in (None, "wait"):
                for tenants in (20, 1_000):
                    row = measure_wait(
                        databases, tenants, given.backlog, given.seconds, given.rounds
                    )
                    waits.append([kind, *row])
            if given.only in (None, "drain"):
                for tenants in (20, 1_000):
                    row = measure_drain(databases, tenants, given.backlog, given.rounds)
                    drains.append([kind, *row])
            if given.only in (None, "queues"):
                queues.append([kind, *measure_queues(databases, given.jobs, given.rounds)])
    finally:
        if server is not None:
            server.stop()
            server.close()
    if waits:
        columns = ["database", "quiet", "p50 alone", "p50 beside"]
        columns += ["p99 alone", "p99 beside", "p99 ratio", "worst"]
        table("wait of a quiet tenant, ms", columns, waits)
    if drains:
        table("drain, jobs/s", ["database", "quiet", "oldest", "fair", "ratio"], drains)
    if queues:
        table("16 processes, jobs/s", ["database", "1 queue", "50 queues", "ratio", "once"], queues)
    print(json.dumps({"wait": waits, "drain": drains, "queues": queues}))


if __name__ == "__main__":
    main()
