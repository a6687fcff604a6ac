"""Every page of the console with a million jobs: server time, for an admin and for a tenant.

    python bench/console_pages.py [--jobs 1000000] [--rounds 5] [--only sqlite|postgres] [--write]

The application has one of everything that a page shows. Pages are answered in this process, without
sockets; the time is from the request to the whole answer, with the database. ``--write`` replaces
the section of RESULTS.md. The exit code is 1 if the median of a page is 200 ms or more.
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
BEGIN, END = "<!-- console pages: begin -->", "<!-- console pages: end -->"


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


async def answer(app: Any, path: str, rounds: int) -> tuple[int, list[float]]:
    """The status of a page, and how many milliseconds each request took."""
    transport = httpx2.ASGITransport(app)
    took = []
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for _ in range(rounds + 1):
            began = time.perf_counter()
            response = await client.get(path)
            took.append((time.perf_counter() - began) * 1000)
    return response.status_code, took[1:]


def measure(url: str, jobs: int, rounds: int) -> dict[str, tuple[float, float]]:
    """The median of each page for an admin of operations and for a tenant."""
    made = Everything(url, minutes=20)
    fill(made, jobs)
    apps = [make_site(made.hf), make_site(made.hf, org_id=ORG)]
    found: dict[str, tuple[float, float]] = {}
    for name, path in pages_of(made).items():
        medians = []
        for app in apps:
            status, took = asyncio.run(answer(app, path, rounds))
            assert status in (200, 403, 404), (path, status)
            medians.append(statistics.median(took))
        found[name] = (medians[0], medians[1])
        print(f"{name:22} {medians[0]:8.1f} {medians[1]:8.1f} ms", file=sys.stderr)
    made.hf.close()
    return found


def table(found: dict[str, dict[str, tuple[float, float]]]) -> str:
    kinds = list(found)
    columns = [f"{kind}, {who}" for kind in kinds for who in ("operations", "tenant")]
    lines = [f"| page | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for name in found[kinds[0]]:
        cells = [f"{value:.0f}" for kind in kinds for value in found[kind][name]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(found: dict[str, dict[str, tuple[float, float]]], jobs: int, rounds: int) -> str:
    load = os.getloadavg()[0]
    worst = max(value for pages in found.values() for pair in pages.values() for value in pair)
    python = ".".join(map(str, sys.version_info[:3]))
    how = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores with other work on them"
        f" (load {load:.0f}), Python {python}. `bench/console_pages.py`: {jobs:,} waiting jobs"
        " of a hundred tenants, half of them of the tenant that is shown; milliseconds from the"
        f" request to the whole answer, medians of {rounds}."
    )
    wanted = (
        f"Wanted are under {LIMIT_MS:.0f} ms: the slowest page takes {worst:.0f} ms."
        " `tests/console/test_page_plans.py` explains every statement of every page: none"
        " reads the whole table of jobs or of events."
    )
    parts = [f"{BEGIN}\n## Pages of the console", how, table(found), f"{wanted}\n{END}"]
    return "\n\n".join(parts)


def write(text: str) -> None:
    """Replace the section of RESULTS.md, or add it."""
    path = ROOT / "bench" / "RESULTS.md"
    old = path.read_text()
    if BEGIN in old:
        head, _, rest = old.partition(BEGIN)
        path.write_text(head + text + rest.partition(END)[2])
    else:
        path.write_text(f"{old.rstrip()}\n\n{text}\n")


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
    found: dict[str, dict[str, tuple[float, float]]] = {}
    if given.only != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/work.db"
            found["SQLite"] = measure(url, given.jobs, given.rounds)
    if given.only != "sqlite":
        server = PostgresServer(durable=False)
        try:
            migrate(server.dsn())
            found["PostgreSQL"] = measure(server.dsn(), given.jobs, given.rounds)
        finally:
            server.close()
    text = report(found, given.jobs, given.rounds)
    print(text)
    if given.write:
        write(text)
    slow = [
        (kind, name) for kind, pages in found.items() for name, pair in pages.items()
        if max(pair) >= LIMIT_MS
    ]  # fmt: skip
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
