"""Holdfast at a constant rate while another session holds a snapshot, on PostgreSQL.

Nothing that ended since the snapshot can be vacuumed, so the tables grow with dead rows.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.peers.contender import Contender, Failed, PostgresStore, Run, Values, percentile
from bench.peers.measures import HOLDFAST, POSTGRES
from bench.peers.report import Record, Row

BURST = 20_000
# Claims and rate are measured in the last part of the time, when there are most dead rows.
LAST_SECONDS = 60.0


def measure_held(contender: Contender, a_second: float, seconds: float) -> Iterator[Record]:
    """Drain before, keep a rate beside the snapshot, drain beside it and after it."""
    store = contender.store
    assert isinstance(store, PostgresStore)
    contender.fresh()
    contender.fill(BURST)
    yield Record(POSTGRES, "before", HOLDFAST, 0, contender.drain(1, BURST))
    with store.server.held_snapshot(store.name):
        yield Record(POSTGRES, "rate", HOLDFAST, 0, _keep_rate(contender, a_second, seconds))
        contender.fill(BURST)
        yield Record(POSTGRES, "beside", HOLDFAST, 0, contender.drain(1, BURST))
    contender.fill(BURST)
    yield Record(POSTGRES, "after", HOLDFAST, 0, contender.drain(1, BURST))


def _keep_rate(contender: Contender, a_second: float, seconds: float) -> Values:
    last = min(LAST_SECONDS, seconds / 2)
    with contender.workers(1, watch=False, extra={"BENCH_CLAIMS": "1"}) as run:
        run.go()
        producer = contender.start("produce", a_second, seconds, folder=run.folder)
        run.processes.append(producer)
        began = time.monotonic()
        _sleep_until(began + seconds - last, producer)
        before, at = run.read().handled, time.monotonic()
        _sleep_until(began + seconds, producer)
        done = run.read().handled - before
        passed = time.monotonic() - at
        claims = sorted(_claims(run, since=time.time() - passed))
    if not claims:
        raise Failed("no claim in the last part of the time")
    return {
        "rate": done / passed,
        "claim_p50": percentile(claims, 0.50),
        "claim_p99": percentile(claims, 0.99),
    }


def _sleep_until(moment: float, producer: subprocess.Popen[str]) -> None:
    while (left := moment - time.monotonic()) > 0:
        if producer.poll() not in (None, 0):
            raise Failed(f"the producer ended with exit code {producer.returncode}")
        time.sleep(min(left, 1.0))


def _claims(run: Run, since: float) -> list[float]:
    """Milliseconds of the claims after *since*."""
    lines = [
        line.split() for path in Path(run.folder).glob("*.claims") for line in path.open() if line
    ]
    return [float(line[1]) for line in lines if len(line) == 2 and float(line[0]) >= since]


def held_rows(records: list[Record], a_second: float) -> list[Row]:
    found = {record.measure: record.values for record in records}
    rate, before = found["rate"], found["before"]["rate"]
    return [
        Row("jobs/s in the last part", [rate["rate"]], a_second * 795 / 800, digits=0),
        Row("claim p50, ms", [rate["claim_p50"]], digits=1),
        Row("claim p99, ms", [rate["claim_p99"]], 10, at_most=True, digits=1),
        Row("drain beside the snapshot, to before", [found["beside"]["rate"] / before], None, 0.7),
        Row("drain after the snapshot, to before", [found["after"]["rate"] / before]),
    ]
