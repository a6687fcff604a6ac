"""The core wheel works alone, and every other distribution adds its own commands and tables."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from holdfast.store import CORE
from holdfast.store.tables import read_tables
from tests.packaging.environment import Environment
from tests.short_demo import PROGRAM

Make = Callable[..., Environment]
CORE_WHEEL = "holdfast-jobs"
# What a user installs for the optional parts of the core; pytest runs its plugin.
EXTRAS = (f"{CORE_WHEEL}[postgres,channels,demo,metrics,oidc,s3,serve,client,trace]", "pytest")
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
# Inspect the installed distributions, and then, in a child for each, those of other environments,
# so that shared modules are imported once. Every command is imported, as its --help would.
LOOK = """
import json, os, sys
from holdfast.cli import cli, main
import holdfast.app
for site_packages, url in json.loads(sys.argv[1]):
    if os.fork() == 0:
        sys.path.append(site_packages)
        names = cli.list_commands(None)
        print(json.dumps(names), flush=True)
        assert all(cli.get_command(None, name) for name in names)
        main(["--db", url, "migrate"])
    assert os.wait()[1] == 0
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
    """The contents of an environment: the commands of the CLI, and the tables of ``migrate``."""

    commands: set[str]
    tables: set[str]
    components: set[str]


def look_at(folder: Path, core: Environment, others: Mapping[str, Environment]) -> dict[str, Look]:
    """The contents of the core alone, and of the core with each of the others."""
    places = {CORE_WHEEL: core, **others}
    files = {name: folder / f"{name}.db" for name in places}
    asked = [
        (str(place.site_packages), f"sqlite:///{files[name]}") for name, place in places.items()
    ]
    done = core.run("python", "-c", LOOK, json.dumps(asked))
    assert done.returncode == 0, done.stdout + done.stderr
    listed = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return {
        name: Look(set(json.loads(commands)), *stored(files[name]))
        for name, commands in zip(places, listed, strict=True)
    }


def stored(file: Path) -> tuple[set[str], set[str]]:
    """The tables and the components of a database."""
    with closing(sqlite3.connect(file)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        found = database.execute("SELECT DISTINCT component FROM holdfast_migration").fetchall()
    tables = {name.removeprefix("holdfast_") for (name,) in names if name.startswith("holdfast_")}
    return tables, {name for (name,) in found}


def test_every_module_of_the_core_imports_without_the_other_distributions(
    environment: Make,
) -> None:
    done = environment(*EXTRAS).run("python", "-c", IMPORT_ALL.format(package="holdfast"))

    assert done.returncode == 0, done.stderr


def test_the_core_alone_runs_its_demo(environment: Make, tmp_path: Path) -> None:
    alone = environment(CORE_WHEEL)
    done = alone.run(
        *("python", "-c", PROGRAM, "--plain"), cwd=tmp_path, env={"TMPDIR": str(tmp_path)}
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "In total: lost 0, doubled 0\n" in done.stdout


def test_the_core_alone_has_its_own_commands_and_tables_and_each_distribution_adds_its_own(
    environment: Make, tmp_path: Path
) -> None:
    declared = read_tables(
        [
            CORE.package,
            *("holdfast.artifacts", "holdfast.sealed_audit"),
            *("holdfast.webhooks", "holdfast.workflows"),
        ]
    )
    expected = {*declared.tenant, *declared.cell} - ONLY_ON_POSTGRES

    found = look_at(
        tmp_path,
        environment(CORE_WHEEL),
        {name: environment(CORE_WHEEL, name) for name in ADDED},
    )

    core = found.pop(CORE_WHEEL)
    assert "jobs" in core.commands
    assert not core.commands & FEATURES
    assert core.components == {"core", "artifacts", "seal", "webhooks", "workflows"}
    assert core.tables == expected
    assert found.keys() == ADDED.keys()
    for name, added in found.items():
        commands, component = ADDED[name]
        assert added.commands - core.commands == commands, name
        if component is None:
            assert (added.tables, added.components) == (core.tables, core.components), name
        else:
            assert component in added.components, name
            assert added.tables > core.tables, name
