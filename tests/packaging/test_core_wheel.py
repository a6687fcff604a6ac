"""The core wheel works alone, and every other distribution adds its own commands and tables."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.store import CORE
from holdfast.store.tables import read_tables
from tests.packaging.environment import Environment

Make = Callable[..., Environment]
CORE_WHEEL = "holdfast-jobs"
# What a user installs for the optional parts of the core; pytest runs its plugin.
EXTRAS = (f"{CORE_WHEEL}[postgres,channels,demo,metrics,s3,trace]", "pytest")
IMPORT_ALL = """
import importlib, pkgutil, sys
import {package}
failed = []
for module in pkgutil.walk_packages({package}.__path__, "{package}."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as exc:
        failed.append(f"{{module.name}}: {{exc}}")
sys.exit("\\n".join(failed) or None)
"""
# Every command is imported, as its --help would.
LOOK = """
import json, sys
from holdfast.cli import cli, main
names = cli.list_commands(None)
print(json.dumps(names), flush=True)
assert all(cli.get_command(None, name) for name in names)
main(["--db", sys.argv[1], "migrate"])
"""
# The commands and the component that each distribution adds to the core.
ADDED = {
    "holdfast-llm": ({"batches", "costs"}, "batch"),
    "holdfast-rewrite": ({"batches", "costs", "rewrite"}, "rewrite"),
    "holdfast-review": ({"batches", "costs", "review"}, "review"),
    "holdfast-simulator": ({"simulator"}, None),
}
FEATURES = {"batches", "costs", "rewrite", "review", "simulator"}
ONLY_ON_POSTGRES = {"handler_transaction"}


@dataclass(frozen=True, slots=True)
class Look:
    """What an environment offers: the commands of the CLI, and what ``migrate`` creates."""

    commands: set[str]
    tables: set[str]
    components: set[str]


def look_at(environment: Environment, file: Path) -> Look:
    done = environment.run("python", "-c", LOOK, f"sqlite:///{file}")
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(file)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        found = database.execute("SELECT DISTINCT component FROM holdfast_migration").fetchall()
    tables = {name.removeprefix("holdfast_") for (name,) in names if name.startswith("holdfast_")}
    return Look(set(json.loads(done.stdout.splitlines()[0])), tables, {name for (name,) in found})


@pytest.fixture(scope="module")
def core(environment: Make, tmp_path_factory: pytest.TempPathFactory) -> Look:
    """The core alone in an empty environment."""
    return look_at(environment(CORE_WHEEL), tmp_path_factory.mktemp("core") / "core.db")


def test_every_module_of_the_core_imports_without_the_other_distributions(
    environment: Make,
) -> None:
    done = environment(*EXTRAS).run("python", "-c", IMPORT_ALL.format(package="holdfast"))

    assert done.returncode == 0, done.stderr


def test_the_core_alone_runs_its_demo(environment: Make, tmp_path: Path) -> None:
    alone = environment(CORE_WHEEL)
    done = alone.run("holdfast", "demo", "--plain", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})

    assert done.returncode == 0, done.stdout + done.stderr
    assert "In total: lost 0, doubled 0\n" in done.stdout


def test_the_core_alone_has_only_its_own_commands_and_tables(core: Look) -> None:
    declared = read_tables([CORE.package, "holdfast.artifacts", "holdfast.sealed_audit"])
    expected = {*declared.tenant, *declared.cell} - ONLY_ON_POSTGRES

    assert "jobs" in core.commands
    assert not core.commands & FEATURES
    assert core.components == {"core", "artifacts", "seal"}
    assert core.tables == expected


@pytest.mark.parametrize("name", ADDED)
def test_a_distribution_adds_its_tables_and_commands(
    environment: Make, core: Look, tmp_path: Path, name: str
) -> None:
    commands, component = ADDED[name]

    added = look_at(environment(CORE_WHEEL, name), tmp_path / "added.db")

    assert added.commands - core.commands == commands
    if component is None:
        assert (added.tables, added.components) == (core.tables, core.components)
    else:
        assert component in added.components
        assert added.tables > core.tables
