"""Play every fault of a carrier and every death of a worker, and print what was counted.

    python tools/outbox_faults.py --seeds 1000

Runs tests/outbox/test_faults.py with so many stories over channels, faults, kills, stalls and
databases, and sums up the rows that it writes, by channel and fault: how often each was played, and
how often it happened; what a carrier took more than once, what was sent again without a recorded
reason, and what waits for a person. The exit code is 1 unless nothing is wrong and every test
passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COUNTS = (
    "killed",
    "stalled",
    "sent",
    "held",
    "failed",
    "dropped",
    "twice",
    "not_ours",
    "unreasoned",
    "believed",
    "lost",
    "leaked",
)
# What may never be, whatever goes wrong.
NEVER = ("unreasoned", "lost", "leaked")
HEADS = {"not_ours": "not ours", "unreasoned": "no reason"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100, help="how many stories are played")
    parser.add_argument("-k", dest="only", default="", help="only what matches, as pytest has it")
    given = parser.parse_args()
    began = time.monotonic()
    # Nobody waits for a disk: what is killed is a process, not the machine.
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        # A server that does not run as root has to come in.
        Path(folder).chmod(0o755)
        table = Path(folder) / "rows.jsonl"
        table.touch()
        code = play(table, given.seeds, given.only)
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    is_clean = show(rows)
    print(f"{len(rows)} runs in {time.monotonic() - began:.0f} s")
    return 0 if code == 0 and is_clean else 1


def play(table: Path, seeds: int, only: str) -> int:
    """Run the tests; what they count goes into *table*."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/outbox/test_faults.py"]
    command += ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
    if only:
        command += ["-k", only]
    env = {
        **os.environ,
        "HOLDFAST_FAULT_TABLE": str(table),
        "HOLDFAST_FAULT_SEEDS": str(seeds),
        "TMPDIR": str(table.parent),
    }
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode  # noqa: S603


def show(rows: list[dict[str, Any]]) -> bool:
    """Print the table by channel and fault, then by what was done to a worker; is it clean?"""
    by_fault: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    by_death: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        row["killed"], row["stalled"] = int(row["kills"] > 0), int(bool(row["stall"]))
        by_fault[row["channel"], row["fault"]].append(row)
        done = [f"{word} {row[word]}" for word in ("kill", "stall") if row[word]]
        by_death["any", " ".join(done) or "race"].append(row)
    heads = "  ".join(f"{HEADS.get(word, word):>{_width(word)}}" for word in COUNTS)
    print(f"{'channel':11}  {'fault':26}  runs  {heads}  verify")
    for cell in sorted(by_fault):
        line(*cell, by_fault[cell])
    line("all", "", rows)
    for cell in sorted(by_death):
        line(*cell, by_death[cell])
    print("twice: taken more than once; not ours: of these, made two by the wire, by a receiver")
    print(
        "  that forgot, or by the owner's policy; no reason: sent again without a recorded reason;"
    )
    print(
        "  believed: not there, though its carrier said so, or marked by somebody and nobody to ask"
    )
    bad = sum(row["twice"] - row["not_ours"] + sum(row[word] for word in NEVER) for row in rows)
    return bool(rows) and bad == 0


def line(channel: str, fault: str, rows: list[dict[str, Any]]) -> None:
    sums = Counter[str]()
    for row in rows:
        sums.update({word: row[word] for word in COUNTS})
    counts = "  ".join(f"{sums[word]:>{_width(word)}}" for word in COUNTS)
    violated = sorted({check for row in rows for check in row["violated"]})
    verify = ", ".join(violated) or "clean"
    print(f"{channel:11}  {fault:26}  {len(rows):4}  {counts}  {verify}")


def _width(word: str) -> int:
    return max(len(HEADS.get(word, word)), 5)


if __name__ == "__main__":
    sys.exit(main())
