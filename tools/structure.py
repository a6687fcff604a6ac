"""Print the metrics of the target structure for the working tree.

    python tools/structure.py [--root DIR] [--peer PYTHON] [--json]

It supports both layouts: everything in ``holdfast/``, or one distribution each below ``packages/``.
*PYTHON* is an interpreter with Procrastinate, to compare imports with.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The location of each component: the first existing folder, or all folders of one entry.
PLACES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "core": (("packages/holdfast-jobs/holdfast",), ("holdfast",)),
    "llm": (
        ("packages/holdfast-llm/holdfast_llm",),
        ("holdfast/batch", "holdfast/provider"),
    ),
    "rewrite": (
        ("packages/holdfast-rewrite/holdfast_rewrite",),
        ("holdfast/apps/rewrite",),
    ),
    "review": (
        ("packages/holdfast-review/holdfast_review",),
        ("holdfast/apps/review",),
    ),
    "simulator": (
        ("packages/holdfast-simulator/holdfast_simulator",),
        ("holdfast/simulator",),
    ),
    "artifacts": (("packages/holdfast-jobs/holdfast/artifacts",), ("holdfast/artifact",)),
    "seal": (("packages/holdfast-jobs/holdfast/sealed_audit",),),
}
REMOVED = ("llm", "rewrite", "review", "simulator", "artifacts", "seal")

# The parts of a claim, by their old names and those of the glossary.
CLAIM_NAMES = frozenset({
    "Ask", "Lane", "Round", "Turn", "Poured", "Room", "Shares", "Rules", "pour", "claim_jobs",
    "claim_by", "take_turns", "ClaimRequest", "TenantBacklog", "RoundRobinCursor", "Allocation",
    "Capacity", "allocate", "interleave_tenants", "claim",
})  # fmt: skip
# Packages below operate, which a command must not import.
BELOW_OPERATE = {
    "engine", "store", "batch", "outbox", "artifact", "artifacts", "provider", "channel",
    "channels", "apps", "http", "outbound",
}  # fmt: skip

ONLY = re.compile(r"\{only (?:sqlite|postgres)\}")
IMPORT = "import sys, time; sys.path.append({path!r}); before, began = len(sys.modules), \
time.process_time(); {statement}; print(len(sys.modules) - before, time.process_time() - began)"


@dataclass(frozen=True, slots=True)
class Module:
    """A module and its import-time imports."""

    name: str
    path: Path
    needs: frozenset[str]


@dataclass(slots=True)
class Layout:
    """The location of the packages."""

    root: Path
    folders: dict[str, list[Path]] = field(default_factory=dict)

    @classmethod
    def find(cls, root: Path) -> Layout:
        found: dict[str, list[Path]] = {}
        for component, choices in PLACES.items():
            choice = next((c for c in choices if (root / c[0]).is_dir()), ())
            found[component] = [root / part for part in choice]
        return cls(root, found)

    @property
    def core(self) -> Path:
        return self.folders["core"][0]

    def packages(self) -> list[Path]:
        """Return the top folder of every importable package."""
        others = [path for paths in self.folders.values() for path in paths]
        outside = [path for path in others if self.core not in (path, *path.parents)]
        return [self.core, *outside]


# -- imports


def read_modules(layout: Layout) -> dict[str, Module]:
    found = {}
    for package in layout.packages():
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, frozenset(imported(path, name)))
    return found


def imported(path: Path, name: str) -> Iterator[str]:
    """Yield the import-time imports of a file, without those of functions or type checking."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    pending: list[ast.stmt] = list(ast.parse(path.read_text()).body)
    while pending:
        match pending.pop():
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = ".".join(package.split(".")[: len(package.split(".")) - level + 1])
                source = ".".join(filter(None, (base if level else "", module)))
                yield source
                yield from (f"{source}.{alias.name}" for alias in names)
            case ast.If(test=test, body=body, orelse=orelse):
                pending += orelse if "TYPE_CHECKING" in ast.dump(test) else [*body, *orelse]
            case ast.Try(body=body, orelse=orelse, finalbody=finalbody, handlers=handlers):
                is_optional = any("ImportError" in ast.dump(handler) for handler in handlers)
                pending += [*orelse, *finalbody, *([] if is_optional else body)]
            case ast.With(body=body) | ast.ClassDef(body=body):
                pending += body
            case _:
                pass


