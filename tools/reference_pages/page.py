"""A page under construction: Markdown blocks, and the problems found on the way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass
class Page:
    """Markdown blocks in order. *problems* lists items that have no description."""

    blocks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, *blocks: str) -> None:
        """Append blocks; empty ones are left out."""
        self.blocks += [block.strip() for block in blocks if block.strip()]

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Append a table."""
        lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
        self.blocks.append(re.sub(r"\|  (?=\|)", "| ", "\n".join(lines)))

    def need(self, what: str, description: str | None) -> str:
        """Return the description of an item; a missing one is a problem."""
        if description and description.strip():
            return description.strip()
        self.problems.append(f"{what} has no description")
        return ""

    def text(self) -> str:
        """Return the text of the page."""
        return "\n\n".join(self.blocks) + "\n"


def cell(value: str) -> str:
    """Escape a value for a table."""
    return re.sub(r"\s+", " ", value).strip().replace("|", "\\|")


def code(value: object) -> str:
    """Format a value as code."""
    return f"`{value}`" if str(value) else ""


def introduction(name: str) -> str:
    """Return the hand-written introduction of a page."""
    return (HERE / f"{name}.md").read_text()


def paragraphs(docstring: str | None) -> list[str]:
    """Convert the paragraphs of a docstring to Markdown: roles and double backticks become code."""
    text = re.sub(r":(?:\w+:)?`~?([^`]+)`", r"`\1`", docstring or "").replace("``", "`")
    text = re.sub(r"(?<![\w*])\*(\w+)\*(?![\w*])", r"`\1`", text)
    return [part.rstrip() for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip()]


def first_sentence(docstring: str | None) -> str:
    """Return the summary of a docstring: its first paragraph in one line."""
    found = paragraphs(docstring)
    return re.sub(r"\s+", " ", found[0]) if found else ""
