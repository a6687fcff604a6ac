"""Large changes are split without a loss, and their findings are merged without duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_review.enums import Confidence, Severity
from holdfast_review.merge import MOST_FINDINGS, Read, merge, read_findings
from holdfast_review.model import Finding
from holdfast_review.patch import Change, FileChange, Hunk, Status
from holdfast_review.split import PART_FILES, count_unread, halve, split_change


def file_of(path: str, *lines: str, start: int = 1) -> FileChange:
    return FileChange(path, hunks=(Hunk(start, start, lines),))


def numbered(files: tuple[FileChange, ...]) -> list[tuple[str, int, int, str]]:
    return [(file.path, *line) for file in files for hunk in file.hunks for line in hunk.numbered()]


def test_a_small_change_is_one_part() -> None:
    change = Change((file_of("a.py", "+one"), file_of("b.py", "-two")))

    (part,) = split_change(change)

    assert part.files == change.files


@given(
    st.lists(st.lists(st.sampled_from(["+a", "-bb", " ccc", "+" + "d" * 90]), min_size=1,
                      max_size=30), max_size=6),
    st.integers(20, 400),
)  # fmt: skip
def test_every_line_is_in_one_part_with_its_own_number(
    texts: list[list[str]], part_chars: int
) -> None:
    change = Change(tuple(file_of(f"{at}.py", *text, start=9) for at, text in enumerate(texts)))

    parts = split_change(change, part_chars)

    assert [line for part in parts for line in numbered(part.files)] == numbered(change.files)
    assert [part.number for part in parts] == list(range(len(parts)))
    assert split_change(change, part_chars) == parts


def test_many_small_files_do_not_crowd_one_part() -> None:
    change = Change(tuple(file_of(f"{at}.py", "+x") for at in range(PART_FILES + 1)))

    assert [len(part.files) for part in split_change(change)] == [PART_FILES, 1]


def test_a_file_without_text_is_in_no_part() -> None:
    change = Change((FileChange("i.png", is_binary=True), FileChange("n", Status.RENAMED, "o")))

    assert split_change(change) == ()
    assert count_unread(change) == 2


def test_a_part_can_be_halved_down_to_a_single_line() -> None:
    (part,) = split_change(Change((file_of("a.py", "+one", "+two"),)))

    halves = halve(part)

    assert [numbered(half.files) for half in halves] == [
        [("a.py", 1, 1, "+one")], [("a.py", 1, 2, "+two")],
    ]  # fmt: skip
    assert halve(halves[0]) == (halves[0],)


# -- findings


def said(**differs: object) -> dict[str, object]:
    usual = {
        "file": "a.py", "line": 1, "severity": "high", "message": "It breaks.", "confidence": "low",
    }  # fmt: skip
    return {**usual, **differs}


SHOWN = (file_of("a.py", "+one", "-gone", "+two"),)


def read(*findings: dict[str, object]) -> Read:
    return read_findings({"findings": list(findings)}, SHOWN)


def test_a_finding_about_a_file_that_was_not_shown_is_kept_as_such() -> None:
    assert read(said(file="../made/up.py"), said()) == Read(
        (
            Finding("../made/up.py", 1, Severity.HIGH, "It breaks.", Confidence.LOW, False),
            Finding("a.py", 1, Severity.HIGH, "It breaks.", Confidence.LOW),
        )
    )


@pytest.mark.parametrize("line", [0, -1, 3, 10**12])
def test_a_finding_about_a_line_that_was_not_shown_is_about_its_file(line: int) -> None:
    (found,) = read(said(line=line)).findings

    assert found.line is None


def test_a_patch_that_claims_a_line_0_has_no_finding_there() -> None:
    shown = (file_of("a.py", "+one", start=0),)
    (found,) = read_findings({"findings": [said(line=0)]}, shown).findings

    assert found.line is None


def test_a_message_is_one_harmless_line_without_secrets() -> None:
    (found,) = read(said(message="Use\n\x1b[31m AKIAIOSFODNN7EXAMPLE\u202e here")).findings

    assert found.message == r"Use \x1b[31m [secret]\u202e here"
    assert read(said(message=" \n ")) == Read((), 1)


def test_what_two_parts_say_is_said_once_and_as_severely_as_the_worse() -> None:
    low = Finding("a.py", 1, Severity.LOW, "It breaks.", Confidence.HIGH)
    high = Finding("a.py", 1, Severity.HIGH, "it BREAKS.", Confidence.LOW)
    other = Finding("b.py", None, Severity.CRITICAL, "Lost.", Confidence.LOW)

    merged = merge([Read((low,), 1), Read((high, other), 2)])

    assert [(one.file, one.severity, one.confidence) for one in merged.findings] == [
        ("b.py", Severity.CRITICAL, Confidence.LOW), ("a.py", Severity.HIGH, Confidence.HIGH),
    ]  # fmt: skip
    assert merged.dropped == 3
    assert merged.summary == "2 findings in 2 files: 1 critical, 1 high."


def test_the_least_severe_are_left_out_of_too_many() -> None:
    many = [Finding("a.py", at, Severity.LOW, f"{at}", Confidence.LOW) for at in range(250)]
    worst = Finding("a.py", 900, Severity.HIGH, "worst", Confidence.LOW)

    merged = merge([Read((*many, worst))])

    assert merged.findings[0] == worst
    assert (len(merged.findings), merged.left_out) == (MOST_FINDINGS, 51)


def test_nothing_found_is_said_so() -> None:
    assert merge([]).summary == "No findings."
