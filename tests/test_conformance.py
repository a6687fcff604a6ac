"""The count of proven requirements: those of tests, and separately those of documents."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance", ROOT / "tools" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their own module up.
    sys.modules["conformance"] = module
    spec.loader.exec_module(module)
    return module


conformance = _tool()


def page_of(levels: dict[str, str], tested: set[str], documented: set[str]) -> list[str]:
    rows = [conformance.Requirement(row, level, "Do it.") for row, level in levels.items()]
    tests = {row: {"tests/engine/test_a.py::test_it"} for row in tested}
    sections = dict.fromkeys(documented, "docs/concepts/audit.md#Event fields")
    page: str = conformance._page(rows, tests, sections)
    return page.splitlines()


LEVELS = {"A-01": "MUST", "A-02": "MUST NOT", "A-03": "MUST", "A-04": "MUST", "A-05": "SHOULD"}


def test_a_row_that_rests_on_a_heading_alone_is_not_counted_as_proven() -> None:
    page = page_of(LEVELS, tested={"A-01", "A-02"}, documented={"A-02", "A-03", "A-05"})

    assert page[-1] == (
        "conformance: 2 of 4 MUST and MUST NOT rows proven by tests,"
        " 1 kept by documents alone, 1 open"
    )
    assert page[page.index("## Kept by documents alone") + 2] == "A-03"
    assert page[page.index("## Open") + 2] == "A-04"


def test_a_row_names_its_tests_and_its_section() -> None:
    page = page_of(LEVELS, tested={"A-02"}, documented={"A-02", "A-03"})

    assert "| A-01 | MUST | Do it. | open |" in page
    section = "docs/concepts/audit.md#Event fields"
    assert f"| A-02 | MUST NOT | Do it. | `engine/test_a.py::test_it`<br>{section} |" in page
    assert f"| A-03 | MUST | Do it. | {section} |" in page


def test_the_page_of_the_project_ends_with_the_count() -> None:
    last = (ROOT / "docs" / "conformance.md").read_text().splitlines()[-1]
    found = re.fullmatch(
        r"conformance: (\d+) of (\d+) MUST and MUST NOT rows proven by tests,"
        r" (\d+) kept by documents alone, (\d+) open",
        last,
    )

    assert found is not None
    proven, binding, documented, open_rows = map(int, found.groups())
    assert proven + documented + open_rows == binding
