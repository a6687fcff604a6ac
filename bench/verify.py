"""Measure verify beside many ended jobs, check by check, on both databases.

    python bench/verify.py [--rows 200000] [--only sqlite|postgres]
                           [--postgres postgresql://ADMIN@HOST/NAME]

Every tenth job failed once before it completed. Besides the seconds, the peak memory of this
process matters: it must not depend on the number of rows.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast import FakeClock, Holdfast, Settings
from holdfast.config.extensions import installed
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import SYSTEM, Completed, Fault, Outcome, Retry
from holdfast.engine.settle import settle
from holdfast.extension import components_of
from holdfast.operate.verify import CHECKS
from holdfast.operate.verify.run import Status, verify_with
from holdfast.sealed_audit.seal import seal_events
from holdfast.store import open_store
from tests.postgres_server import PostgresServer

COMPONENTS = components_of(installed().values())
ORG = "0198c0de-0000-7000-8000-00000000000a"
BITE = 1_000
FAULT = Fault("NETWORK_TIMEOUT", "it took too long", retryable=True)


def fill(hf: Holdfast, rows: int) -> None:
    """Insert completed jobs with their audit, sealed."""
    hf.job("noop")(lambda _job, _payload: None)
    for first in range(0, rows, BITE):
        hf.enqueue_many("noop", [{"n": first + n} for n in range(BITE)], org_id=ORG)
        work(hf, fails=first % (10 * BITE) == 0)
    for _ in range(2 + 4 * rows // 5_000):
        seal_events(hf.store)


def work(hf: Holdfast, *, fails: bool) -> None:
    outcomes: list[Outcome] = [Retry(FAULT, None)] if fails else []
    outcomes.append(Completed("1"))
    for outcome in outcomes:
        claimed = claim_jobs(
            hf.store, queue="q:default", worker_id="w1", limit=BITE, lease_ms=600_000
        )
        assert len(claimed) == BITE
        settle(hf.store, [(job, outcome) for job in claimed], actor=SYSTEM)


def measure(url: str, rows: int) -> None:
    with Holdfast(settings=Settings(db=url), clock=FakeClock()) as hf:
        hf.extensions.enable_defaults()
        began = time.monotonic()
        fill(hf, rows)
        print(f"{hf.store.version()}: {rows} jobs made in {time.monotonic() - began:.0f} s")
        watch = hf.operate(actor="user:bench", role="admin").context
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        total = 0.0
        for check in CHECKS:
            began = time.monotonic()
            (found,) = verify_with([check], watch).findings
            took = time.monotonic() - began
            total += took
            if found.status is not Status.NOT_APPLICABLE:
                print(f"  {check.id:4} {found.status:9} {took:7.2f} s  {check.name}")
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"  all  {total:17.2f} s, {(after - before) / 1024:.0f} MiB more at the peak")


@contextmanager
def database(kind: str, address: str | None) -> Iterator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/bench.db"
        return
    server = None if address else PostgresServer()
    admin = address or (server.dsn() if server else "")
    try:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS bench_verify")
            connection.execute("CREATE DATABASE bench_verify")
        url = admin.rpartition("/")[0] + "/bench_verify"
        made = open_store(url, check=False, components=COMPONENTS)
        made.migrate()
        made.close()
        yield url
    finally:
        if server is not None:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    parser.add_argument("--postgres", help="an address of a server; without it, a private one")
    given = parser.parse_args()
    for kind in ("sqlite", "postgres"):
        if given.only in (None, kind):
            with database(kind, given.postgres) as url:
                measure(url, given.rows)


if __name__ == "__main__":
    main()
