"""What a command imports: `holdfast jobs list` starts without the engine and the extensions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Modules of Holdfast that `jobs list` imports, by database. The numbers may only fall.
MOST = {"sqlite": 56, "postgres": 63}
# Packages that no read of the jobs needs.
NOT_NEEDED = (
    *("fastapi", "sqlalchemy", "cronsim", "difflib", "tomllib", "holdfast.engine.job"),
    *("holdfast.app", "holdfast.extension", "holdfast.outbox", "holdfast.engine.worker"),
    *("holdfast.engine.handler", "holdfast.operate.doctor", "holdfast.operate.verify"),
)
# psycopg imports these.
NOT_WITHOUT_PSYCOPG = ("asyncio", "importlib.resources", "zoneinfo")
PROGRAM = """
import sys
from holdfast.cli import main
try:
    main(["--db", sys.argv[1], "jobs", "list"])
except SystemExit as ended:
    assert not ended.code
print(*sorted(sys.modules), sep="\\n")
"""


def imported(url: str, folder: Path) -> set[str]:
    # Other tests set variables of Holdfast in this process.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url],
        capture_output=True, text=True, check=False, timeout=60, cwd=folder, env=plain,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_jobs_list_imports_only_what_it_needs(url: str, tmp_path: Path) -> None:
    found = imported(url, tmp_path)

    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    own = sorted(name for name in found if name.partition(".")[0].startswith("holdfast"))
    assert len(own) <= MOST[kind], own
    not_needed = {*NOT_NEEDED, *(NOT_WITHOUT_PSYCOPG if kind == "sqlite" else ())}
    assert sorted(found & not_needed) == []


SCRIPT = """
import gc, sys
from holdfast.cli import script
sys.argv = ["holdfast", "--version"]
try:
    script()
finally:
    print(gc.get_freeze_count() > 0)
"""


def test_the_script_leaves_no_garbage_to_search_at_its_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.splitlines()[-1] == "True"
