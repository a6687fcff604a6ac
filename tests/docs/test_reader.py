"""The reader of pages reports every difference between a page and the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import ROOT, Block, blocks_of
from tests.docs.reader import Command, Differs, Reader, Shell, check_output, commands_of


def block(language: str, text: str, title: str | None = None) -> Block:
    return Block(ROOT / "README.md", 1, language, text, title, "", None)


def reader(folder: Path) -> Reader:
    return Reader(folder, Shell(folder), lambda: "")


def test_an_elision_matches_a_part_of_a_line_or_lines() -> None:
    printed = "job 0198 completed\nattempt 1\nattempt 2\n2 in all\n"

    check_output(block("text", ""), "job … completed\n…\n2 in all", printed)
    with pytest.raises(Differs):
        check_output(block("text", ""), "job … failed\n…\n2 in all", printed)
    with pytest.raises(Differs):
        check_output(block("text", ""), "job … completed\n2 in all", printed)


def test_a_console_block_is_commands_and_what_they_print() -> None:
    shown = block("console", "$ echo one\none\n$ echo two \\\n  three\n$ sleep 60\nready\n^C\n")

    assert list(commands_of(shown)) == [
        Command("echo one", "one"),
        Command("echo two    three"),
        Command("sleep 60", "ready", interrupted=True),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        block("python", "1 / 0"),
        block("bash", "exit 3"),
        block("console", "$ echo one\ntwo"),
        block("cobol", "DISPLAY 'hello'."),
        block("", "no language"),
    ],
    ids=lambda wrong: wrong.language or "none",
)
def test_a_block_that_fails_fails_its_page(wrong: Block, tmp_path: Path) -> None:
    with pytest.raises(Differs):
        reader(tmp_path).follow([wrong])


def test_a_file_that_is_written_and_never_run_fails_its_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="runs these files"):
        reader(tmp_path).follow([block("python", "x = 1", title="jobs.py")])


def test_a_block_is_found_with_its_title_and_the_reason_above_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# Page\n\n<!-- not executed: needs a key -->\n```python title="jobs.py"\nx = 1\n```\n'
        "\n1. In a list:\n\n   ```sql\n   SELECT 1;\n   ```\n"
    )

    first, second = blocks_of(page)

    assert (first.title, first.reason, first.text) == ("jobs.py", "needs a key", "x = 1\n")
    assert (second.title, second.reason, second.text) == (None, None, "SELECT 1;\n")
