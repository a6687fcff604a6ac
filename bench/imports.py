"""Measure import costs: modules and processor time, compared with Procrastinate in the same run.

    python bench/imports.py [--rounds 15] [--peer PYTHON]

PYTHON is the interpreter of an environment with Procrastinate and psycopg; without it only Holdfast
is measured. Every import uses a fresh interpreter, the candidates alternate, and the figure is the
median. The exit code is 1 if Procrastinate is cheaper than `import holdfast`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import holdfast

HERE = str(Path(holdfast.__file__).parents[1])
PROGRAM = """
import sys, time
sys.path.append({path!r})
before, began = len(sys.modules), time.process_time()
{statement}
print(len(sys.modules) - before, time.process_time() - began)
"""
# Bytecode is cached, as in every installation.
CACHED = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
OURS = ("import holdfast", "from holdfast import Holdfast")
PEER = "import procrastinate"


def measure(python: str, statement: str) -> tuple[int, float]:
    """Measure modules and processor milliseconds of one fresh import."""
    program = PROGRAM.format(path=HERE, statement=statement)
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peer", help="interpreter that has procrastinate")
    given = parser.parse_args()
    found = measure_all(given.rounds, given.peer)
    for statement, (modules, cost) in found.items():
        print(f"{statement:<32} {modules:>5} modules {cost:>8.1f} ms")
    if PEER not in found:
        return 0
    return int(found[OURS[0]][1] > found[PEER][1])


if __name__ == "__main__":
    sys.exit(main())