def failing_without(modules: Mapping[str, Module], gone: set[str]) -> set[str]:
    """Return the remaining modules that cannot be imported once *gone* is removed."""
    failed = set(gone)
    while True:
        more = {
            name
            for name, module in modules.items()
            if name not in failed
            and (
                module.needs & failed
                or {".".join(name.split(".")[:n]) for n in range(1, 9)} & failed
            )
        }
        if not more:
            return failed - gone
        failed |= more


def modules_below(modules: Mapping[str, Module], folders: list[Path]) -> set[str]:
    return {
        name
        for name, module in modules.items()
        if any(folder in module.path.parents for folder in folders)
    }


# -- the rows of the table


def core_size(layout: Layout) -> str:
    files = list(layout.core.rglob("*.py"))
    lines = sum(len(path.read_text().splitlines()) for path in files)
    return f"{lines:,} / {len(files)}"


def failing_imports(layout: Layout) -> str:
    modules = read_modules(layout)
    counts = []
    for component in REMOVED:
        gone = modules_below(modules, layout.folders[component])
        counts.append(str(len(failing_without(modules, gone))) if gone else "not found")
    return ", ".join(counts)


def tables(layout: Layout) -> str:
    """Return the tables after a migration of the core alone, in a fresh process."""
    program = """
import sqlite3, sys
from holdfast.store import open_store
store = open_store(f"sqlite:///{sys.argv[1]}/work.db", check=False)
store.migrate()
store.close()
with sqlite3.connect(f"{sys.argv[1]}/work.db") as found:
    print(found.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'"
                        " AND name LIKE 'holdfast!_%' ESCAPE '!'").fetchone()[0])
"""
    with tempfile.TemporaryDirectory() as folder:
        return run([sys.executable, "-c", program, folder], layout).strip()


def claim_parts(layout: Layout) -> str:
    found: dict[str, set[str]] = {}
    for path in sorted((layout.core / "engine").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            named = isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name
            if named in CLAIM_NAMES:
                found.setdefault(path.name, set()).add(str(named))
    names = {name for group in found.values() for name in group}
    return f"{len(found)} files ({', '.join(sorted(found))}), {len(names)} names"


def bypassing_commands(layout: Layout) -> str:
    files = sorted(path for path in (layout.core / "cli").glob("*.py") if path.stem != "__init__")
    other = {"holdfast_llm", "holdfast_rewrite", "holdfast_review"}
    bypassing = []
    for path in files:
        names = {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in imports_of(node)
            if name.split(".")[0] in other
            or (name.startswith("holdfast.") and name.split(".")[1] in BELOW_OPERATE)
        }
        if names:
            bypassing.append(path.stem)
    return f"{len(bypassing)} of {len(files)}" + (f" ({', '.join(bypassing)})" if bypassing else "")


def imports_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case _:
            return []


def only_blocks(layout: Layout) -> int:
    """Count text for one database only, in shared statements and migrations."""
    files = {path for package in layout.packages() for path in package.rglob("*.sql")}
    return sum(len(ONLY.findall(path.read_text())) for path in files)


def import_cost(layout: Layout, peer: str | None, rounds: int = 7) -> str:
    """Measure modules and processor time of imports, alternating between the candidates."""
    statements = ["import holdfast", "from holdfast import Holdfast"]
    if peer:
        statements.append("import procrastinate")
    found: dict[str, list[tuple[int, float]]] = {statement: [] for statement in statements}
    for _ in range(rounds + 1):
        for statement in statements:
            program = IMPORT.format(path=str(layout.core.parent), statement=statement)
            modules, seconds = run([peer or sys.executable, "-c", program], layout).split()
            found[statement].append((int(modules), float(seconds) * 1000))
    return "; ".join(
        f"{statement}: {runs[-1][0]} modules, {statistics.median(ms for _, ms in runs[1:]):.1f} ms"
        for statement, runs in found.items()
    )


def run(command: list[str], layout: Layout) -> str:
    paths = [str(package.parent) for package in layout.packages()]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    done = subprocess.run(  # noqa: S603
        command, env=env, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def measure(layout: Layout, peer: str | None) -> dict[str, str]:
    removed = ", ".join(REMOVED)
    return {
        "core package, Python lines / modules": core_size(layout),
        f"modules that fail to import without {removed}": failing_imports(layout),
        "tables after migrate without extensions": tables(layout),
        "files and names of a claim": claim_parts(layout),
        "CLI modules that bypass operate": bypassing_commands(layout),
        "{only} blocks in SQL": str(only_blocks(layout)),
        "imports": import_cost(layout, peer),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the working tree to measure")
    parser.add_argument("--peer", help="an interpreter that has procrastinate")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(Layout.find(given.root.resolve()), given.peer)
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    print("| measure | measured |\n|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
