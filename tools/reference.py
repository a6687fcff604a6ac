"""Generate the pages of docs/reference/ from the code, or check that they are up to date.

    python tools/reference.py            write the pages
    python tools/reference.py --check    write nothing; exit with 1 if a page is out of date

Settings, error classes, metrics, constraints, state transitions, audit events, commands and the
Python API are read from the code and from a migrated database. An item without a description is an
error. What cannot be read from the code, such as the meaning of a constraint, is in the TOML files
of tools/reference_pages/; an entry there that no longer exists is an error too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from reference_pages import (
    audit_events,
    commands,
    constraints,
    errors,
    metrics,
    operator_api,
    python_api,
    settings,
    specification,
    states,
)
from reference_pages.page import Page

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"

PAGES: dict[str, Callable[[], Page]] = {
    "python-api.md": python_api.build,
    "settings.md": settings.build,
    "errors.md": errors.build,
    "metrics.md": metrics.build,
    "constraints.md": constraints.build,
    "state-transitions.md": states.build,
    "audit-events.md": audit_events.build,
    "cli.md": commands.build,
    "operator-api.md": operator_api.build,
    "specification-map.md": specification.build,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the pages of docs/reference/.")
    parser.add_argument("--check", action="store_true", help="fail if a page is out of date")
    only_check = parser.parse_args().check
    problems: list[str] = []
    for name, build in PAGES.items():
        page = build()
        problems += [f"docs/reference/{name}: {problem}" for problem in page.problems]
        path = FOLDER / name
        text = page.text()
        if only_check:
            if not path.exists() or path.read_text() != text:
                problems.append(f"docs/reference/{name} is out of date: run tools/reference.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
