"""The generated pages of docs/reference/ are up to date, and every item has a description."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click

from holdfast.cli import cli
from holdfast.store import Store
from tests.story import look

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "reference" / "specification-map.md"


def test_the_reference_pages_are_up_to_date_and_describe_everything() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)

    assert done.returncode == 0, done.stderr


def test_the_map_names_six_specifications_and_only_what_exists(store: Store) -> None:
    page = MAP.read_text()
    rows = [line.strip("| ").split(" |") for line in page.splitlines() if line.startswith("|")]
    rows = [row for row in rows if len(row) == 4 and row[0] != "Section" and "---" not in row[0]]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    commands = {name for row in rows for name in re.findall(r"`holdfast ([^`]+)`", row[2])}
    links = {link for row in rows for link in re.findall(r"\]\(([^)]+)\)", row[3])}

    assert len(re.findall("^## ", page, re.M)) == 6
    assert len(rows) > 80
    assert [row[0] for row in rows if "](" not in row[3]] == []
    assert named - tables(store) - {"handler_transaction"} == set()
    assert [command for command in commands if not exists(command)] == []
    assert [link for link in links if not (MAP.parent / link).exists()] == []


def tables(store: Store) -> set[str]:
    """The tables and views of the database; handler_transaction is on PostgreSQL only."""
    if store.is_embedded:
        found = look(store, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    else:
        found = look(store, "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p', 'v')")
    return {row["name"].removeprefix("holdfast_") for row in found}


def exists(command: str) -> bool:
    found: click.Command | None = cli
    for name in command.split():
        assert isinstance(found, click.Group), command
        found = found.get_command(click.Context(found), name)
    return found is not None
