"""``POST /v1/jobs`` with authentication, against a bare endpoint that inserts one row.

    python bench/http_enqueue.py [--rounds 4] [--seconds 4] [--clients 8] [--db URL]

Both are FastAPI under uvicorn in a process of their own, on the same PostgreSQL. The clients are
plain sockets in this process. Rounds alternate, so that other work on the machine meets both. The
ratio of processor time of the server depends on it least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ORG = "0198c0de-0000-7000-8000-00000000000a"
BODY = json.dumps({"job_type": "work", "payload": {"order": 42, "article": "kettle"}}).encode()


class Row(BaseModel):
    job_type: str
    payload: dict[str, Any]


class Made(BaseModel):
    id: int


def make_bare(url: str) -> Any:
    """One route that checks a body and inserts one row in a transaction."""
    import psycopg
    from fastapi import FastAPI

    app = FastAPI()
    own = threading.local()

    @app.post("/v1/jobs", status_code=201)
    def insert(row: Row) -> Made:
        if not hasattr(own, "connection"):
            own.connection = psycopg.connect(url, autocommit=True)
        found = own.connection.execute(
            "INSERT INTO bare (job_type, payload) VALUES (%s, %s) RETURNING id",
            (row.job_type, json.dumps(row.payload)),
        ).fetchone()
        return Made(id=found[0])

    return app


def make_holdfast(url: str) -> Any:
    from holdfast import Holdfast

    hf = Holdfast(url)
    hf.job("work")(lambda job, payload: None)  # noqa: ARG005
    return hf


def serve(kind: str, url: str, answers: Any) -> None:
    """Serve until the process is ended."""
    import uvicorn

    if kind == "bare":
        app = make_bare(url)
    else:
        from holdfast.api import create_app

        app = create_app(make_holdfast(url))
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    sock = config.bind_socket()
    answers.put(sock.getsockname()[1])
    server.run(sockets=[sock])


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def drive(port: int, key: str, clients: int, seconds: float) -> tuple[int, float]:
    """The number of requests that were answered with 201, and their total time."""
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    ).encode()
    end = time.perf_counter() + seconds

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while time.perf_counter() < end:
            writer.write(head + BODY)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
            length = answer.lower().split(b"content-length:")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            count += 1
        writer.close()
        return count

    began = time.perf_counter()
    counts = await asyncio.gather(*(one() for _ in range(clients)))
    return sum(counts), time.perf_counter() - began


def measure(url: str, rounds: int, seconds: float, clients: int) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute(
            "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " job_type text NOT NULL, payload jsonb NOT NULL,"
            " created_at timestamptz NOT NULL DEFAULT now())"
        )
    hf = make_holdfast(url)
    keys = hf.operate(actor="user:bench", role="admin").api_keys
    key = keys.create(
        "bench", role="operator", org_id=ORG, reason="bench", requests_per_minute=10_000_000
    ).secret
    context = multiprocessing.get_context("spawn")
    servers: dict[str, tuple[Any, int]] = {}
    for kind in ("bare", "holdfast"):
        answers = context.Queue()
        process = context.Process(target=serve, args=(kind, url, answers), daemon=True)
        process.start()
        servers[kind] = (process, answers.get(timeout=60))
        asyncio.run(asyncio.wait_for(_ready(servers[kind][1]), 60))
    rates: dict[str, list[float]] = {kind: [] for kind in servers}
    costs: dict[str, list[float]] = {kind: [] for kind in servers}
    for number in range(rounds + 1):
        for kind, (process, port) in servers.items():
            spent = processor_seconds(process.pid)
            count, took = asyncio.run(drive(port, key, clients, seconds if number else 1.0))
            spent = processor_seconds(process.pid) - spent
            if number:
                rates[kind].append(count / took)
                costs[kind].append(1000 * spent / count)
    for process, _ in servers.values():
        process.terminate()
        process.join()
    hf.close()
    for kind in servers:
        print(
            f"{kind:9} {statistics.median(rates[kind]):7.0f} requests/s"
            f"   {statistics.median(costs[kind]):6.3f} ms of processor time of the server each"
        )
    pairs = [ours / bare for ours, bare in zip(rates["holdfast"], rates["bare"], strict=True)]
    times = [bare / ours for ours, bare in zip(costs["holdfast"], costs["bare"], strict=True)]
    low, high = min(pairs), max(pairs)
    print(f"ratio of requests: {statistics.median(pairs):.0%} ({low:.0%} to {high:.0%})")
    print(f"ratio of processor time: {statistics.median(times):.0%}")


async def _ready(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--db", default="")
    given = parser.parse_args()
    if given.db:
        measure(given.db, given.rounds, given.seconds, given.clients)
        return
    from holdfast.extension import components_of
    from holdfast.store import open_store
    from tests.postgres_server import PostgresServer

    server = PostgresServer(durable=True)
    try:
        url = server.dsn()
        hf = make_holdfast(url)
        store = open_store(url, check=False)
        store.components = components_of(hf.extensions.available())
        store.migrate()
        store.close()
        measure(url, given.rounds, given.seconds, given.clients)
    finally:
        server.close()


if __name__ == "__main__":
    main()
