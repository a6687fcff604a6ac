"""Measure the cost of metrics and traces, in one run, on both databases.

    python bench/telemetry.py [--jobs 20000] [--rounds 5] [--waiting 200000]
                              [--only sqlite|postgres]

1. The subscriber alone: microseconds for the events of one job, emitted one by one.
2. A drain without a listener, one with an empty listener, one with metrics, and one with
   metrics and traces that are dropped, alternating; the ratios of processor time per job.
3. One reading of the gauges beside many waiting jobs, relative to one beside none.

Compare the ratios: absolute figures depend on the machine. PostgreSQL is a private server with
durable commits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.peers.holdfast_peer import observe
from holdfast import Holdfast, Settings
from holdfast.event import About, Event, JobEnqueued, JobSettled, JobStarted
from holdfast.store import open_store
from holdfast.telemetry.gauges import read_gauges
from holdfast.telemetry.label import Labels
from holdfast.telemetry.metrics import Metrics
from tests.postgres_server import PostgresServer

ORG = "0198c0de-0000-7000-8000-00000000000a"
BULK = 1000


def make(url: str) -> Holdfast:
    hf = Holdfast(settings=Settings(db=url, claim_limit=1000, settle_limit=1000))

    @hf.job("noop")
    def noop(job: object, payload: dict[str, Any]) -> None: ...

    return hf


def fill(hf: Holdfast, count: int, **options: Any) -> None:
    for start in range(0, count, BULK):
        chunk = [{"i": number} for number in range(start, min(start + BULK, count))]
        hf.enqueue_many("noop", chunk, org_id=ORG, **options)


def drain(url: str, jobs: int, listens: Callable[[Holdfast], object]) -> float:
    """Return microseconds of this process's time per job."""
    hf = make(url)
    # Before the jobs, whose executions continue the trace of their enqueue.
    listens(hf)
    fill(hf, jobs)
    worker = hf.worker(queues=["q:default"], concurrency=4)
    began = time.process_time()
    counts = worker.run(until_idle=True)
    spent = time.process_time() - began
    assert counts.outcomes["completed"] == jobs, counts
    hf.close()
    return spent / jobs * 1e6


def subscriber() -> float:
    """Return microseconds for the three events of a job."""
    hf = make("sqlite:")
    metrics = Metrics(hf, database=False)
    about = About("j", "noop", ORG, None, "r", "c")
    events = (
        JobEnqueued(about, "q:default"),
        JobStarted(about, "q:default", 1, "w"),
        JobSettled(about, "q:default", 1, "completed", "run", seconds=0.01),
    )
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(20_000):
            for event in events:
                metrics.count(event)
        rounds.append((time.process_time() - began) / 20_000 * 1e6)
    return statistics.median(rounds)


def reading(hf: Holdfast) -> float:
    """Return milliseconds for one reading of the gauges."""
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        read_gauges(hf.store, Labels(hf), hf.known_queues)
        rounds.append((time.perf_counter() - began) * 1e3)
    return statistics.median(rounds)


def measure(name: str, url: str, wanted: argparse.Namespace) -> None:
    rounds = []
    drain(url, 2_000, Metrics)
    for _ in range(wanted.rounds):
        rounds.append([drain(url, wanted.jobs, listens) for listens in LISTENERS.values()])
    print(f"\n{name}: {statistics.median(costs[0] for costs in rounds):.0f} µs a job")
    for number, what in enumerate(LISTENERS):
        if number:
            _print_ratios(what, [costs[number] / costs[0] for costs in rounds])
    hf = make(url)
    empty = reading(hf)
    fill(hf, wanted.waiting)
    full = reading(hf)
    print(
        f"  a reading beside {wanted.waiting:,} waiting: {full:.1f} ms,"
        f" {full / empty:.1f} of one beside none"
    )
    hf.close()


def without(hf: Holdfast) -> None: ...


def ignore(event: Event) -> None: ...


def idler(hf: Holdfast) -> None:
    hf.events.subscribe(ignore)


LISTENERS: dict[str, Callable[[Holdfast], object]] = {
    "without": without,
    "told to an idle listener": idler,
    "with metrics": Metrics,
    "with metrics and traces": observe,
}


def _print_ratios(what: str, ratios: list[float]) -> None:
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"  {what:<26}{statistics.median(ratios):.2f}   ({listed})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--waiting", type=int, default=200_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    wanted = parser.parse_args()
    print(f"the events of one job: {subscriber():.1f} µs")
    if wanted.only != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            measure("SQLite", f"sqlite:///{folder}/bench.db", wanted)
    if wanted.only == "sqlite":
        return
    server = PostgresServer(durable=True)
    try:
        store = open_store(server.dsn(), check=False)
        store.migrate()
        store.close()
        measure("PostgreSQL", server.dsn(), wanted)
    finally:
        server.close()


if __name__ == "__main__":
    main()
