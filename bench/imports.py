"""Measure the start of Holdfast: imports and `jobs list`, compared with Procrastinate in one run.

    python bench/imports.py [--rounds 15] [--peer PYTHON]

PYTHON is the interpreter of an environment with Procrastinate, psycopg and the wheel of
holdfast-jobs; without it only Holdfast is measured, with the interpreter that runs this file. Every
measurement is a fresh process, the candidates alternate, and the figure is the median of the
processor time, user and system. Both lists read ten jobs from one PostgreSQL; that of Holdfast is
also measured on SQLite. The exit code is 1 if Procrastinate is cheaper.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.postgres_server import PostgresServer

PROGRAM = """
import sys, time
before, began = len(sys.modules), time.process_time()
{statement}
print(len(sys.modules) - before, time.process_time() - began)
"""
# Bytecode is cached, as in every installation.
CACHED = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
OURS = ("import holdfast", "from holdfast import Holdfast")
PEER = "import procrastinate"
JOBS = 10
OUR_APP = """
from holdfast import Holdfast
hf = Holdfast({url!r}, default_tenant=True)
hf.job("greet")(lambda job, payload: None)
hf.enqueue_many("greet", [{{}}] * {jobs})
"""
PEER_APP = """
import procrastinate
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo={url!r}))

@app.task(name="greet")
def greet():
    pass
"""
PEER_FILL = """
import asyncio
from peer_app import app, greet
async def fill():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for _ in range({jobs}):
            await greet.defer_async()
asyncio.run(fill())
"""


def measure(python: str, statement: str) -> tuple[int, float]:
    """Measure modules and processor milliseconds of one fresh import."""
    program = PROGRAM.format(statement=statement)
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=CACHED
    )
    modules, seconds = done.stdout.split()
    return int(modules), float(seconds) * 1000


def measure_all(rounds: int, peer: str | None) -> dict[str, tuple[int, float]]:
    # The same interpreter for both, so that its own imports are the same.
    python = peer or sys.executable
    statements = (*OURS, PEER) if peer else OURS
    found: dict[str, list[tuple[int, float]]] = {statement: [] for statement in statements}
    for statement in statements:
        measure(python, statement)  # Fills the caches.
    for _ in range(rounds):
        for statement in statements:
            found[statement].append(measure(python, statement))
    return {
        statement: (runs[0][0], statistics.median(cost for _, cost in runs))
        for statement, runs in found.items()
    }


def run(command: list[str], folder: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={**CACHED, "PYTHONPATH": folder},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def measure_lists(rounds: int, peer: str | None) -> dict[str, float]:
    """Measure processor milliseconds of a process that lists ten jobs."""
    server = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            commands = prepare_lists(server, folder, peer)
            found: dict[str, list[float]] = {name: [] for name in commands}
            for round_ in range(rounds + 1):
                for name, command in commands.items():
                    before = spent()
                    printed = run(command, folder)
                    if round_:  # The first one fills the caches.
                        found[name].append(spent() - before)
                    assert printed.count("greet") == JOBS, printed
            return {name: statistics.median(costs) for name, costs in found.items()}
    finally:
        server.stop()


def prepare_lists(server: PostgresServer, folder: str, peer: str | None) -> dict[str, list[str]]:
    python = peer or sys.executable
    own = str(Path(python).with_name("holdfast"))
    commands = {}
    urls = {"SQLite": f"sqlite:///{folder}/list.db", "PostgreSQL": server.dsn("postgres")}
    for name, url in urls.items():
        run([own, "--db", url, "migrate"], folder)
        run([python, "-c", OUR_APP.format(url=url, jobs=JOBS)], folder)
        commands[f"holdfast jobs list, {name}"] = [own, "--db", url, "jobs", "list"]
    if peer is not None:
        Path(folder, "peer_app.py").write_text(PEER_APP.format(url=urls["PostgreSQL"]))
        run([peer, "-c", PEER_FILL.format(jobs=JOBS)], folder)
        shell = [str(Path(peer).with_name("procrastinate")), "--app=peer_app.app", "shell"]
        commands["procrastinate shell list_jobs, PostgreSQL"] = [*shell, "list_jobs"]
    return commands


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peer", help="interpreter that has procrastinate")
    given = parser.parse_args()
    found = measure_all(given.rounds, given.peer)
    for statement, (modules, cost) in found.items():
        print(f"{statement:<44} {modules:>5} modules {cost:>8.1f} ms")
    lists = measure_lists(given.rounds, given.peer)
    for name, cost in lists.items():
        print(f"{name:<44} {cost:>22.1f} ms")
    if PEER not in found:
        return 0
    *ours, theirs = lists.values()
    return int(found[OURS[0]][1] > found[PEER][1] or max(ours) > theirs)


if __name__ == "__main__":
    sys.exit(main())
