"""Measure the cost of a long history, in one run, on both databases.

    python bench/retention.py [--rows 1000000] [--jobs 20000] [--rounds 3] [--minutes 10]
                              [--only sqlite|postgres] [--postgres postgresql://ADMIN@HOST/NAME]

1. Drain and enqueue beside many finished rows, kept in history or left in ``job``, alternating
   with an empty database.
2. The rates of archiving and pruning, relative to the drain in the same round.
3. Churn: enqueue, drain and archive concurrently for some minutes; then compare with a fresh
   database, alternating.

Compare the ratios: absolute figures depend on the machine. On a shared machine, compare the
processor time per job, of this process and of the private PostgreSQL including vacuum. Without an
address PostgreSQL is a private server with durable commits. With one, databases are created and
dropped there, and the server's time is unknown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import FakeClock, Holdfast, Settings
from holdfast.config import RetentionSettings
from holdfast.engine.retention import BITE, archive_jobs, prune_jobs
from holdfast.store import Store, open_store
from holdfast.store.query import Statement
from tests.postgres_server import PostgresServer

ORG = "0198c0de-0000-7000-8000-00000000000a"
SHAPES = ("empty", "history", "stay")
BULK = 1000
BACKLOG = 5 * BULK
PAD = "x" * 150
LATER = datetime.now(UTC) + timedelta(days=200)

# Ten days old and ordered by time, like version 7 ids; keys are unordered, like hashes.
NUMBERED = {
    "postgres": (
        "SELECT CAST(format('0190%s-%s-7000-8000-%s', lpad(to_hex(n / 65536), 4, '0'),"
        " lpad(to_hex(n % 65536), 4, '0'), right(md5(CAST(n AS text)), 12)) AS uuid) AS id,"
        f" 'noop:{ORG}::' || md5('k' || n) AS key, now() - interval '10 days' AS at,"
        " now() + interval '20 days' AS over"
        " FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n"
    ),
    "sqlite": (
        "WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers"
        " WHERE n < :last) SELECT printf('0190%04x-%04x-7000-8000-', n / 65536, n % 65536)"
        f" || lower(hex(randomblob(6))) AS id, 'noop:{ORG}::' || lower(hex(randomblob(16))) AS key,"
        " strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 days') AS at,"
        " strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+20 days') AS over FROM numbers"
    ),
}
FINISHED = """
INSERT INTO holdfast.{table}
    (id, org_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     idempotency_key, payload, payload_hash, priority, origin_queue, created_at, state, queue,
     stage, pipeline_version, attempt_count, max_attempts, lease_token, result, updated_at,
     finished_at, key_last_seen_at, key_expires_at, turn, limit_key)
SELECT id, {org}, 'noop', 'general', 'system', 'bench', CAST(id AS text), CAST(id AS text), key,
       '{{"pad": "{pad}"}}', 'hash', 20, 'q:default', at, 'completed', 'q:default', 'run', '', 0, 5,
       1, 'null', at, at, at, over, id, ''
FROM ({numbered}) AS numbered
"""
EVENTS = """
INSERT INTO holdfast.job_event
    (org_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id, correlation_id, at)
SELECT {org}, id, 'noop', name, 1, 'system', 'bench', CAST(id AS text), CAST(id AS text), at
FROM ({numbered}) AS numbered
CROSS JOIN (SELECT 'job.enqueued' AS name UNION ALL SELECT 'job.started'
            UNION ALL SELECT 'job.succeeded') AS names
"""


def run(store: Store, text: str, **params: Any) -> None:
    statement = Statement("bench", "affected", "", text, frozenset())
    store.write(lambda tx: tx.affected(statement, **params))


def load(store: Store, table: str, rows: int) -> None:
    """Insert finished jobs with their audit, bypassing the triggers."""
    kind = store.dialect.name
    org = f"CAST('{ORG}' AS uuid)" if kind == "postgres" else f"'{ORG}'"
    words = {"table": table, "org": org, "pad": PAD, "numbered": NUMBERED[kind]}
    made_by: list[str] = []

    def without_triggers(tx: Any) -> None:
        if kind == "postgres":
            tx.connection.execute("SET LOCAL session_replication_role = replica")
        else:
            found = tx.connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for name, made in found:
                made_by.append(made)
                tx.connection.execute(f"DROP TRIGGER {name}")
        for first in range(1, rows + 1, 100_000):
            numbers = {"first": first, "last": min(first + 99_999, rows)}
            for text in (FINISHED, EVENTS):
                statement = Statement("load", "affected", "", text.format(**words), frozenset())
                tx.affected(statement, **numbers)
        for made in made_by:
            tx.connection.execute(made)

    store.write(without_triggers)


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate per second, and processor microseconds per job."""

    rate: float
    cpu: float


