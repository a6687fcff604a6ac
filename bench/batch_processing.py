"""Measure memory and time of batch processing on both databases, against the simulator.

    python bench/batch_processing.py [--items 50000] [--only sqlite|postgres]

1. Submit and collect one batch with 3 KiB results: seconds, items per second, and memory above
   the idle process. The provider is a separate process.
2. The same batch by hand, before it is collected: a script that downloads the same results, parses
   and checks every line, and writes item, job and ledger in bulk with durable commits, without
   audit, leases or rules. On PostgreSQL also with arrays instead of executemany. The collector's
   processor time, with the server's, is compared with the script's.
3. Two collectors share two batches; every item is processed once.

Compare the ratios: absolute figures depend on the machine, seconds also on what else it does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.drained_job import server_ticks
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
            places = range(start + number, min(start + 5_000, items), len(ORGS))
            payloads = [{"text": f"message {place} " * 20} for place in places]
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


def by_hand(url: str, origin: str, arrays: bool) -> None:
    """Collect the same batch with a script, and return its measurements.

    The script does what a careful person would: it downloads the results, parses every line, stops
    at an unknown or second answer, at an error, at another item's echo and at a reply of another
    form, and writes item, job and ledger in groups of 500, one durable commit each. It has no
    audit, leases, row-level security, restart or rules in the database.
    """
    with tempfile.TemporaryDirectory() as folder:
        connection, mark = _connect(url, folder)
        _fill_by_hand(url, connection, mark)
        write = _write_arrays if arrays else _write_rows
        idle = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        began, cpu = time.perf_counter(), time.process_time()
        rows = connection.execute("SELECT custom_id, org_id, job_id, echo FROM raw_item").fetchall()
        waiting = {row[0]: row for row in rows}
        group: list[tuple[Any, ...]] = []
        for path in _download(origin, Path(folder)):
            with path.open("rb") as file:
                for line in file:
                    group.append(_read_by_hand(line, waiting))
                    if len(group) == GROUP:
                        write(connection, mark, group)
                        group = []
        if group:
            write(connection, mark, group)
        assert not waiting
        told = {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "runs": 1,
            "idle": idle,
            "more": _memory("VmHWM") - idle,
        }
        print(json.dumps(told), flush=True)


TABLES = (
    (
        "CREATE TABLE raw_job (id {uuid} PRIMARY KEY, org_id {uuid}, payload text, state text,"
        " result text, finished_at text)"
    ),
    (
        "CREATE TABLE raw_item (custom_id text PRIMARY KEY, org_id {uuid}, job_id {uuid},"
        " echo text, state text, request_id text, recorded_at text)"
    ),
    (
        "CREATE TABLE raw_call (custom_id text PRIMARY KEY, org_id {uuid}, job_id {uuid},"
        " model text, request_id text, input_tokens bigint, cached_tokens bigint,"
        " output_tokens bigint, cost_pico bigint, occurred_at bigint, recorded_at text)"
    ),
)
ITEMS = """SELECT item.custom_id, item.org_id, item.job_id, item.echo, job.payload
FROM holdfast.batch_item AS item
JOIN holdfast.job AS job ON job.org_id = item.org_id AND job.id = item.job_id"""


def _connect(url: str, folder: str) -> tuple[Any, str]:
    if url.startswith("postgres"):
        return psycopg.connect(url), "%s"
    connection = sqlite3.connect(Path(folder) / "raw.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection, "?"


def _fill_by_hand(url: str, connection: Any, mark: str) -> None:
    for name in ("raw_job", "raw_item", "raw_call"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for text in TABLES:
        connection.execute(text.format(uuid="uuid" if mark == "%s" else "text"))
    store = open_store(url)
    items = [tuple(row.values()) for row in store.many(_statement(ITEMS))]
    store.close()
    cursor = connection.cursor()
    cursor.executemany(
        f"INSERT INTO raw_item (custom_id, org_id, job_id, echo) VALUES ({_marks(mark, 4)})",
        [row[:4] for row in items],
    )
    cursor.executemany(
        f"INSERT INTO raw_job (id, org_id, payload) VALUES ({_marks(mark, 3)})",
        [(job_id, org_id, payload) for _, org_id, job_id, _, payload in items],
    )
    connection.commit()
    connection.execute("ANALYZE")
    connection.commit()


def _marks(mark: str, count: int) -> str:
    return ", ".join([mark] * count)


def _download(origin: str, folder: Path) -> Iterator[Path]:
    for number, batch in enumerate(json.loads(_ask(origin, "batches?limit=100").read())["data"]):
        path = folder / f"{number}.jsonl"
        content = f"files/{batch['output_file_id']}/content"
        with _ask(origin, content) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file, 65_536)
        yield path


def _ask(origin: str, path: str) -> Any:
    key = {"authorization": "Bearer sk-bench-0123456789"}
    asked = urllib.request.Request(f"{origin}/openai/v1/{path}", headers=key)
    return urllib.request.urlopen(asked, timeout=600)


def _read_by_hand(line: bytes, waiting: dict[str, Any]) -> tuple[Any, ...]:
    found = json.loads(line)
    custom_id, org_id, job_id, echo = waiting.pop(found["custom_id"])
    response = found["response"]
    body = response["body"]
    if found["error"] or response["status_code"] != 200 or body["status"] != "completed":
        raise ValueError("no answer")
    text = "".join(
        piece["text"]
        for item in body["output"]
        if item["type"] == "message"
        for piece in item["content"]
        if piece["type"] == "output_text"
    )
    reply = json.loads(text)
    if reply.pop("rid") != echo:
        raise ValueError("another item's answer")
    if list(reply) != ["text"] or not isinstance(reply["text"], str):
        raise ValueError("not the schema")
    if not reply["text"].startswith("kind"):
        raise ValueError("not kind")
    usage = body["usage"]
    given, made = usage["input_tokens"], usage["output_tokens"]
    cached = usage["input_tokens_details"]["cached_tokens"]
    return (
        custom_id,
        org_id,
        job_id,
        json.dumps({"length": len(reply["text"])}),
        body["model"],
        response["request_id"],
        given - cached,
        cached,
        made,
        given * 1_000_000 + made * 4_000_000,
        body["created_at"],
    )


def _write_rows(connection: Any, mark: str, group: list[tuple[Any, ...]]) -> None:
    """As the driver's manual says: executemany."""
    now = datetime.now(UTC).isoformat()
    cursor = connection.cursor()
    cursor.executemany(
        f"UPDATE raw_item SET state = 'succeeded', request_id = {mark}, recorded_at = {mark}"
        f" WHERE custom_id = {mark}",
        [(row[5], now, row[0]) for row in group],
    )
    cursor.executemany(
        f"UPDATE raw_job SET state = 'completed', result = {mark}, finished_at = {mark}"
        f" WHERE id = {mark}",
        [(row[3], now, row[2]) for row in group],
    )
    cursor.executemany(
        f"INSERT INTO raw_call VALUES ({_marks(mark, 11)})",
        [(*row[:3], *row[4:], now) for row in group],
    )
    connection.commit()


