"""The definitions, imports and contents of this repository's Python files, parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Source:
    """The facts about a Python file that the tests use. The syntax tree is not kept."""

    # The kind and the name of every identifier that the file defines.
    identifiers: list[tuple[str, str]] = field(default_factory=list)
    # The name and the number of lines of every function.
    functions: list[tuple[str, int]] = field(default_factory=list)
    # Every module that the file imports, at its top or inside a function.
    imports: list[str] = field(default_factory=list)
    # Every string with its line, and the beginning of every f-string that begins with text.
    strings: list[tuple[int, str]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)


@cache
def source(path: Path) -> Source:
    """Parse a file and keep the facts that the tests use."""
    found = Source()
    found.identifiers.append(
        ("module", path.parent.name if path.stem == "__init__" else path.stem),
    )
    with without_garbage_collection():
        for node in ast.walk(ast.parse(path.read_text())):
            _add(node, found)
    return found


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Parsing all packages takes 0.7 s of CPU time; with garbage collection 2.3 s."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _add(node: ast.AST, found: Source) -> None:
    match node:
        case ast.Constant(value=str(text)):
            found.strings.append((node.lineno, text))
        case ast.JoinedStr(values=[ast.Constant(value=text), *_]):
            found.prefixes.append(str(text))
        case ast.arg(arg=name):
            found.identifiers.append(("parameter", name))
        case ast.Attribute(attr=name, ctx=ast.Store()):
            found.identifiers.append(("attribute", name))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            found.identifiers.append(("function", name))
            found.functions.append((name, (node.end_lineno or 0) - node.lineno + 1))
        case ast.ClassDef(name=name):
            found.identifiers.append(("class", name))
            found.identifiers += (("attribute", name) for name in _assigned(node))
        case ast.Module():
            found.identifiers += (("attribute", name) for name in _assigned(node))
        case ast.Import(names=aliases):
            found.imports += (alias.name for alias in aliases)
        case ast.ImportFrom(module=str(module), names=aliases, level=0):
            found.imports += (module, *(f"{module}.{alias.name}" for alias in aliases))
        case ast.alias(asname=str(name)):
            found.identifiers.append(("alias", name))


def _assigned(owner: ast.Module | ast.ClassDef) -> Iterator[str]:
    """The variables of a module and the fields of a class."""
    for node in owner.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
