"""The public names: their modules, their descriptions, and the cost of importing them."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))

# Examples and pages import Holdfast's names from these modules and from nothing below them.
DISTRIBUTIONS = {
    "holdfast",
    "holdfast_llm",
    "holdfast_review",
    "holdfast_rewrite",
    "holdfast_simulator",
}
CONTRIB = {f"holdfast.contrib.{name}" for name in ("asyncio", "fastapi", "sqlalchemy")}
DJANGO = {f"holdfast.contrib.django.{name}" for name in ("app", "asgi", "tasks")}
SERVE = {"holdfast.api", "holdfast.client", "holdfast.console"}
PUBLIC = DISTRIBUTIONS | {"holdfast.testing", "holdfast_llm.testing"} | SERVE | CONTRIB | DJANGO


def python_of(path: Path) -> Iterator[ast.Module]:
    """A Python file, or every Python block of a page."""
    if path.suffix == ".py":
        yield ast.parse(path.read_text())
        return
    blocks = re.findall(r"^```(?:python|py)\n(.*?)^```", path.read_text(), re.M | re.S)
    yield from (ast.parse(block) for block in blocks)


def imports(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Every module that is imported, and the name that is taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or ".", alias.name) for alias in node.names)


def test_examples_and_pages_import_public_names_only() -> None:
    ours = [
        (path.name, module, name)
        for path in (*EXAMPLES, *PAGES)
        for tree in python_of(path)
        for module, name in imports(tree)
        if module.split(".")[0] in DISTRIBUTIONS
    ]
    names = [one for one in ours if one[1] == "holdfast" and one[2]]

    assert names
    assert [one for one in ours if one[1] not in PUBLIC] == []
    assert [one for one in names if one[2] not in holdfast._MODULE_OF] == []


def test_the_public_names_are_sorted_and_complete() -> None:
    tree = ast.parse(Path(holdfast.__file__).read_text())
    typed = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.level == 0
        and not (node.module or "").startswith("importlib")
        for alias in node.names
    }
    extras = {name for names in holdfast._MODULES_OF_EXTRAS.values() for name in names.split()}

    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert typed == holdfast._MODULE_OF, "the table and the imports for type checkers differ"
    assert set(holdfast.__all__) == typed.keys() - extras
    assert typed.keys() < set(dir(holdfast))


def test_every_public_name_has_a_description() -> None:
    assert [problem for name in sorted(holdfast._MODULE_OF) for problem in undescribed(name)] == []


def undescribed(name: str) -> Iterator[str]:
    """Why the description of a public name is not complete."""
    value = getattr(holdfast, name)
    # An error may inherit its docstring; one that Python or dataclass made does not count.
    family = [kind for kind in getattr(value, "__mro__", [value]) if "holdfast" in kind.__module__]
    said = [vars(kind).get("__doc__") if inspect.isclass(kind) else kind.__doc__ for kind in family]
    if not any(said):
        yield f"{name} has no docstring"
    if said and (said[0] or "").startswith(f"{name}("):
        yield f"{name} has only the docstring that dataclass made"
    for method in methods(value):
        if not getattr(value, method).__doc__:
            yield f"{name}.{method} has no docstring"


def methods(value: object) -> list[str]:
    """The public methods and properties that a class defines itself."""
    if not inspect.isclass(value):
        return []
    kinds = (property, classmethod, staticmethod)
    return [
        name
        for name, found in vars(value).items()
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, kinds))
    ]


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Holdfats'"):
        holdfast.Holdfats  # type: ignore[attr-defined]  # noqa: B018


# -- import costs

HEAVY = {"sqlite3", "psycopg", "click", "asyncio", "httpcore2", "httpcore", "typing", "importlib"}


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads for *statement*."""
    program = f"""
import sys
sys.path += {[str(path) for path in sorted((ROOT / "packages").iterdir())]!r}
before = set(sys.modules)
{statement}
print(*set(sys.modules) - before)
"""
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_the_package_loads_none_of_its_modules() -> None:
    loaded = loaded_by("import holdfast")

    assert len(loaded) <= 3, sorted(loaded)
    assert {name.split(".")[0] for name in loaded} & HEAVY == set()
    assert [name for name in loaded if name.startswith("holdfast.")] == []


def test_a_name_loads_its_own_module_and_no_application() -> None:
    loaded = loaded_by("from holdfast import JobNotFound, RetryPolicy")

    assert "holdfast.errors" in loaded
    assert [name for name in loaded if name.startswith(("holdfast_", "holdfast.cli"))] == []
    assert {name.split(".")[0] for name in loaded} & {"sqlite3", "psycopg", "click"} == set()


def test_a_star_import_brings_every_name() -> None:
    found: dict[str, object] = {}
    exec("from holdfast import *", found)

    assert set(holdfast.__all__) <= found.keys()