class Meter:
    """Measures the time of this process, and of the server if it is private."""

    def __init__(self, server: int | None = None) -> None:
        self.server = server

    def cpu(self) -> float:
        return time.process_time() + self._server()

    def _server(self) -> float:
        """Return the time of the server's processes, including ended ones."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat") if self.server else ():
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if stat.parent.name == str(self.server):
                ticks += sum(int(field) for field in fields[11:15])
            elif fields[1] == str(self.server):
                ticks += sum(int(field) for field in fields[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def time(self, work: Callable[[], int]) -> Figure:
        began, cpu = time.perf_counter(), self.cpu()
        count = work()
        took, cpu = time.perf_counter() - began, self.cpu() - cpu
        return Figure(count / took, cpu / count * 1e6)


class Measured:
    """Holdfast on one database."""

    def __init__(self, url: str) -> None:
        self.hf = Holdfast(settings=Settings(db=url, claim_limit=1000, settle_limit=1000))
        self.later = open_store(url, clock=FakeClock(LATER))
        self.done = 0
        self.goal = 0
        self.reached = threading.Event()

        @self.hf.job("noop")
        def noop(job: object, payload: dict[str, Any]) -> None:
            self.done += 1
            if self.done >= self.goal:
                self.reached.set()

    def close(self) -> None:
        self.later.close()
        self.hf.close()

    def enqueue(self, count: int) -> int:
        for start in range(0, count, BULK):
            payloads = [{"i": number, "pad": PAD} for number in range(min(BULK, count - start))]
            self.hf.enqueue_many("noop", payloads, org_id=ORG)
        return count

    def drain(self, count: int) -> int:
        self.done, self.goal = 0, count
        self.reached.clear()
        worker = self.hf.worker(queues=["q:default"], concurrency=4)
        thread = threading.Thread(target=worker.run)
        thread.start()
        self.reached.wait(600)
        worker.drain()
        thread.join()
        return self.done

    def archive(self, count: int) -> int:
        moved = 0
        while moved < count:
            passed = archive_jobs(self.hf.store, after=timedelta(0), limit=BITE)
            if not passed:
                break
            moved += passed
        return moved

    def prune(self, count: int) -> int:
        """Prune as if the retention of everything in history were over."""
        pruned = 0
        while pruned < count:
            passed = prune_jobs(self.later, RetentionSettings(), limit=BITE)
            if not passed:
                break
            pruned += passed
        return pruned


def beside_history(made: dict[str, str], meter: Meter, wanted: argparse.Namespace) -> None:
    """Parts 1 and 2."""
    measured = {shape: Measured(url) for shape, url in made.items()}
    load(measured["history"].hf.store, "job_history", wanted.rows)
    load(measured["stay"].hf.store, "job", wanted.rows)
    for one in measured.values():
        settled(one.hf.store)
    found: dict[str, list[Figure]] = {}

    def note(what: str, work: Callable[[int], int]) -> None:
        found.setdefault(what, []).append(meter.time(lambda: work(wanted.jobs)))

    for number in range(wanted.rounds):
        # Rotate the order, so that a slowing machine does not favour a shape.
        for shape in (*SHAPES[number % 3 :], *SHAPES[: number % 3]):
            one = measured[shape]
            note(f"enqueue {shape}", one.enqueue)
            note(f"drain {shape}", one.drain)
            if shape == "history":
                note("archive", one.archive)
                note("prune", one.prune)
            elif shape == "empty":
                one.archive(wanted.jobs)
                one.prune(wanted.jobs)
    print(f"  {wanted.rows:,} finished rows, {wanted.jobs:,} jobs, {wanted.rounds} rounds")
    print(f"    {'':26} {'a second':>10} {'CPU us':>8}   ratios by rounds")
    for verb in ("drain", "enqueue"):
        empty = found[f"{verb} empty"]
        row(f"{verb}, nothing finished", empty)
        row(f"{verb} beside history", found[f"{verb} history"], empty, "of empty")
        row(f"{verb}, rows left in job", found[f"{verb} stay"], empty, "of empty")
    row("archive", found["archive"], found["drain history"], "of the drain")
    row("prune", found["prune"], found["drain history"], "of the drain")
    for one in measured.values():
        one.close()


def settled(store: Store) -> None:
    """Finish the work that loading leaves behind before measuring."""
    if store.dialect.name == "postgres":
        with psycopg.connect(store._dsn, autocommit=True) as connection:  # type: ignore[attr-defined]
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")
    else:
        run(store, "ANALYZE")


class Churn:
    """One thread enqueues, one worker drains and one thread archives, until stopped."""

    def __init__(self, url: str, meter: Meter) -> None:
        self.one = Measured(url)
        self.one.goal = sys.maxsize
        self.meter = meter
        self.archived = 0
        self._enqueued = 0

    def run(self, seconds: float) -> Figure:
        """Return the rate after the start phase."""
        over = threading.Event()
        worker = self.one.hf.worker(queues=["q:default"], concurrency=4)
        works = (worker.run, lambda: self._produce(over), lambda: self._archive(over))
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(WARM_SECONDS)
        found = self.meter.time(lambda: self._wait(seconds))
        over.set()
        worker.drain()
        for thread in threads:
            thread.join()
        return found

    def _wait(self, seconds: float) -> int:
        before = self.one.done
        time.sleep(seconds)
        return self.one.done - before

    def _produce(self, over: threading.Event) -> None:
        while not over.is_set():
            if self._enqueued - self.one.done > BACKLOG:
                over.wait(0.01)
                continue
            self._enqueued += self.one.enqueue(BULK)

    def _archive(self, over: threading.Event) -> None:
        while not over.is_set():
            moved = archive_jobs(self.one.hf.store, after=timedelta(seconds=1), limit=BITE)
            self.archived += moved
            if moved < BITE:
                over.wait(0.1)


WARM_SECONDS = 2.0
TURNS = 7


def churn(url: str, fresh_url: str, meter: Meter, minutes: float) -> None:
    """Part 3: compare a heavily used database with a fresh one, alternating."""
    used, fresh = Churn(url, meter), Churn(fresh_url, meter)
    fifths = [used.run(minutes * 60 / 5) for _ in range(5)]
    pairs = []
    for turn in range(TURNS):
        order = (used, fresh) if turn % 2 else (fresh, used)
        found = {which: which.run(TURN_SECONDS) for which in order}
        pairs.append((found[used], found[fresh]))
    print(f"  churn for {minutes:g} minutes: {used.one.done:,} jobs, {used.archived:,} archived")
    print("    a second, by fifths     " + "  ".join(f"{item.rate:,.0f}" for item in fifths))
    row("then, in turns", [old for old, _ in pairs], [new for _, new in pairs], "of a fresh one")
    used.one.close()
    fresh.one.close()


TURN_SECONDS = 8.0


def row(
    what: str, found: list[Figure], beside: list[Figure] | None = None, words: str = ""
) -> None:
    rate, cpu = (statistics.median(getattr(item, name) for item in found) for name in _NAMES)
    text = f"    {what:26} {rate:>10,.0f} {cpu:>8,.0f}"
    if beside is not None:
        pairs = list(zip(found, beside, strict=True))
        ratios = [item.rate / other.rate for item, other in pairs]
        saved = statistics.median(other.cpu / item.cpu for item, other in pairs)
        rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        text += f"   {statistics.median(ratios):.2f} {words} ({rounds}), by CPU {saved:.2f}"
    print(text, flush=True)


_NAMES = ("rate", "cpu")


@contextmanager
def postgres_urls(address: str | None) -> Iterator[tuple[dict[str, str], Meter]]:
    """Yield migrated databases, one for each shape and two for the churn."""
    server = None if address else PostgresServer(durable=True)
    admin_url = address or (server.dsn() if server else "")
    names = {shape: f"holdfast_bench_{shape}" for shape in (*SHAPES, "churn", "fresh")}
    try:
        with psycopg.connect(admin_url, autocommit=True) as admin:
            for name in names.values():
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
                admin.execute(f"CREATE DATABASE {name}".encode())
        urls = {shape: admin_url.rpartition("/")[0] + "/" + name for shape, name in names.items()}
        for url in urls.values():
            store = open_store(url, check=False)
            store.migrate()
            store.close()
        pid = server.process.pid if server and server.process else None
        yield urls, Meter(pid)
    finally:
        if server is not None:
            server.close()
        else:
            with psycopg.connect(admin_url, autocommit=True) as admin:
                for name in names.values():
                    admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@contextmanager
def sqlite_urls() -> Iterator[tuple[dict[str, str], Meter]]:
    with tempfile.TemporaryDirectory() as folder:
        yield (
            {shape: f"sqlite:///{folder}/{shape}.db" for shape in (*SHAPES, "churn", "fresh")},
            Meter(),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--postgres", metavar="URL")
    wanted = parser.parse_args()
    for name in ("sqlite", "postgres"):
        if wanted.only not in (None, name):
            continue
        opened = sqlite_urls() if name == "sqlite" else postgres_urls(wanted.postgres)
        with opened as (urls, meter):
            churn_url, fresh_url = urls.pop("churn"), urls.pop("fresh")
            store = open_store(churn_url)
            print(f"\n{store.version()}", flush=True)
            store.close()
            if wanted.rounds:
                beside_history(urls, meter, wanted)
            if wanted.minutes:
                churn(churn_url, fresh_url, meter, wanted.minutes)


if __name__ == "__main__":
    main()
