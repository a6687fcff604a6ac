"""The generated pages of docs/reference/ are up to date, and every item has a description."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_reference_pages_are_up_to_date_and_describe_everything() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)

    assert done.returncode == 0, done.stderr