ARRAYS = (
    (
        "UPDATE raw_item AS item SET state = 'succeeded', request_id = ends.said, recorded_at = %s"
        " FROM unnest(%s::text[], %s::text[]) AS ends (said, name) WHERE item.custom_id = ends.name"
    ),
    (
        "UPDATE raw_job AS job SET state = 'completed', result = ends.result, finished_at = %s"
        " FROM unnest(%s::text[], %s::uuid[]) AS ends (result, id) WHERE job.id = ends.id"
    ),
    (
        "INSERT INTO raw_call SELECT ends.*, %s FROM unnest(%s::text[], %s::uuid[], %s::uuid[],"
        " %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],"
        " %s::bigint[]) AS ends"
    ),
)


def _write_arrays(connection: Any, mark: str, group: list[tuple[Any, ...]]) -> None:
    """As an expert in PostgreSQL would: arrays, one statement per table."""
    now = datetime.now(UTC).isoformat()
    columns = [list(column) for column in zip(*group, strict=True)]
    connection.execute(ARRAYS[0], (now, columns[5], columns[0]))
    connection.execute(ARRAYS[1], (now, columns[3], columns[2]))
    connection.execute(ARRAYS[2], (now, *columns[:3], *columns[4:]))
    connection.commit()


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


def measure(
    url: str, kind: str, items: int, collectors: int, most: int, server: PostgresServer | None
) -> None:
    with provider() as (origin, child):
        end(start("fill", url, origin, items=items, most=most))
        submitted = timed(
            server, lambda: end(start("perform", url, origin, name=SUBMITTER, most=most))
        )
        look_now(url)
        let_it_work(origin)
        raw = {}
        if collectors == 1:
            for how in ("executemany",) if server is None else ("executemany", "arrays"):
                arrays = int(how == "arrays")
                raw[how] = timed(server, lambda a=arrays: end(start("hand", url, origin, arrays=a)))
        began, ticks = time.perf_counter(), _ticks(server)
        parts = [
            start("perform", url, origin, name=COLLECTOR, most=most) for _ in range(collectors)
        ]
        collected = [end(part) for part in parts]
        took, ticks = time.perf_counter() - began, _ticks(server) - ticks
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        twice = json.loads(child.stdout.readline())["double_paid"]
    done, calls = count(url)
    print(f"\n{kind}: {items:,} items, {collectors} collector(s), batches of {most:,}")
    print(f"  submit   {_told(submitted, items)}")
    for one in collected:
        one["server"] = ticks / collectors
        print(f"  collect  {_told(one, items // collectors)}")
    print(
        f"  completed {done:,}, ledger entries {calls:,}, paid twice {twice}, {took:.1f} s in all"
    )
    for how, one in raw.items():
        (ours,) = collected
        cpu = (one["cpu"] + one["server"]) / (ours["cpu"] + ours["server"])
        print(f"  by hand  {_told(one, items)} ({how})")
        print(
            f"           the collector does {cpu:.2f} of that by processor time,"
            f" {one['seconds'] / ours['seconds']:.2f} by seconds"
        )


