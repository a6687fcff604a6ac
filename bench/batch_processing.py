"""Measure memory and time of batch processing on both databases, against the simulator.

    python bench/batch_processing.py [--items 50000] [--only sqlite|postgres]

1. Submit and collect one batch with 3 KiB results: seconds, items per second, and memory above
   the idle process. The provider is a separate process.
2. The same data by hand: every line parsed, and four bulk writes per group of 500 (the job, the
   item, one event, one ledger entry) without rules, audit, leases or checks. The collector's
   rate is given as a share of that.
3. Two collectors share two batches; every item is processed once.

Compare the ratios: absolute figures depend on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import Holdfast, Settings
from holdfast.config import RunSettings
from holdfast.config.extensions import installed
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.extension import components_of
from holdfast.store import open_store
from holdfast.store.query import Statement
from holdfast_llm import Item, Reply, Request
from holdfast_llm.settings import PriceSettings, ProviderSettings
from holdfast_simulator import MovingClock, Pace, Prompt, Simulator
from tests.postgres_server import PostgresServer

ORGS = [f"0198c0de-0000-7000-8000-0000000000{number:02x}" for number in range(10, 20)]
SUBMITTER, COLLECTOR = "batch_submitter", "batch_collector"
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
WORDS = ("kind words " * 300)[:3_000]
GROUP = 500
COMPONENTS = components_of(installed().values())


class Rewrite:
    """One person's text, and a validated answer of 3 KiB."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Say it kindly.", schema=SCHEMA)

    def accept(self, item: Item, reply: Reply) -> Any:
        if not reply.data["text"].startswith("kind"):
            raise ValueError("not kind")
        return {"length": len(reply.data["text"])}


def application(url: str, origin: str, most: int) -> Holdfast:
    os.environ["HOLDFAST_BENCH_KEY"] = "sk-bench-0123456789"
    account = ProviderSettings(
        base_url=f"{origin}/openai/v1",
        credential_env="HOLDFAST_BENCH_KEY",
        allow_private=True,
        max_items=most,
    )
    prices = tuple(
        PriceSettings(
            provider="openai",
            model="*",
            mode=mode,
            valid_from=date(2026, 1, 1),
            input=Decimal(price),
            cache_read=Decimal(price),
            output=Decimal(4 * price),
        )
        for mode, price in (("batch", 1), ("async", 2))
    )
    run = RunSettings(queues=("q:default",), max_jobs_per_run=100_000, max_runtime_seconds=3_600)
    hf = Holdfast(
        settings=Settings(
            db=url,
            providers={"openai": account},
            prices=prices,
            runs={SUBMITTER: run, COLLECTOR: run},
        )
    )
    route = {"provider": "openai", "adapter_kind": "openai_responses", "model": "small"}
    hf.batch("bench.rewrite", route=route)(Rewrite)
    return hf


# -- the parts, each in a separate process


def provide() -> None:
    """Run the provider until its output is closed."""

    def respond(ask: Prompt) -> dict[str, str]:
        return {"text": WORDS}

    with Simulator(clock=MovingClock(), pace=Pace(0, 0, 0, 0), responder=respond) as sim:
        print(sim.origin, flush=True)
        sys.stdin.readline()
        print(json.dumps({"double_paid": len(sim.ledger.double_paid())}), flush=True)


def fill(url: str, origin: str, items: int) -> None:
    hf = application(url, origin, items)
    for start in range(0, items, 5_000):
        for number, org_id in enumerate(ORGS):
            payloads = [{"text": f"message {start + number + 10 * i} " * 20} for i in range(500)]
            hf.enqueue_many("bench.rewrite", payloads, org_id=org_id)
    hf.close()


def perform(url: str, origin: str, name: str, most: int) -> None:
    """Perform a run until nothing is left, and return its measurements."""
    hf = application(url, origin, most)
    hf.store.read(lambda tx: tx.one(_statement("SELECT count(*) AS jobs FROM holdfast.job")))
    idle = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    began, cpu, runs = time.perf_counter(), time.process_time(), 0
    while perform_run(hf, name, trigger=Trigger(TriggerKind.CRON)).outcome != "skipped":
        runs += 1
    told = {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "runs": runs,
        "idle": idle,
        "more": _memory("VmHWM") - idle,
    }
    print(json.dumps(told), flush=True)


