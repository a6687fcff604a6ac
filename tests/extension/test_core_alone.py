"""The core without the other distributions: every module imports, and only its tables are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HIDE = """
import importlib.abc, importlib.metadata, sys

OTHERS = ("holdfast_llm", "holdfast_review", "holdfast_rewrite", "holdfast_simulator")

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OTHERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
every = importlib.metadata.entry_points

def entry_points(**wanted):
    return [point for point in every(**wanted) if point.module.partition(".")[0] not in OTHERS]

importlib.metadata.entry_points = entry_points
"""


def run(program: str, *arguments: str) -> str:
    """What a new interpreter without the other distributions prints."""
    command = [sys.executable, "-c", HIDE + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_the_core_imports_alone() -> None:
    told = run(
        """
import importlib, pkgutil
import holdfast

for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(*(name for name in sys.modules if name.partition(".")[0] in OTHERS))
"""
    )

    assert told.split() == []


def test_the_core_works_alone_with_its_own_tables(tmp_path: Path) -> None:
    told = run(
        """
from holdfast import Holdfast, Settings
from holdfast.store import open_store
from holdfast.store.tables import read_tables

url = sys.argv[1]
migrated = open_store(url, check=False)
migrated.migrate()
migrated.close()
hf = Holdfast(settings=Settings.load(db=url, env={}))
done = []
hf.job("order.ship")(lambda job, payload: done.append(payload))
org_id = "0198c0de-0000-7000-8000-00000000000a"
job = hf.enqueue("order.ship", {"n": 1}, org_id=org_id)
hf.worker(queues=["q:default"]).run_once()
admin = hf.operate(actor="user:root", role="admin")
print(hf.get(job.id, org_id=org_id).state, done)
print(admin.explain(job.id).reason)
print([finding.id for finding in admin.verify().violated])
print([finding.check for finding in admin.doctor() if finding.severity == "problem"])
import sqlite3
found = sqlite3.connect(url.removeprefix("sqlite:///")).execute(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast_%'")
tables = {name.removeprefix("holdfast_") for (name,) in found}
core = read_tables(("holdfast.store", "holdfast.artifacts", "holdfast.sealed_audit"))
print(sorted(tables - core.tenant.keys() - core.cell.keys()))
print(sorted(core.tenant.keys() & {"batch_item", "provider_call", "review", "rewrite_request"}))
hf.close()
""",
        f"sqlite:///{tmp_path / 'core.db'}",
    )

    assert told.splitlines() == [
        "completed [{'n': 1}]",
        "completed",
        "[]",
        "[]",
        "[]",
        "[]",
    ]
