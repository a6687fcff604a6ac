"""Inject every channel fault and worker crash into the outbox, and print the counts.

    python tools/outbox_faults.py --seeds 1000

Runs tests/outbox/test_faults.py with that many scenarios over channels, faults, kills, stalls and
databases. Sums up the rows by channel and fault: how often each was injected and took effect, which
messages were accepted more than once, which were resent without a recorded reason, and which are
held. Then runs tests/outbox/test_receivers.py: receivers that answer badly, refuse, are busy or
absent, each for a hundred hours. Prints how often each was called and the final states of its
messages. The exit code is 1 unless there are no errors and every test passed.
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
# Counts that must always be zero.
NEVER = ("unreasoned", "lost", "leaked")
HEADS = {"not_ours": "not ours", "unreasoned": "no reason"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100, help="how many stories are played")
    parser.add_argument("-k", dest="only", default="", help="only what matches, as pytest has it")
    parser.add_argument("--receivers", action="store_true", help="only the table of receivers")
    given = parser.parse_args()
    began = time.monotonic()
    # In memory: the tests kill processes, not the machine.
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        # A server that does not run as root needs access.
        Path(folder).chmod(0o755)
        is_clean = play_receivers(Path(folder) / "receivers.jsonl", given.only)
        if not given.receivers:
            is_clean &= play_kills(Path(folder) / "rows.jsonl", given.seeds, given.only)
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if is_clean else 1


def play_kills(table: Path, seeds: int, only: str) -> bool:
    """Run every channel fault with every worker crash; return whether all results are right."""
    own = {"HOLDFAST_FAULT_TABLE": str(table), "HOLDFAST_FAULT_SEEDS": str(seeds)}
    code, rows = play("tests/outbox/test_faults.py", table, only, own)
    is_clean = show(rows)
    print(f"{len(rows)} runs")
    return code == 0 and is_clean


def play_receivers(table: Path, only: str) -> bool:
    """Run every receiver that answers badly or refuses; return whether all results are right."""
    own = {"HOLDFAST_RECEIVER_TABLE": str(table)}
    code, rows = play("tests/outbox/test_receivers.py", table, only, own)
    return show_receivers(rows) and code == 0


def play(
    tests: str, table: Path, only: str, own: dict[str, str]
) -> tuple[int, list[dict[str, Any]]]:
    """Run *tests*, which write rows into *table*; return the exit code and the rows."""
    table.touch()
    command = [sys.executable, "-m", "pytest", "-q", tests]
    command += ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
    if only:
        command += ["-k", only]
    env = {**os.environ, **own, "TMPDIR": str(table.parent)}
    code = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode  # noqa: S603
    return code, [json.loads(line) for line in table.read_text().splitlines()]


def show_receivers(rows: list[dict[str, Any]]) -> bool:
    """Print a line for each receiver and database: posts, attempts and final state."""
    print(
        f"{'channel':9}  {'answer':26}  {'database':10}  messages  posts  most  state    repaired"
    )
    for row in sorted(rows, key=lambda one: (one["channel"], one["fault"], one["database"])):
        counts = f"{row['messages']:8}  {row['posts']:5}  {row['most']:4}"
        words = f"{row['channel']:9}  {row['fault']:26}  {row['database']:10}"
        ends = f"{row['state']:7}  {row['repaired'] or '-':8}"
        wanted = f"wrong, wanted {row['wanted']} and at most {row['most_posts']} posts"
        print(f"{words}  {counts}  {ends}  {'' if row['is_right'] else wanted}".rstrip())
    print("posts: calls that the receiver saw; most: attempts of the message that had most;")
    print("  repaired: the state after the credential has changed and the receiver accepts")
    wrong = sum(not row["is_right"] for row in rows)
    print(f"{len(rows)} cells, {wrong} wrong")
    return bool(rows) and wrong == 0


def show(rows: list[dict[str, Any]]) -> bool:
    """Print the table by channel and fault, then by worker failure; return whether it is clean."""
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
