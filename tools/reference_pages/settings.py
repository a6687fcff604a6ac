"""docs/reference/settings.md: every key of holdfast.toml, from the settings dataclasses."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from holdfast import Settings
from holdfast.clock import ms
from holdfast.config.channel import CHANNEL_KINDS, keys_of_channel_kind
from holdfast.config.extensions import installed, known_runs, known_sections
from holdfast.config.load import variable_names
from holdfast.cron import write_every
from reference_pages.page import Page, code, first_sentence, introduction

SHAPES = ("section", "table", "rows")


def build() -> Page:
    page = Page()
    page.add(introduction("settings"), "## Top-level settings")
    items = {item.name: item for item in fields(Settings) if item.name != "sections"}
    plain = [item for item in items.values() if not _shapes(item)]
    page.table(COLUMNS, (_row(page, Settings, item, "") for item in plain))
    page.add("## Sections of the core")
    for item in items.values():
        if _shapes(item):
            _add_section(page, item.name, item, attribute_docs(Settings).get(item.name))
    for extension in sorted(installed().values(), key=lambda found: found.name):
        if not extension.settings:
            continue
        page.add(f"## Sections of the extension `{extension.name}`")
        for name in extension.settings:
            _add_section(page, name, known_sections()[name], None)
    return page


INNER_NAMES = {"queues": '"q:NAME"', "tenants": '"UUID"', "keys": '"NAME"', "budgets": '"UUID"'}
COLUMNS = ("Key", "Variable", "Type", "Default", "Meaning")


def _shapes(item: Field[Any]) -> list[str]:
    return [shape for shape in SHAPES if shape in item.metadata]


def _add_section(page: Page, name: str, item: Field[Any], meaning: str | None) -> None:
    (shape,) = _shapes(item)
    kind: type = item.metadata[shape]
    inner_name = INNER_NAMES.get(name, "NAME")
    title = {"section": f"[{name}]", "table": f"[{name}.{inner_name}]", "rows": f"[[{name}]]"}
    said = page.need(
        name, meaning or first_sentence(kind.__doc__).split(": `[")[0].rstrip(".") + "."
    )
    page.add(f"### `{title[shape]}`", " ".join(said.split()))
    below: list[tuple[Field[Any], str]] = []
    rows = []
    for field in fields(kind):
        inner = f"{name}.{field.name}"
        rows.append(_row(page, kind, field, f"{name}." if shape == "section" else None))
        if any(shape in field.metadata for shape in ("section", "rows")):
            below.append((field, inner))
    page.table(COLUMNS, rows)
    _add_built_in(page, name, item)
    for field, inner in below:
        _add_section(page, inner, field, None)


def _row(page: Page, kind: type, field: Field[Any], prefix: str | None) -> list[str]:
    name = f"{kind.__name__}.{field.name}"
    meaning = page.need(name, attribute_docs(kind).get(field.name))
    if kind.__name__ == "ChannelSettings":
        kinds = [one for one in CHANNEL_KINDS if field.name in keys_of_channel_kind(one)]
        which = "all" if len(kinds) == len(CHANNEL_KINDS) else ", ".join(f"`{k}`" for k in kinds)
        meaning += f" Kinds: {which}."
    setting_type = field.metadata.get("kind")
    variable = ""
    if prefix is not None and not _shapes(field):
        wanted = f"HOLDFAST_{prefix}{field.name}".replace(".", "_").upper()
        variable = code(wanted) if wanted in variable_names() else ""
    if setting_type is None:
        must = f"section `[{prefix or ''}{field.name}]`"
    else:
        must = setting_type.must.partition("; ")[0].partition(": ")[0]
        must = re.sub(r'"(\w+)"', r"`\1`", must)
    return [code(field.name), variable, must, _default(field), meaning]


def _default(field: Field[Any]) -> str:
    value = field.default if field.default is not MISSING else None
    setting_type = field.metadata.get("kind")
    if value is None or is_dataclass(value):
        return ""
    if setting_type is not None and not setting_type.holds(value):
        return "required"
    return code(_written(value))


def _written(value: Any) -> str:
    """Format a value as in holdfast.toml."""
    match value:
        case bool():
            return str(value).lower()
        case "":
            return ""
        case str():
            return f'"{value}"'
        case float():
            return f"{value:g}"
        case timedelta():
            return f'"{write_every(ms(value))}"'
        case tuple() | list():
            return "[" + ", ".join(_written(one) for one in value) + "]"
        case int() | Decimal() | date():
            return str(value)
        case _:
            return f'"{value}"'


def _add_built_in(page: Page, name: str, item: Field[Any]) -> None:
    """Add the sections that exist without a declaration, with their non-default values."""
    built_in: Mapping[str, Any] = item.metadata.get("built_in", {})
    if name == "runs":
        built_in = {**built_in, **known_runs()}
    if not built_in:
        return
    page.add("Built-in sections and their values:")
    page.table(("Section", "Values"), (_built_in_row(name, *pair) for pair in built_in.items()))


def _built_in_row(name: str, inner: str, section: Any) -> list[str]:
    values = [
        f"{field.name} = {_written(getattr(section, field.name))}"
        for field in fields(section)
        if getattr(section, field.name) not in (None, (), "")
        and not (name == "runs" and getattr(section, field.name) == field.default)
        and not (name == "queues" and getattr(section, field.name) == field.default)
        and not (name == "providers" and getattr(section, field.name) == field.default)
        and not (name == "runs" and field.name == "queues")
    ]
    quoted = f'"{inner}"' if ":" in inner else inner
    return [code(f"[{name}.{quoted}]"), ", ".join(code(value) for value in values)]


@cache
def attribute_docs(kind: type) -> Mapping[str, str]:
    """Return the docstrings of a class's fields, including inherited ones."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        module = sys.modules.get(parent.__module__)
        if module is None or not is_dataclass(parent):
            continue
        found |= dict(_docs_in(ast.parse(inspect.getsource(module)), parent.__name__))
    return found


def _docs_in(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.ClassDef) and node.name == name):
            continue
        for above, below in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(above, ast.AnnAssign)
                and isinstance(above.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                yield above.target.id, below.value.value
