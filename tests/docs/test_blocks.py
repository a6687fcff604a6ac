"""Every code block of README and docs/ has the result that the page shows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks_of, name_of, pages
from tests.docs.reader import Reader, Shell, forget_modules_below

# The blocks that carry a reason why they are not executed, by folder. The numbers may only fall.
NOT_EXECUTED = {
    "docs/guides": 4,
    "docs/operations": 1,
}

# Their code is that of examples/extension, as tests/packaging/test_pages.py checks.
EXAMPLES = {f"docs/{name}.md" for name in ("adding-a-channel", "adding-a-provider", "extensions")}

# Executed with the built wheels, every command in a process, by tests/packaging/test_newcomer.py.
NEWCOMER = {
    f"docs/{name}.md"
    for name in ("start/quickstart", "start/tutorial", "guides/fastapi", "guides/django")
}

# Pages from before the site. The list may only get shorter.
BEFORE = ["conformance"]


def executed() -> list[Path]:
    """The pages whose blocks are executed."""
    left_out = EXAMPLES | {f"docs/{name}.md" for name in BEFORE} | {"CONTRIBUTING.md"}
    return [page for page in pages() if name_of(page) not in left_out]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The empty folder of a page: the current one, in which modules can be imported."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "DJANGO_"))]:
        monkeypatch.delenv(name)
    place = tmp_path / "story"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield place
    forget_modules_below(place)
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


@pytest.mark.parametrize(
    "page", [page for page in executed() if name_of(page) not in NEWCOMER], ids=name_of
)
def test_the_code_of_a_page_does_what_the_page_says(
    page: Path, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = list(blocks_of(page))

    def postgres() -> str:
        url: str = request.getfixturevalue("postgres_url")
        return url

    if any("DATABASE_URL" in block.text for block in blocks):
        monkeypatch.setenv("DATABASE_URL", postgres())
    with contextlib.closing(Reader(folder, Shell(folder), postgres)) as reader:
        reader.follow(blocks)


def test_the_number_of_blocks_that_are_not_executed_only_falls() -> None:
    found = Counter(
        name_of(page.parent) if page.parent != ROOT else page.name
        for page in executed()
        for block in blocks_of(page)
        if block.reason is not None
    )

    assert dict(found) == NOT_EXECUTED
