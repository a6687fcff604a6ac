"""Run the engine's statements without an application or a worker, and with them, in turns.

    python bench/statements.py [--jobs 20000] [--rounds 5] [--only sqlite|postgres]

The statements alone are what hand-written SQL of the same contract costs: they write history and
audit, and the database's guards check them. Their parameters are made before the clock starts, and
their replies are read and dropped. The ratio says how much Holdfast's Python adds.
PostgreSQL is a private server with durable commits, SQLite has `synchronous=FULL`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.throughput import ORG, PAD
from holdfast import Holdfast, Settings
from holdfast.engine.fairness import NIL_ID
from holdfast.engine.job import Claimed, Completed
from holdfast.engine.limits import read_rules
from holdfast.engine.settle import change_of
from holdfast.store import Statements, Store, Tx, open_store
from tests.postgres_server import PostgresServer

SQL = Statements("holdfast.engine", "job.sql")
GROUP = 1_000
SINGLE = 1_000


def payloads(count: int) -> list[dict[str, Any]]:
    return [{"i": number, "t": time.time(), "pad": PAD} for number in range(count)]


class Alone:
    """The statements of an enqueue, a claim and a settle, with parameters that are ready."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.store: Store = hf.store

    def rows(self, count: int) -> Any:
        (chunk,) = self.hf._chunks("noop", payloads(count), ORG, {}, whole=True)
        return chunk()

    def single(self, count: int) -> float:
        batches = [self.rows(1) for _ in range(count)]
        began = time.perf_counter()
        for batch in batches:
            self._insert(batch)
        return count / (time.perf_counter() - began)

    def bulk(self, count: int) -> float:
        batches = [self.rows(GROUP) for _ in range(count // GROUP)]
        began = time.perf_counter()
        for batch in batches:
            self._insert(batch)
        return count / (time.perf_counter() - began)

    def _insert(self, batch: Any) -> None:
        def work(tx: Tx) -> None:
            tx.values(SQL.insert_new_jobs, jobs=batch.jobs, shared=batch.shared)

        self.store.write_one(work)

    def drain(self, count: int) -> float:
        """Jobs per second; the rows of a claim are prepared for the next statement untimed."""
        revision = read_rules(self.store).revision
        share = {"queue": "q:default", "limit_key": "", "org_id": ORG, "served": None}
        lease = {"worker_id": "bench", "lease_ms": 60_000, "limit": GROUP, "revision": revision}
        shares = [{**share, "quota": GROUP, "floor": NIL_ID}]
        seconds = 0.0
        for _ in range(count // GROUP):
            rows, passed = timed(lambda: self._claim(shares, lease))
            seconds += passed
            changes = [{**change_of(Claimed(*row), Completed()), "in_group": 1} for row in rows]
            seconds += timed(lambda changes=changes: self._settle(changes))[1]
        return count / seconds

    def _claim(self, shares: list[dict[str, Any]], lease: dict[str, Any]) -> Any:
        from holdfast.engine.claim import _start

        def work(tx: Tx) -> Any:
            rows = tx.values(SQL.claim_jobs, shares=shares, backlog_count=1, **lease)
            if not tx.dialect.has_writing_ctes:
                _start(tx, rows, lease["lease_ms"])
            return rows

        is_one = self.store.dialect.has_writing_ctes
        return self.store.write_one(work) if is_one else self.store.write(work)

    def _settle(self, changes: list[dict[str, Any]]) -> None:
        self.store.write_one(
            lambda tx: tx.values(SQL.insert_outcomes, changes=changes, actor_id="bench")
        )


class Whole:
    """The same through the public interface."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf

    def single(self, count: int) -> float:
        given = payloads(count)
        began = time.perf_counter()
        for payload in given:
            self.hf.enqueue("noop", payload, org_id=ORG)
        return count / (time.perf_counter() - began)

    def bulk(self, count: int) -> float:
        given = [payloads(GROUP) for _ in range(count // GROUP)]
        began = time.perf_counter()
        for group in given:
            self.hf.enqueue_many("noop", group, org_id=ORG)
        return count / (time.perf_counter() - began)

    def drain(self, count: int) -> float:
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        began = time.perf_counter()
        worker.run(until_idle=True)
        return count / (time.perf_counter() - began)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def do_nothing(job: object, payload: object) -> None:
    pass


def measure(url: str, jobs: int, rounds: int) -> None:
    with Holdfast(settings=Settings(db=url, claim_limit=GROUP, settle_limit=GROUP)) as hf:
        hf.job("noop")(do_nothing)
        hf.enqueue("noop", {}, org_id=ORG)
        hf.worker(queues=["q:default"]).run(until_idle=True)
        rates: dict[str, dict[str, list[float]]] = {}
        for _ in range(rounds):
            for side in (Alone(hf), Whole(hf)):
                own = rates.setdefault(type(side).__name__, {})
                own.setdefault("bulk", []).append(side.bulk(jobs))
                own.setdefault("drain", []).append(side.drain(jobs))
                own.setdefault("single", []).append(side.single(SINGLE))
                hf.worker(queues=["q:default"]).run(until_idle=True)
        print(f"\n{hf.store.version()}, median of {rounds} rounds, a second:")
        for what in ("bulk", "drain", "single"):
            alone, whole = (median(rates[name][what]) for name in ("Alone", "Whole"))
            print(f"  {what:7} statements {alone:9,.0f}   Holdfast {whole:9,.0f}", end="")
            print(f"   {whole / alone:.2f}")


@contextmanager
def databases(only: str | None) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        urls = [] if only == "postgres" else [f"sqlite:///{folder}/bench.db"]
        if only == "sqlite":
            yield urls
            return
        server = PostgresServer(durable=True)
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as admin:
                admin.execute("CREATE DATABASE bench")
            yield [*urls, server.dsn("bench")]
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    given = parser.parse_args()
    with databases(given.only) as urls:
        for url in urls:
            store = open_store(url, check=False)
            store.migrate()
            store.close()
            measure(url, given.jobs, given.rounds)


if __name__ == "__main__":
    main()
