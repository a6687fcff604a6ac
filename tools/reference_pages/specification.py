"""docs/reference/specification-map.md: where each section of the specifications is implemented.

The map is in specification.toml. Every table, view, command and document that it names must exist.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click

from holdfast.cli import cli
from reference_pages.constraints import table_owners
from reference_pages.page import HERE, Page, code, introduction
from reference_pages.source import ROOT, schema

DOCS = ROOT / "docs"


def build() -> Page:
    page = Page()
    page.add(introduction("specification"))
    declared: dict[str, Any] = tomllib.loads((HERE / "specification.toml").read_text())
    documents: dict[str, list[str]] = declared.pop("documents")
    tables = {name for owned in table_owners().values() for name in owned}
    tables |= {table for kind, _, table, _ in schema() if kind == "view"}
    for title, sections in declared.items():
        page.add(f"## {title}")
        rows = []
        for row in sections:
            where = f"specification.toml: {title} {row['section']}"
            named = row.get("tables", "").split()
            missing = [name for name in named if name not in tables]
            page.problems += [f"{where}: no table or view {name}" for name in missing]
            commands = [one.strip() for one in row.get("commands", "").split(",") if one.strip()]
            page.problems += [f"{where}: no command {one}" for one in commands if not _exists(one)]
            found = [_document(page, where, key, documents) for key in row["documents"].split()]
            rows.append(
                [
                    row["section"],
                    ", ".join(code(name) for name in named),
                    ", ".join(code(f"holdfast {one}") for one in commands),
                    ", ".join(dict.fromkeys(found)),
                ]
            )
        page.table(("Section", "Tables and views", "Commands", "Documents"), rows)
    return page


def _exists(command: str) -> bool:
    found: click.Command | None = cli
    for name in command.split():
        if not isinstance(found, click.Group):
            return False
        found = found.get_command(click.Context(found), name)
    return found is not None


def _document(page: Page, where: str, key: str, documents: dict[str, list[str]]) -> str:
    """Return a link to a document, titled as its first heading."""
    path = next((DOCS / name for name in documents.get(key, ()) if (DOCS / name).exists()), None)
    if path is None:
        page.problems.append(f"{where}: no document {key}")
        return ""
    title = re.search(r"^# (.+)$", path.read_text(), re.M)
    link = Path("..") / path.relative_to(DOCS)
    if path.parent == DOCS / "reference":
        link = Path(path.name)
    return f"[{title[1] if title else path.stem}]({link})"