def timed(server: PostgresServer | None, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Add the processor time of the database server to a measurement."""
    ticks = _ticks(server)
    found = work()
    return {**found, "server": _ticks(server) - ticks}


def _ticks(server: PostgresServer | None) -> float:
    if server is None:
        return 0.0
    assert server.process is not None
    return server_ticks(server.process.pid)


def _told(one: dict[str, Any], items: int) -> str:
    rate = items / one["seconds"]
    cpu = one["cpu"] + one["server"]
    return (
        f"{rate:8,.0f} items/s, {one['seconds']:6.1f} s; {1e6 * cpu / items:6.1f} us of processor"
        f" each, {1e6 * one['server'] / items:6.1f} of them the server's;"
        f" {one['more']:6.1f} MiB over {one['idle']:.0f} MiB idle, {one['runs']} runs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--part", choices=["provide", "fill", "perform", "hand"])
    parser.add_argument("--db")
    parser.add_argument("--origin")
    parser.add_argument("--name")
    parser.add_argument("--most", type=int, default=50_000)
    parser.add_argument("--arrays", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    wanted = parser.parse_args()
    match wanted.part:
        case "provide":
            provide()
        case "fill":
            fill(wanted.db, wanted.origin, wanted.items)
        case "perform":
            perform(wanted.db, wanted.origin, wanted.name, wanted.most)
        case "hand":
            by_hand(wanted.db, wanted.origin, bool(wanted.arrays))
        case _:
            together(wanted)


def together(wanted: argparse.Namespace) -> None:
    for kind in ("sqlite", "postgres"):
        if wanted.only not in (None, kind):
            continue
        for number in range(wanted.rounds):
            with databases(kind) as (fresh, server):
                measure(fresh("one"), kind, wanted.items, 1, wanted.items, server)
                if number == 0:
                    measure(fresh("two"), kind, wanted.items, 2, wanted.items // 2, server)


@contextlib.contextmanager
def databases(kind: str) -> Iterator[Any]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield lambda name: f"sqlite:///{folder}/{name}.db", None
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
        yield fresh, server
    finally:
        server.close()


if __name__ == "__main__":
    main()