def _memory(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)


def _statement(text: str) -> Statement:
    return Statement("bench", "many", "", text, frozenset())


# -- by hand


def by_hand(url: str, items: int) -> float:
    """Parse the same lines and write the same number of rows in bulk, without any rule."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        body = json.dumps({"text": WORDS, "rid": "abcdefgh"})
        with path.open("w") as file:
            for number in range(items):
                file.write(json.dumps(_line(number, body)) + "\n")
        connection, mark = _connect(url, folder)
        for text in TABLES:
            connection.execute(text)
        rows = [(str(number), "x" * 400) for number in range(items)]
        cursor = connection.cursor()
        cursor.executemany(f"INSERT INTO raw_job VALUES ({mark}, {mark}, NULL)", rows)
        cursor.executemany(f"INSERT INTO raw_item VALUES ({mark}, {mark}, NULL)", rows)
        connection.commit()
        began = time.perf_counter()
        group: list[tuple[str, str]] = []
        with path.open("rb") as file:
            for line in file:
                found = json.loads(line)
                text = found["response"]["body"]["output"][0]["content"][0]["text"]
                group.append((found["custom_id"], str(len(json.loads(text)["text"]))))
                if len(group) == GROUP:
                    _write(connection, mark, group)
                    group = []
        if group:
            _write(connection, mark, group)
        return items / (time.perf_counter() - began)


TABLES = (
    "CREATE TABLE raw_job (id text PRIMARY KEY, payload text, result text)",
    "CREATE TABLE raw_item (id text PRIMARY KEY, payload text, result text)",
    "CREATE TABLE raw_event (id text, name text, detail text)",
    "CREATE TABLE raw_call (id text PRIMARY KEY, tokens text, detail text)",
)


def _connect(url: str, folder: str) -> tuple[Any, str]:
    if url.startswith("postgres"):
        return psycopg.connect(url), "%s"
    connection = sqlite3.connect(Path(folder) / "raw.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection, "?"


def _write(connection: Any, mark: str, group: list[tuple[str, str]]) -> None:
    cursor = connection.cursor()
    ends = [(result, number) for number, result in group]
    cursor.executemany(f"UPDATE raw_job SET result = {mark} WHERE id = {mark}", ends)
    cursor.executemany(f"UPDATE raw_item SET result = {mark} WHERE id = {mark}", ends)
    told = [(number, result, "x" * 100) for number, result in group]
    cursor.executemany(f"INSERT INTO raw_event VALUES ({mark}, {mark}, {mark})", told)
    cursor.executemany(f"INSERT INTO raw_call VALUES ({mark}, {mark}, {mark})", told)
    connection.commit()


def _line(number: int, text: str) -> dict[str, Any]:
    """Return a result line as the provider writes it."""
    usage = {"input_tokens": 100, "output_tokens": 750, "total_tokens": 850}
    output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
    body = {"id": "resp", "status": "completed", "model": "small", "output": output, "usage": usage}
    response = {"status_code": 200, "request_id": f"req_{number}", "body": body}
    return {"id": f"b{number}", "custom_id": str(number), "response": response, "error": None}


# -- together


@contextlib.contextmanager
def provider() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    child = subprocess.Popen(
        [sys.executable, __file__, "--part", "provide"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip(), child
    finally:
        child.kill()
        child.wait()


def start(part: str, url: str, origin: str, **more: Any) -> subprocess.Popen[str]:
    given = [word for name, value in more.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, __file__, "--part", part, "--db", url, "--origin", origin, *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def end(child: subprocess.Popen[str]) -> dict[str, Any]:
    told, _ = child.communicate(timeout=1_200)
    assert child.returncode == 0
    return json.loads(told) if told.strip() else {}


def look_now(url: str) -> None:
    """Make every batch due now instead of in a minute."""
    store = open_store(url)
    text = (
        "UPDATE holdfast.provider_batch SET next_at = {now} WHERE state = 'submitted' RETURNING id"
    )
    store.write(lambda tx: tx.many(_statement(text)))
    store.close()


def let_it_work(origin: str) -> None:
    """Let the simulator execute a batch, which it does on the next request."""
    asked = urllib.request.Request(
        f"{origin}/openai/v1/batches", headers={"authorization": "Bearer sk-bench-0123456789"}
    )
    with urllib.request.urlopen(asked, timeout=600) as answer:
        answer.read()


def count(url: str) -> tuple[int, int]:
    """Count completed jobs and ledger entries."""
    store = open_store(url)
    jobs = "SELECT count(*) AS n FROM holdfast.job WHERE state = 'completed'"
    calls = "SELECT count(*) AS n FROM holdfast.provider_call WHERE kind = 'actual'"
    found = [store.read(lambda tx, t=t: tx.one(_statement(t)))["n"] for t in (jobs, calls)]
    store.close()
    return found[0], found[1]


def measure(url: str, kind: str, items: int, collectors: int, most: int) -> None:
    with provider() as (origin, child):
        end(start("fill", url, origin, items=items, most=most))
        submitted = end(start("perform", url, origin, name=SUBMITTER, most=most))
        look_now(url)
        let_it_work(origin)
        began = time.perf_counter()
        parts = [
            start("perform", url, origin, name=COLLECTOR, most=most) for _ in range(collectors)
        ]
        collected = [end(part) for part in parts]
        took = time.perf_counter() - began
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        twice = json.loads(child.stdout.readline())["double_paid"]
    done, calls = count(url)
    print(f"\n{kind}: {items:,} items, {collectors} collector(s), batches of {most:,}")
    print(f"  submit   {_told(submitted, items)}")
    for one in collected:
        print(f"  collect  {_told(one, items)}")
    print(
        f"  completed {done:,}, ledger entries {calls:,}, paid twice {twice}, {took:.1f} s in all"
    )
    if collectors == 1:
        raw = by_hand(url, items)
        rate = items / collected[0]["seconds"]
        print(f"  by hand  {raw:,.0f} items/s; the collector does {rate / raw:.2f} of that")


def _told(one: dict[str, Any], items: int) -> str:
    rate = items / one["seconds"]
    return (
        f"{rate:8,.0f} items/s, {one['seconds']:6.1f} s, {one['cpu']:6.1f} s of processor,"
        f" {one['more']:6.1f} MiB over {one['idle']:.0f} MiB idle, {one['runs']} runs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--part", choices=["provide", "fill", "perform"])
    parser.add_argument("--db")
    parser.add_argument("--origin")
    parser.add_argument("--name")
    parser.add_argument("--most", type=int, default=50_000)
    wanted = parser.parse_args()
    match wanted.part:
        case "provide":
            provide()
        case "fill":
            fill(wanted.db, wanted.origin, wanted.items)
        case "perform":
            perform(wanted.db, wanted.origin, wanted.name, wanted.most)
        case _:
            together(wanted)


def together(wanted: argparse.Namespace) -> None:
    for kind in ("sqlite", "postgres"):
        if wanted.only not in (None, kind):
            continue
        with databases(kind) as fresh:
            measure(fresh("one"), kind, wanted.items, 1, wanted.items)
            measure(fresh("two"), kind, wanted.items, 2, wanted.items // 2)


@contextlib.contextmanager
def databases(kind: str) -> Iterator[Any]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield lambda name: f"sqlite:///{folder}/{name}.db"
        return
    server = PostgresServer(durable=True)

    def fresh(name: str) -> str:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}")
        store = open_store(server.dsn(name), check=False, components=COMPONENTS)
        store.migrate()
        store.close()
        return server.dsn(name)

    try:
        yield fresh
    finally:
        server.close()


if __name__ == "__main__":
    main()
