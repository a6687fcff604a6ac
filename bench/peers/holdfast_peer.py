"""Holdfast as a contender, through its public interface.

BENCH_OBSERVED switches metrics and traces on; the spans go to an exporter that drops them.
`produce RATE SECONDS` and BENCH_CLAIMS serve the benchmark beside a held snapshot.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from functools import cached_property
from typing import Any, ClassVar

from bench.peers.adapter import BULK, FOLDER, URL, WARM, Adapter, chunks, gate, hit, payload, run
from holdfast import Holdfast, Settings

ORG = "0198c0de-0000-7000-8000-00000000000a"
QUEUES = ["q:default"]
CLAIM = 1000
# Ten milliseconds of jobs in one call, as an application with some load enqueues them.
TICK_SECONDS = 0.01


def handle(job: object, payload: dict[str, Any]) -> None:
    hit(payload)


class HoldfastAdapter(Adapter):
    distribution = "holdfast-jobs"
    settings: ClassVar[dict[str, Any]] = {
        "concurrency": 4,
        "claim_limit": CLAIM,
        "settle_limit": CLAIM,
        "bulk": BULK,
    }

    @cached_property
    def hf(self) -> Holdfast:
        hf = Holdfast(settings=Settings(db=URL, claim_limit=CLAIM, settle_limit=CLAIM))
        if os.environ.get("BENCH_OBSERVED"):
            observe(hf)
        hf.job("noop")(handle)
        return hf

    @cached_property
    def _reader(self) -> Any:
        if URL.startswith("sqlite"):
            return sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=30)
        import psycopg

        return psycopg.connect(URL, autocommit=True)

    def prepare(self) -> None:
        from holdfast.store import open_store

        store = open_store(URL, check=False)
        store.migrate()
        store.close()

    def enqueue_one(self, count: int) -> float:
        _ = self.hf.store  # connects
        began = time.perf_counter()
        for number in range(count):
            self.hf.enqueue("noop", payload(number), org_id=ORG)
        return time.perf_counter() - began

    def enqueue_bulk(self, count: int) -> float:
        _ = self.hf.store
        began = time.perf_counter()
        for chunk in chunks(count):
            self.hf.enqueue_many("noop", [payload(number) for number in chunk], org_id=ORG)
        return time.perf_counter() - began

    def work(self) -> None:
        options: dict[str, Any] = {"queues": QUEUES, "concurrency": self.settings["concurrency"]}
        if os.environ.get("BENCH_CLAIMS"):
            options |= timed_claims(self.hf)
        worker = self.hf.worker(**options)
        # Killed, it would leave leases that expire only after the benchmark.
        signal.signal(signal.SIGTERM, lambda *_: worker.drain())
        gate()
        worker.run()

    @cached_property
    def _unfinished(self) -> str:
        """The statement that finds a job that has not ended."""
        schema = "holdfast_" if URL.startswith("sqlite") else "holdfast."
        places = [f"SELECT job_id FROM {schema}{place}" for place in ("job_ready", "job_running")]
        statement = " UNION ALL ".join(places) + " LIMIT 1"
        try:
            self._reader.execute(statement)
        except Exception:
            # An earlier revision, which had one table of jobs.
            return f"SELECT id FROM {schema}job WHERE state IN ('queued', 'processing') LIMIT 1"
        return statement

    def is_empty(self) -> bool:
        return self._reader.execute(self._unfinished).fetchone() is None

    def trickle(self, count: int, pause: float) -> None:
        for number in range(WARM):
            self.hf.enqueue("noop", payload(number, warm=True), org_id=ORG)
        time.sleep(1)
        for number in range(count):
            self.hf.enqueue("noop", payload(number), org_id=ORG)
            time.sleep(pause)

    def produce(self, a_second: float, seconds: float) -> None:
        """Enqueue at a constant rate; a late tick is caught up."""
        began, number = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * a_second) - number
            if due > 0:
                chunk = [payload(number + one) for one in range(min(due, BULK))]
                self.hf.enqueue_many("noop", chunk, org_id=ORG)
                number += len(chunk)
            time.sleep(TICK_SECONDS)


def observe(hf: Holdfast) -> None:
    """Collect metrics, and trace every enqueue and execution."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    from holdfast.telemetry.metrics import Metrics
    from holdfast.telemetry.trace import trace

    class Dropping(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    Metrics(hf)
    trace(hf, provider)


def timed_claims(hf: Holdfast) -> dict[str, Any]:
    """Options of a worker whose fetcher writes the time and milliseconds of each claim."""
    from holdfast.engine.worker.fetcher import FairFetcher

    file = (FOLDER / f"{os.getpid()}.claims").open("w", buffering=1)

    class Timed(FairFetcher):
        def take(self, wanted: int) -> Any:
            began = time.perf_counter()
            found = super().take(wanted)
            if found:
                file.write(f"{time.time()} {(time.perf_counter() - began) * 1e3}\n")
            return found

    name = f"bench-{os.getpid()}"
    lease_ms = int(hf.settings.lease_seconds * 1000)
    fetcher = Timed(hf.store, queues=QUEUES, worker_id=name, lease_ms=lease_ms, events=hf.events)
    return {"worker_id": name, "fetcher": fetcher}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["produce", a_second, seconds]:
            HoldfastAdapter().produce(float(a_second), float(seconds))
        case _:
            run(HoldfastAdapter())
