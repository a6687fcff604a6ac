"""Inject every provider fault and worker crash into batch processing, and print the counts.

    python tools/batch_faults.py --seeds 3

Runs test_faults.py, test_incomplete_results.py and test_swapped.py of tests/batch on SQLite and
PostgreSQL with that many seeds, and sums up the rows that they write: how often each fault was
injected, how many items were billed twice, lost or leaked, and how many jobs wait for an operator.
The exit code is 1 unless all counts are zero and every test passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/batch/test_faults.py",
    "tests/batch/test_incomplete_results.py",
    "tests/batch/test_swapped.py",
)
COUNTS = ("paid_twice", "lost", "leaked", "held")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1, help="how often each is played")
    parser.add_argument("-k", dest="only", default="", help="only what matches, as pytest has it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rows.jsonl"
        table.touch()
        code = play(table, given.seeds, given.only)
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    is_clean = show(rows)
    return 0 if code == 0 and is_clean else 1


def play(table: Path, seeds: int, only: str) -> int:
    """Run the tests, which write their counts into *table*."""
    command = [sys.executable, "-m", "pytest", "-q", *TESTS]
    command += ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
    if only:
        command += ["-k", only]
    env = {**os.environ, "HOLDFAST_FAULT_TABLE": str(table), "HOLDFAST_FAULT_SEEDS": str(seeds)}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode  # noqa: S603


def show(rows: list[dict[str, object]]) -> bool:
    """Print the table; return whether it has no errors."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(("runs", *COUNTS), 0))
    violated: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        sum_of = sums[str(row["fault"])]
        sum_of["runs"] += 1
        for count in COUNTS:
            sum_of[count] += int(str(row[count]))
        violated[str(row["fault"])] |= set(row["violated"])  # type: ignore[call-overload]
    width = max((len(name) for name in sums), default=5)
    print(f"{'fault':{width}}  runs  paid twice  lost  leaked  held  verify")
    for name, sum_of in sums.items():
        verify = ", ".join(sorted(violated[name])) or "clean"
        print(
            f"{name:{width}}  {sum_of['runs']:4}  {sum_of['paid_twice']:10}  {sum_of['lost']:4}"
            f"  {sum_of['leaked']:6}  {sum_of['held']:4}  {verify}"
        )
    total = {count: sum(one[count] for one in sums.values()) for count in ("runs", *COUNTS)}
    bad = total["paid_twice"] + total["lost"] + total["leaked"]
    print(
        f"{'all':{width}}  {total['runs']:4}  {total['paid_twice']:10}  {total['lost']:4}"
        f"  {total['leaked']:6}  {total['held']:4}  {'' if not any(violated.values()) else 'not '}"
        "clean"
    )
    return bool(rows) and bad == 0 and not any(violated.values())


if __name__ == "__main__":
    sys.exit(main())
