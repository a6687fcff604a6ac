"""Idle event streams: memory per client, and the time until an event reaches all of them.

    python bench/event_streams.py [--clients 1000] [--db URL]

A server runs in a process of its own. The clients are plain sockets in this process. The memory is
the resident set of the server before and after they connected.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import Holdfast

ORG = "0198c0de-0000-7000-8000-00000000000a"
EVENTS = 5


def make(url: str) -> Holdfast:
    hf = Holdfast(url)
    hf.job("work")(lambda job, payload: None)  # noqa: ARG005
    return hf


def serve(url: str, answers: Any) -> None:
    """Serve until the process is ended."""
    from holdfast.api.server import Server

    server = Server(make(url), port=0)
    answers.put(server.url)
    server.run()


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def processor_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


class Stream:
    """One client: a socket that counts the events it got."""

    def __init__(self) -> None:
        self.events = 0
        self.at = 0.0

    async def open(self, host: str, port: int, key: str, query: str) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port, limit=4096)
        head = (
            f"GET /v1/events{query} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"
        )
        self._writer.write(head.encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer.split(b"\r\n")[0], answer
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for line in self._reader:
            if line.startswith(b"event: change"):
                self.events += 1
                self.at = time.perf_counter()

    def close(self) -> None:
        self._task.cancel()
        self._writer.close()


async def measure(url: str, server: str, pid: int, clients: int, key: str) -> dict[str, float]:
    host, _, port = server.removeprefix("http://").partition(":")
    hf = make(url)
    warm = Stream()
    await warm.open(host, int(port), key, "")
    before = resident_mib(pid)
    streams = [Stream() for _ in range(clients)]
    began = time.perf_counter()
    for at in range(0, clients, 50):
        await asyncio.gather(*(one.open(host, int(port), key, "") for one in streams[at : at + 50]))
    connected = time.perf_counter() - began
    await asyncio.sleep(2)
    after = resident_mib(pid)
    took = []
    spent = processor_ms(pid)
    for count in range(1, EVENTS + 1):
        await asyncio.to_thread(hf.enqueue, "work", {"n": count}, org_id=ORG)
        committed = time.perf_counter()
        while any(one.events < count for one in streams):
            await asyncio.sleep(0.005)
            assert time.perf_counter() - committed < 30, "an event did not reach every client"
        took.append(max(one.at for one in streams) - committed)
        await asyncio.sleep(0.5)
    spent = (processor_ms(pid) - spent) / EVENTS
    for one in (*streams, warm):
        one.close()
    hf.close()
    return {
        "clients": clients,
        "connect_seconds": connected,
        "memory_mib": after - before,
        "memory_after_events_mib": resident_mib(pid) - before,
        "processor_ms_per_event": spent,
        "reach_all_median_ms": statistics.median(took) * 1000,
        "reach_all_worst_ms": max(took) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--db", default="")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(hard, max(soft, given.clients * 2 + 200)), hard)
    )
    with tempfile.TemporaryDirectory() as folder:
        url = given.db or f"sqlite:///{folder}/work.db"
        hf = make(url)
        hf.store.migrate()
        keys = hf.operate(actor="user:bench", role="admin").api_keys
        key = keys.create(
            "bench", role="viewer", reason="bench", org_id=ORG, requests_per_minute=100_000
        ).secret
        hf.close()
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        process = context.Process(target=serve, args=(url, answers), daemon=True)
        process.start()
        try:
            server = answers.get(timeout=60)
            found = asyncio.run(measure(url, server, process.pid or 0, given.clients, key))
        finally:
            process.terminate()
            process.join(timeout=30)
    kind = url.partition(":")[0]
    print(f"{kind}, {os.cpu_count()} cores: " + ", ".join(f"{k} {v:.0f}" for k, v in found.items()))


if __name__ == "__main__":
    main()
