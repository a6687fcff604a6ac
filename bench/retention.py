"""Measure what finished jobs cost while they are kept, in one run, on both databases.

    python bench/retention.py [--rows 200000] [--jobs 20000] [--rounds 3] [--minutes 2]
                              [--only sqlite|postgres]

1. Enqueue, drain and prune beside many finished jobs, in turns with an empty database.
2. Churn: enqueue, drain and prune at once for some minutes, then in turns with a fresh database.

Compare the ratios: absolute figures depend on the machine. On a shared machine, compare the
processor time per job, of this process and of the private PostgreSQL including vacuum. PostgreSQL
has durable commits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.drained_job import server_ticks
from bench.throughput import BULK, ORG, PAD
from holdfast import FakeClock, Holdfast, Settings
from holdfast.config import RetentionSettings
from holdfast.engine.retention import BITE, prune_jobs
from holdfast.store import open_store
from tests.postgres_server import PostgresServer

EMPTY, KEPT, CHURNED, FRESH = "empty", "kept", "churned", "fresh"
BACKLOG = 5 * BULK
WARM_SECONDS = 2.0
TURNS, TURN_SECONDS = 5, 8.0
# By then the retention of every job is over.
LATER = timedelta(days=200)


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate per second, and processor microseconds per job."""

    rate: float
    cpu: float


class Measured:
    """Holdfast on one database."""

    def __init__(self, url: str, server: int | None) -> None:
        self.server = server
        self.hf = Holdfast(settings=Settings(db=url, claim_limit=1000, settle_limit=1000))
        self.later = open_store(url, clock=FakeClock(datetime.now(UTC) + LATER))
        self.enqueued = self.done = self.pruned = 0

        @self.hf.job("noop")
        def noop(job: object, payload: dict[str, Any]) -> None:
            self.done += 1

    def close(self) -> None:
        self.later.close()
        self.hf.close()

    def vacuum(self) -> None:
        """Finish the work that loading leaves to vacuum."""
        if self.server is not None:
            with psycopg.connect(self.hf.settings.db, autocommit=True) as connection:
                connection.execute("VACUUM (ANALYZE)")
                connection.execute("CHECKPOINT")

    def time(self, work: Callable[[], int]) -> Figure:
        began, cpu = time.perf_counter(), self._cpu()
        count = work()
        took, cpu = time.perf_counter() - began, self._cpu() - cpu
        return Figure(count / took, cpu / max(count, 1) * 1e6)

    def _cpu(self) -> float:
        return time.process_time() + (server_ticks(self.server) if self.server else 0.0)

    def enqueue(self, count: int) -> int:
        for start in range(0, count, BULK):
            payloads = [{"i": number, "pad": PAD} for number in range(min(BULK, count - start))]
            self.hf.enqueue_many("noop", payloads, org_id=ORG)
            self.enqueued += len(payloads)
        return count

    def drain(self) -> int:
        before = self.done
        self.hf.worker(queues=["q:default"], concurrency=4).run(until_idle=True)
        return self.done - before

    def prune(self, count: int) -> int:
        """Prune the oldest *count* jobs."""
        before = self.pruned
        while self.pruned - before < count:
            left = count - self.pruned + before
            passed = prune_jobs(self.later, RetentionSettings(), limit=min(BITE, left))
            self.pruned += passed
            if not passed:
                break
        return self.pruned - before

    def churn(self, seconds: float) -> Figure:
        """Enqueue, drain and prune at once; the rate of the drain after the start phase."""
        over = threading.Event()
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        works = (worker.run, lambda: self._produce(over), lambda: self._prune_on(over))
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(min(WARM_SECONDS, seconds))
        found = self.time(lambda: self._wait(seconds))
        over.set()
        worker.drain()
        for thread in threads:
            thread.join()
        return found

    def _wait(self, seconds: float) -> int:
        before = self.done
        time.sleep(seconds)
        return self.done - before

    def _produce(self, over: threading.Event) -> None:
        while not over.is_set():
            if self.enqueued - self.done < BACKLOG:
                self.enqueue(BULK)
            else:
                over.wait(0.01)

    def _prune_on(self, over: threading.Event) -> None:
        while not over.is_set():
            if self.prune(BITE) < BITE:
                over.wait(0.1)


