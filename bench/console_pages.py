"""Every page of the console with a million jobs: server time, for an admin and for a tenant.

    python bench/console_pages.py [--jobs 1000000] [--rounds 5] [--only sqlite|postgres] [--write]

The application has one of everything that a page shows. Pages are answered in this process, without
sockets; the time is from the request to the whole answer, with the database. On a machine that
others use, the processor time of this process and of the PostgreSQL server says more; the limit of
200 ms is compared with it. ``--write`` replaces the section of RESULTS.md. The exit code is 1 if a
page is slower.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.peers.report import write_section
from holdfast import Holdfast
from holdfast.console.site import Site
from holdfast.extension import components_of
from holdfast.store import open_store
from tests.console.everything import Everything
from tests.console.site import OpenAccess, make_site
from tests.postgres_server import PostgresServer
from tests.story import ORG, by_hand

LIMIT_MS = 200.0
BULK = 1_000
TENANTS = [ORG, *(f"0198c0de-0000-7000-8000-{n:012x}" for n in range(0x100, 0x163))]
# Milliseconds on the clock and of processor time; of each page for operations and for a tenant.
Cost = tuple[float, float]
Pages = dict[str, tuple[Cost, Cost]]
SECTION = "console pages"


def fill(made: Everything, jobs: int) -> None:
    """Enqueue the jobs: half of them for one tenant, the others for a hundred."""
    hf, began = made.hf, time.perf_counter()
    payloads = [{"n": n, "text": "x" * 100} for n in range(BULK)]
    for number in range(jobs // BULK):
        org_id = ORG if number % 2 else TENANTS[number // 2 % len(TENANTS)]
        hf.enqueue_many("mail.send", payloads, org_id=org_id)
    by_hand(hf.store, "ANALYZE")
    print(f"filled in {time.perf_counter() - began:.0f} s", file=sys.stderr)


def pages_of(made: Everything) -> dict[str, str]:
    site = Site(made.hf, OpenAccess(made.hf))
    listed = {page.path.strip("/") or "overview": page.path for page in site.pages if page.title}
    return {name: f"/console{path}" for name, path in listed.items()} | made.objects()


def server_ms(server: int | None) -> float:
    """Processor time of the processes of a PostgreSQL server."""
    spent = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat") if server else ():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == server:
            # Finer than the ticks of stat.
            spent += int((stat.parent / "schedstat").read_text().split()[0]) / 1e6
    return spent


async def answer(app: Any, path: str, rounds: int, server: int | None) -> tuple[int, Cost]:
    """The status of a page, and the cost of a request."""
    transport = httpx2.ASGITransport(app)
    took, spent = [], []
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for _ in range(rounds + 1):
            before = server_ms(server)
            began, own = time.perf_counter(), time.process_time()
            response = await client.get(path)
            own, end = time.process_time() - own, time.perf_counter()
            took.append((end - began) * 1000)
            spent.append(own * 1000 + server_ms(server) - before)
    return response.status_code, (statistics.median(took[1:]), statistics.median(spent[1:]))


def measure(url: str, jobs: int, rounds: int, server: int | None = None) -> Pages:
    """The cost of each page for an admin of operations and for a tenant."""
    made = Everything(url, minutes=20)
    fill(made, jobs)
    apps = [make_site(made.hf), make_site(made.hf, org_id=ORG)]
    found: Pages = {}
    for name, path in pages_of(made).items():
        costs = []
        for app in apps:
            status, cost = asyncio.run(answer(app, path, rounds, server))
            assert status in (200, 403, 404), (path, status)
            costs.append(cost)
        found[name] = (costs[0], costs[1])
        shown = "   ".join(f"{took:8.1f} ({spent:6.1f})" for took, spent in costs)
        print(f"{name:22} {shown} ms", file=sys.stderr)
    made.hf.close()
    return found


def table(found: dict[str, Pages]) -> str:
    kinds = list(found)
    columns = [f"{kind}, {who}" for kind in kinds for who in ("operations", "tenant")]
    lines = [f"| page | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for name in found[kinds[0]]:
        costs = [cost for kind in kinds for cost in found[kind][name]]
        cells = [f"{spent:.0f} ({took:.0f})" for took, spent in costs]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(found: dict[str, Pages], jobs: int, rounds: int) -> str:
    load = os.getloadavg()[0]
    costs = [cost for pages in found.values() for pair in pages.values() for cost in pair]
    worst, longest = max(spent for _, spent in costs), max(took for took, _ in costs)
    python = ".".join(map(str, sys.version_info[:3]))
    how = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores with other work on them"
        f" (load {load:.0f}), Python {python}. `bench/console_pages.py`: {jobs:,} waiting jobs"
        " of a hundred tenants, half of them of the tenant that is shown; milliseconds of"
        " processor time of the server with its database, and from the request to the whole answer"
        f" in brackets, medians of {rounds}."
    )
    wanted = (
        f"Wanted are under {LIMIT_MS:.0f} ms: the dearest page takes {worst:.0f} ms of processor"
        f" time, and the longest answer {longest:.0f} ms."
        " `tests/console/test_page_plans.py` explains every statement of every page: none"
        " reads the whole table of jobs or of events."
    )
    return "\n\n".join([how, table(found), wanted])


def migrate(url: str) -> None:
    """Create the tables of the core and of every extension."""
    store = open_store(url, check=False)
    hf = Holdfast("sqlite://")
    store.components = components_of(hf.extensions.available())
    store.migrate()
    store.close()
    hf.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found: dict[str, Pages] = {}
    if given.only != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/work.db"
            found["SQLite"] = measure(url, given.jobs, given.rounds)
    if given.only != "sqlite":
        server = PostgresServer(durable=False)
        try:
            migrate(server.dsn())
            pid = server.process.pid if server.process else None
            found["PostgreSQL"] = measure(server.dsn(), given.jobs, given.rounds, pid)
        finally:
            server.close()
    text = report(found, given.jobs, given.rounds)
    print(text)
    if given.write:
        write_section(SECTION, text.split("\n"))
    slow = [
        (kind, name) for kind, pages in found.items() for name, pair in pages.items()
        if max(spent for _, spent in pair) >= LIMIT_MS
    ]  # fmt: skip
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
