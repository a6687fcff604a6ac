"""Hooks of the documentation site: its navigation, and links to files outside of docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GROUPS = {
    "start": "Start",
    "guides": "Guides",
    "concepts": "Concepts",
    "operations": "Operations",
    "applications": "Applications",
    "reference": "Reference",
}

# The order of pages in a group; other pages follow by name.
ORDER = (
    "quickstart.md",
    "tutorial.md",
    "typed-jobs.md",
    "flow-control.md",
    "workflows.md",
    "fastapi.md",
    "django.md",
    "sqlalchemy.md",
    "asyncio.md",
    "testing.md",
    "deployment.md",
    "upgrading.md",
    "migrating-from-celery.md",
    "migrating-from-rq.md",
    "migrating-from-procrastinate.md",
    "job-lifecycle.md",
    "storage.md",
)

# Guides outside the folder of their group.
GUIDES = ("adding-a-channel.md", "adding-a-provider.md", "adding-a-language.md", "extensions.md")

_FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Build the navigation from the folders of docs/."""
    docs = Path(config["docs_dir"])
    config["nav"] = ["index.md"]
    for folder, title in GROUPS.items():
        pages = [f"{folder}/{path.name}" for path in _sorted(docs / folder)]
        if folder == "guides":
            pages += [name for name in GUIDES if (docs / name).exists()]
        if folder == "reference":
            decisions = [f"adr/{path.name}" for path in sorted((docs / "adr").glob("*.md"))]
            pages = [*pages, {"Decisions": decisions}]
        if pages:
            config["nav"].append({title: pages})
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Show links to files of the repository outside of docs/ as plain text."""
    docs = Path(config["docs_dir"]).resolve()
    here = (docs / page.file.src_path).parent

    def replace(link: re.Match[str]) -> str:
        text, target = link[1], link[2].split("#")[0]
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        found = (here / target).resolve()
        inside = docs in found.parents and found.is_file()
        return link[0] if inside or not found.exists() else text

    return _LINK.sub(replace, markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Fail for a page that loads something from another host."""
    if fetched := _FETCHED.search(output):
        raise SystemExit(f"{page.file.src_path} loads from another host: {fetched[0]}")
    return output


def _sorted(folder: Path) -> list[Path]:
    rank = {name: place for place, name in enumerate(ORDER)}
    return sorted(folder.glob("*.md"), key=lambda path: (rank.get(path.name, len(rank)), path.name))