def beside_finished(empty: Measured, kept: Measured, wanted: argparse.Namespace) -> None:
    """Part 1."""
    for one in (empty, kept):
        one.enqueue(BULK)
        one.drain()
        one.prune(BULK)
    kept.enqueue(wanted.rows)
    kept.drain()
    kept.vacuum()
    found: dict[str, list[Figure]] = {}
    for number in range(wanted.rounds):
        # In turns, so that a machine that becomes slower does not favour one of them.
        for one in (empty, kept) if number % 2 else (kept, empty):
            name = EMPTY if one is empty else KEPT
            works = (
                ("enqueue", partial(one.enqueue, wanted.jobs)),
                ("drain", one.drain),
                ("prune", partial(one.prune, wanted.jobs)),
            )
            for verb, work in works:
                found.setdefault(f"{verb} {name}", []).append(one.time(work))
    print(f"  {wanted.rows:,} finished jobs, {wanted.jobs:,} jobs, {wanted.rounds} rounds")
    print(f"    {'':24} {'a second':>10} {'CPU us':>8}   ratios by rounds")
    for verb in ("enqueue", "drain", "prune"):
        row(f"{verb}, nothing finished", found[f"{verb} {EMPTY}"])
        row(f"{verb} beside finished", found[f"{verb} {KEPT}"], found[f"{verb} {EMPTY}"])
    row("prune", found[f"prune {KEPT}"], found[f"drain {KEPT}"], "of the drain")


def churn(used: Measured, fresh: Measured, minutes: float) -> None:
    """Part 2."""
    fifths = [used.churn(minutes * 60 / 5) for _ in range(5)]
    print(f"  churn for {minutes:g} minutes: {used.done:,} jobs, {used.pruned:,} pruned")
    print("    a second, by fifths     " + "  ".join(f"{item.rate:,.0f}" for item in fifths))
    seconds = min(TURN_SECONDS, minutes * 60 / 5)
    turns: list[dict[Measured, Figure]] = []
    for number in range(TURNS):
        order = (used, fresh) if number % 2 else (fresh, used)
        turns.append({one: one.churn(seconds) for one in order})
    row("then, in turns", [turn[used] for turn in turns], [turn[fresh] for turn in turns])


def row(
    what: str, found: list[Figure], beside: list[Figure] | None = None, of: str = "of the empty one"
) -> None:
    rate = statistics.median(item.rate for item in found)
    cpu = statistics.median(item.cpu for item in found)
    text = f"    {what:24} {rate:>10,.0f} {cpu:>8,.0f}"
    if beside is not None:
        pairs = list(zip(found, beside, strict=True))
        ratios = [item.rate / other.rate for item, other in pairs]
        saved = statistics.median(other.cpu / item.cpu for item, other in pairs)
        rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        text += f"   {statistics.median(ratios):.2f} {of} ({rounds}), by CPU {saved:.2f}"
    print(text, flush=True)


@contextmanager
def databases(kind: str) -> Iterator[dict[str, Measured]]:
    """Holdfast on four new databases, which are migrated."""
    server = PostgresServer(durable=True) if kind == "postgres" else None
    process = server.process.pid if server and server.process else None
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, Measured] = {}
        try:
            for name in (EMPTY, KEPT, CHURNED, FRESH):
                url = f"sqlite:///{folder}/{name}.db" if server is None else server.dsn(name)
                if server is not None:
                    with psycopg.connect(server.dsn(), autocommit=True) as admin:
                        admin.execute(f"CREATE DATABASE {name}".encode())
                    store = open_store(url, check=False)
                    store.migrate()
                    store.close()
                made[name] = Measured(url, process)
            yield made
        finally:
            for one in made.values():
                one.close()
            if server is not None:
                server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    wanted = parser.parse_args()
    for kind in ("sqlite", "postgres"):
        if wanted.only not in (None, kind):
            continue
        with databases(kind) as made:
            print(f"\n{made[EMPTY].hf.store.version()}", flush=True)
            if wanted.rounds:
                beside_finished(made[EMPTY], made[KEPT], wanted)
            if wanted.minutes:
                churn(made[CHURNED], made[FRESH], wanted.minutes)


if __name__ == "__main__":
    main()
