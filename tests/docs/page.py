"""The pages of the documentation and their parts: code blocks, links, anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^`\n]*)$")
_REASON = re.compile(r"<!-- not executed: (.+) -->")
_PREPARED = re.compile(r"<!-- prepared by (\w+) -->")
_TITLE = re.compile(r'title="([^"]+)"')
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)|^\[[^\]]+\]: (\S+)", re.M)
_ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"')
_slug = slugify(case="lower")


def pages() -> list[Path]:
    """README, the other pages of the root, those of the distributions, and docs/."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "packages").glob("*/*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def name_of(page: Path) -> str:
    """The path in the repository."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: ``title="jobs.py"`` in its first line names a file to write."""

    page: Path
    line: int
    language: str
    text: str
    title: str | None
    options: str
    # Why it cannot be executed, from a comment in the line above.
    reason: str | None
    # What tests/docs/preparations.py provides for it, from a comment in the line above.
    preparation: str | None = None

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The code blocks of a page, also those that are indented below a list."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        begin, indent, fence = number, len(opened[1]), opened[2]
        number += 1
        while lines[number].strip() != fence:
            number += 1
        text = "".join(f"{line[indent:]}\n" for line in lines[begin + 1 : number])
        language, _, options = opened[3].strip().partition(" ")
        titled = _TITLE.search(options)
        above = next((line for line in reversed(lines[:begin]) if line.strip()), "")
        why = _REASON.fullmatch(above.strip())
        title = titled[1] if titled else None
        reason = why[1] if why else None
        prepared = _PREPARED.fullmatch(above.strip())
        preparation = prepared[1] if prepared else None
        yield Block(page, begin + 1, language, text, title, options, reason, preparation)
        number += 1


def prose_of(page: Path) -> str:
    """The page without its code."""
    kept, fence = [], None
    for line in page.read_text().splitlines():
        opened = _FENCE.match(line)
        if fence is None and opened:
            fence = opened[2]
        elif fence is not None and line.strip() == fence:
            fence = None
        elif fence is None:
            kept.append(re.sub(r"`[^`]*`", lambda code: code[0].replace("](", "] ("), line))
    return "\n".join(kept)


def links_of(page: Path) -> Iterator[str]:
    """The targets of the links of a page that lead to another page or an anchor."""
    for inline, reference in _LINK.findall(prose_of(page)):
        target = inline or reference
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings of a page, as the site and GitHub make them."""
    prose, found = prose_of(page), set[str]()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = base = _slug(plain, "-")
        count = 0
        while slug in found:
            count += 1
            slug = f"{base}_{count}"
        found.add(slug)
    return found | set(_ANCHOR.findall(prose))
