"""Measure redaction of ordinary code and hostile text, in processor seconds per MB.

    python bench/redaction.py [--rounds 3]

The code is Python's standard library. Limits: 1.0 for code, 3.0 for hostile text. The exit code is
1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from pathlib import Path

from holdfast_review.patch import Change, FileChange, Hunk, Status
from holdfast_review.secrets import redact_change

CODE_LIMIT, HOSTILE_LIMIT = 1.0, 3.0
SIZE = 250_000
HOSTILE = (
    'password="x1y2";', "token: ", "password = (\n", 'password = ("a",\n', 'pw="""', 'pw="\\',
    "a://b:c@", "\\u0041", "%41", "\\", "TOKEN=abcd1 ", "--token a1b2c3 ", "discord=a1", "sk-",
    "authorization: Token a1b2c3d4e5f6\n", "- token: |\n  a1b2c3\n", 'value="a1b2" name=password ',
)  # fmt: skip


def seconds_per_mb(text: str, path: str, rounds: int) -> float:
    lines = tuple("+" + line for line in text.split("\n"))
    change = Change((FileChange(path, Status.ADDED, hunks=(Hunk(0, 1, lines),)),))
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        redact_change(change)
        best = min(best, time.process_time() - began)
    return best / (len(text) / 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the redaction of changes.")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    stdlib = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    code = "\n".join(file.read_text("utf-8", "replace") for file in stdlib)[:1_000_000]
    spent = seconds_per_mb(code, "x.py", rounds)
    print(f"{'code':40} {spent:6.2f} s/MB")
    worst = 0.0
    for piece in HOSTILE:
        each = seconds_per_mb(piece * (SIZE // len(piece)), "x.env", rounds)
        worst = max(worst, each)
        print(f"{piece!a:40} {each:6.2f} s/MB")
    print(f"code {spent:.2f} of {CODE_LIMIT}, hostile {worst:.2f} of {HOSTILE_LIMIT}")
    return int(spent > CODE_LIMIT or worst > HOSTILE_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
