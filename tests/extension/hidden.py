"""The core without parts of it, in an interpreter that cannot import them.

Importing every module takes four seconds. So one process imports them with all the optional parts
hidden, and each test runs in a fork of it, which hides only the parts that the test names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import importlib, importlib.abc, importlib.metadata, json, os, pkgutil, sys, traceback

OTHERS = ("holdfast_llm", "holdfast_review", "holdfast_rewrite", "holdfast_simulator")
PARTS = ("holdfast.artifacts", "holdfast.sealed_audit")
hidden = {*OTHERS, *PARTS}

def is_hidden(name):
    return any(name == part or name.startswith(part + ".") for part in hidden)

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if is_hidden(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
every = importlib.metadata.entry_points

def entry_points(**wanted):
    found = every(**wanted)
    if not hidden & {*OTHERS}:
        return found
    return [point for point in found if not is_hidden(point.module)]

importlib.metadata.entry_points = entry_points

import holdfast

def import_all():
    found = [one.name for one in pkgutil.walk_packages(holdfast.__path__, "holdfast.")]
    names = [name for name in found if not is_hidden(name) and not name.endswith("__main__")]
    for name in names:
        importlib.import_module(name)
    return len(names)

imported = import_all()
loaded = [name for name in sys.modules if is_hidden(name)]
print(json.dumps({"imported": imported, "loaded": loaded}), flush=True)

for name, shown, text, arguments in json.loads(sys.stdin.read()):
    child = os.fork()
    if child == 0:
        hidden -= {*shown}
        told = {"modules": import_all()}
        try:
            exec(text, {"told": told, "arguments": arguments})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        told["loaded"] = [name for name in sys.modules if is_hidden(name)]
        print(json.dumps({name: told}), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""

OTHERS = ("holdfast_llm", "holdfast_review", "holdfast_rewrite", "holdfast_simulator")
ARTIFACTS, SEAL = "holdfast.artifacts", "holdfast.sealed_audit"

# A test: its name, the parts that it can import, its program and its arguments.
Story = tuple[str, tuple[str, ...], str, tuple[str, ...]]


def tell(folder: Path, *stories: Story) -> dict[str, Any]:
    """The output of the process that hides every part, and the output of each test by name."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(stories),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.stderr == ""
    told: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        told |= json.loads(line)
    return told
