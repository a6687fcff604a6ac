"""Map requirements to tests: reads the `req` markers and writes docs/conformance.md.

A requirement is proven by the tests that carry its marker. A requirement that only a document can
meet names a section, which must exist. Such rows are counted separately and never as proven. With
--check nothing is written, and a stale page is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "docs" / "requirements.tsv"
SECTIONS = ROOT / "docs" / "requirements-kept-by-documents.tsv"
PAGE = ROOT / "docs" / "conformance.md"
INTRODUCTION = (
    "Every row of the requirements with the tests that prove it. A row without a test that names a"
    " section of a document rests on that document alone. A row with neither is open."
)


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    level: str
    text: str

    @property
    def binds(self) -> bool:
        return self.level in ("MUST", "MUST NOT")


class Collector:
    """A pytest plugin that records the requirements of each test."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in item.iter_markers("req"):
                for row in marker.args:
                    self.tests[row].add(item.nodeid.partition("[")[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    wanted = parser.parse_args()
    requirements = [Requirement(*line.split("\t")) for line in ROWS.read_text().splitlines()]
    tests = _collect()
    sections = dict(line.split("\t") for line in SECTIONS.read_text().splitlines() if line)
    faults = _faults(requirements, tests, sections)
    page = _page(requirements, tests, sections)
    if wanted.check:
        if PAGE.read_text() != page:
            faults.append("docs/conformance.md is not up to date; run 'make conformance'")
    else:
        PAGE.write_text(page)
        print(page, end="")
    for fault in faults:
        print(f"conformance: {fault}", file=sys.stderr)
    if wanted.check and not faults:
        print(page.splitlines()[-1])
    return 1 if faults else 0


def _collect() -> dict[str, set[str]]:
    collector = Collector()
    quiet = ["--collect-only", "-qq", "-p", "no:cacheprovider"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main([*quiet, str(ROOT / "tests")], plugins=[collector])
    if code != 0:
        sys.exit(f"{said.getvalue()}conformance: the tests could not be collected ({code})")
    return collector.tests


def _faults(
    requirements: list[Requirement], tests: dict[str, set[str]], sections: dict[str, str]
) -> list[str]:
    known = {row.id for row in requirements}
    faults = [
        f"{row} is no row of the requirements: {sorted(tests[row])[0]}"
        for row in sorted(set(tests) - known)
    ]
    for row, place in sections.items():
        file, _, title = place.partition("#")
        path = ROOT / file
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M) if path.exists() else []
        if row not in known or title not in headings:
            faults.append(f"{row} names a section that is not there: {place}")
    return faults


def _page(
    requirements: list[Requirement], tests: dict[str, set[str]], sections: dict[str, str]
) -> str:
    lines = [
        "# Conformance",
        "",
        INTRODUCTION,
        "",
        "| row | level | requirement | proven by |",
        "| --- | --- | --- | --- |",
    ]
    for row in requirements:
        proofs = [f"`{test.partition('tests/')[2]}`" for test in sorted(tests.get(row.id, ()))]
        if row.id in sections:
            proofs.append(sections[row.id])
        text = row.text.replace("|", "\\|")
        lines.append(f"| {row.id} | {row.level} | {text} | {'<br>'.join(proofs) or 'open'} |")
    binding = [row.id for row in requirements if row.binds]
    proven = [row for row in binding if tests.get(row)]
    documented = [row for row in binding if not tests.get(row) and row in sections]
    open_rows = [row for row in binding if not tests.get(row) and row not in sections]
    for title, rows in (("Kept by documents alone", documented), ("Open", open_rows)):
        lines += ["", f"## {title}", "", ", ".join(rows) or "None."]
    counted = f"{len(proven)} of {len(binding)} MUST and MUST NOT rows proven by tests"
    apart = f"{len(documented)} kept by documents alone, {len(open_rows)} open"
    lines += ["", f"conformance: {counted}, {apart}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
