"""Patches: the output of git, hand-written patches, and texts that are not patches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_review.patch import (
    Change,
    FileChange,
    Hunk,
    Limits,
    Status,
    parse_patch,
    write_patch,
)
from holdfast_review.refusal import ChangeTooLarge, PatchInvalid

PLAIN = b"""\
--- a/app.py\t2026-01-01 10:00:00
+++ b/app.py\t2026-01-02 10:00:00
@@ -1,3 +1,3 @@ def main():
 one
-two
+deux
 three
"""


def git_file(names: bytes, *lines: bytes) -> bytes:
    return b"\n".join((b"diff --git " + names, *lines, b""))


def test_a_posted_patch_is_read_with_the_numbers_of_its_lines() -> None:
    (file,) = parse_patch(PLAIN).files

    assert (file.path, file.status) == ("app.py", Status.MODIFIED)
    (hunk,) = file.hunks
    assert hunk.heading == "def main():"
    assert list(hunk.numbered()) == [
        (1, 1, " one"), (2, 2, "-two"), (3, 2, "+deux"), (3, 3, " three"),
    ]  # fmt: skip
    assert file.places == {1, 2, 3}


def test_the_head_of_a_mail_around_a_patch_is_dropped() -> None:
    mail = b"From: someone@example.com\nSubject: mend it\n\n---\n app.py | 2 +-\n" + PLAIN
    mail += b"-- \n2.39\n"

    assert parse_patch(mail) == parse_patch(PLAIN)
    assert b"example.com" not in write_patch(parse_patch(mail))


def test_added_deleted_and_renamed_files_are_distinguished() -> None:
    patch = (
        git_file(b"a/n b/n", b"new file mode 100644", b"--- /dev/null", b"+++ b/n",
                 b"@@ -0,0 +1 @@", b"+x", b"\\ No newline at end of file")
        + git_file(b"a/d b/d", b"deleted file mode 100644", b"--- a/d", b"+++ /dev/null",
                   b"@@ -7,2 +0,0 @@", b"-x", b"-y")
        + git_file(b"a/old b/new", b"similarity index 100%", b"rename from old", b"rename to new")
    )  # fmt: skip

    added, deleted, renamed = parse_patch(patch).files

    assert (added.path, added.status, set(added.places)) == ("n", Status.ADDED, {1})
    assert (deleted.path, deleted.status, set(deleted.places)) == ("d", Status.DELETED, {7, 8})
    assert (renamed.path, renamed.old_path, renamed.status) == ("new", "old", Status.RENAMED)


def test_a_binary_file_is_named_and_its_bytes_are_not_read() -> None:
    literal = git_file(b"a/i.png b/i.png", b"index 1..2 100644", b"GIT binary patch",
                       b"literal 3", b"KcmZQzWMT#Y0096205", b"")  # fmt: skip
    differ = git_file(b"a/j.png b/j.png", b"Binary files a/j.png and b/j.png differ")

    files = parse_patch(literal + differ).files

    assert [(file.path, file.is_binary, file.hunks) for file in files] == [
        ("i.png", True, ()), ("j.png", True, ()),
    ]  # fmt: skip


def test_what_is_no_utf_8_is_shown_as_such_and_changes_no_numbers() -> None:
    (file,) = parse_patch(PLAIN.replace(b"deux", b"d\xe9\xff")).files

    assert file.is_lossy
    assert file.hunks[0].lines[2] == "+d\ufffd\ufffd"
    assert not parse_patch(PLAIN).files[0].is_lossy


def test_text_of_two_bytes_a_letter_is_read_without_its_zero_bytes() -> None:
    (file,) = parse_patch(PLAIN.replace(b"deux", "deux".encode("utf-16-le"))).files

    assert file.hunks[0].lines[2] == "+deux"


def test_a_quoted_name_is_read_as_git_wrote_it() -> None:
    patch = git_file(
        rb'"a/\303\244 \"b\".py" "b/\303\244 \"b\".py"', b"old mode 100644", b"new mode 100755"
    )

    assert parse_patch(patch).files[0].path == 'ä "b".py'


def test_a_name_that_would_act_on_a_terminal_is_shown_as_an_escape() -> None:
    patch = git_file(rb'"a/x\033[31m" "b/x\033[31m"', b"old mode 100644", b"new mode 100755")

    assert parse_patch(patch).files[0].path == r"x\x1b[31m"


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (b"", "no_files"),
        (b"hello\nworld\n", "no_files"),
        (PLAIN.replace(b" three\n", b""), "hunk_short"),
        (PLAIN.replace(b"-1,3", b"-1,9"), "hunk_short"),
        (PLAIN.replace(b"-two", b"?two"), "hunk_short"),
        (PLAIN.replace(b"+1,3", b"+1,2"), "hunk_long"),
        (PLAIN.replace(b"a/app.py", b"/etc/x").replace(b"b/app.py", b"/etc/x"), "path"),
        (PLAIN.replace(b"b/app.py", b"b/../../etc/passwd"), "path"),
        (PLAIN.replace(b"app.py", b"x" * 1_200), "path"),
        (b"@@ -1 +1 @@\n-a\n+b\n", "hunk_of_no_file"),
        (b"diff --cc app.py\n", "combined"),
        (git_file(b"a/x b/x", b"--- a/x", b"nonsense"), "no_second_name"),
        (git_file(b"a/x b/x", b"--- a/x", b"+++ b/x", b"nonsense"), "no_hunk"),
        (git_file(b"a/x b/y", b"index 1..2"), "path"),
    ],
)
def test_what_is_no_patch_is_refused_with_the_reason(patch: bytes, problem: str) -> None:
    with pytest.raises(PatchInvalid) as refused:
        parse_patch(patch)

    assert refused.value.context["problem"] == problem


def read(patch: bytes) -> list[tuple[str, str, int]]:
    files = parse_patch(patch).files
    return [(file.path, file.status, sum(len(hunk.lines) for hunk in file.hunks)) for file in files]


@pytest.mark.parametrize(
    ("names", "path"),
    [(b"a/x b/y b/x b/y", "x b/y"), (b"a/a b b/a b", "a b"), (b"a/b/b/b b/b/b/b", "b/b/b")],
)
def test_a_name_with_spaces_is_read_whole(names: bytes, path: str) -> None:
    old, new = b"--- a/" + path.encode() + b"\t", b"+++ b/" + path.encode() + b"\t"
    changed = git_file(names, b"index 1..2 100644", old, new, b"@@ -1 +1 @@", b"-a", b"+b")
    mode = git_file(names, b"old mode 100644", b"new mode 100755")

    assert read(changed + mode) == [(path, "modified", 2), (path, "modified", 0)]


def test_a_rename_and_a_copy_take_their_names_from_their_own_lines() -> None:
    renamed = git_file(b"a/o b/o b/n b/n", b"rename from o b/o", b"rename to n b/n")
    copied = git_file(b"a/x b/y", b"copy from x", b"copy to y")

    files = parse_patch(renamed + copied).files

    assert [(file.old_path, file.path, file.status) for file in files] == [
        ("o b/o", "n b/n", Status.RENAMED), ("x", "y", Status.COPIED),
    ]  # fmt: skip


def test_headers_may_end_with_carriage_returns() -> None:
    deleted = git_file(b"a/d b/d", b"deleted file mode 100644", b"--- a/d", b"+++ /dev/null",
                       b"@@ -1 +0,0 @@", b"-x")  # fmt: skip

    assert read(deleted.replace(b"\n", b"\r\n")) == [("d", "deleted", 1)]


def test_a_changed_line_that_no_hunk_counts_is_refused_and_prose_is_not() -> None:
    for surplus in (b"+SECRET=1\n", b"-gone\n"):
        with pytest.raises(PatchInvalid) as refused:
            parse_patch(PLAIN + surplus)
        assert refused.value.context == {"problem": "hunk_long", "line": 8}

    assert parse_patch(b"+++ wow\n--- wow\n" + PLAIN) == parse_patch(PLAIN)


def test_a_hunk_without_lines_and_a_number_without_end_are_read_or_refused() -> None:
    empty = b"--- a/x\n+++ b/x\n@@ -0,0 +0,0 @@\n"

    assert read(empty + PLAIN) == [("x", "modified", 0), ("app.py", "modified", 4)]
    with pytest.raises(PatchInvalid, match="not a patch"):
        parse_patch(empty.replace(b"-0,0", b"-" + b"9" * 5_000))


def test_a_change_that_is_too_large_is_refused() -> None:
    with pytest.raises(ChangeTooLarge):
        parse_patch(b" " * (50 * 1024 * 1024))
    with pytest.raises(ChangeTooLarge):
        parse_patch(PLAIN * 3, Limits(max_files=2))
    assert len(parse_patch(PLAIN * 2, Limits(max_files=2)).files) == 2


def test_no_change_at_all_may_come_from_a_repository() -> None:
    assert parse_patch(b"", may_be_empty=True) == Change()


PATHS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="/\x7f\xad"
                  + "".join(map(chr, range(0x80, 0xA0)))), min_size=1, max_size=12,
).filter(lambda path: path != "..")  # fmt: skip
TEXTS = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=9)
LINES = st.lists(st.builds(lambda sign, text: sign + text, st.sampled_from(" +-"), TEXTS))
HUNKS = st.builds(Hunk, st.integers(0, 99), st.integers(0, 99), LINES.map(tuple))
FILES = st.one_of(
    st.builds(FileChange, PATHS, st.sampled_from([Status.ADDED, Status.DELETED, Status.MODIFIED]),
              hunks=st.lists(HUNKS, min_size=1, max_size=3).map(tuple)),
    st.builds(FileChange, PATHS, st.just(Status.RENAMED), PATHS),
    st.builds(FileChange, PATHS, is_binary=st.just(True)),
)  # fmt: skip


@given(st.lists(FILES, max_size=4).map(lambda files: Change(tuple(files))))
def test_a_change_that_was_written_is_read_as_the_same_change(change: Change) -> None:
    assert parse_patch(write_patch(change), may_be_empty=True) == change


ODD = [
    b"diff --git a/x b/x\n", b"rename to \n", b"GIT binary patch\n", b"\n", b'--- "\\\n',
    b"@@ -0,0 +0,0 @@\n",
]  # fmt: skip


@given(st.lists(st.sampled_from([*PLAIN.splitlines(keepends=True), *ODD])))
def test_any_lines_are_a_change_or_refused(lines: list[bytes]) -> None:
    try:
        change = parse_patch(b"".join(lines))
    except PatchInvalid:
        return
    assert parse_patch(write_patch(change)) == change
