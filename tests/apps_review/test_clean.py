"""A review is "clean" only if every part was read and no finding of the model was lost."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast_review.cli import print_shown
from holdfast_review.coverage import Coverage, Outcome
from holdfast_review.merge import merge, read_findings
from holdfast_review.model import Source
from holdfast_review.patch import Change, FileChange, Hunk, Status, parse_patch, write_patch
from holdfast_review.place import Places
from holdfast_review.refusal import PatchInvalid
from holdfast_simulator import Prompt
from tests.apps_review.office import Model, Office, commit, git, text_of
from tests.story import ORG


def file_of(path: str, *lines: str, old_path: str = "") -> FileChange:
    status = Status.RENAMED if old_path else Status.MODIFIED
    return FileChange(path, status, old_path, hunks=(Hunk(1, 1, lines or ("+one", "+two")),))


def said(file: str, line: int = 1, message: str = "It breaks.") -> dict[str, Any]:
    return {
        "file": file, "line": line, "severity": "high", "message": message, "confidence": "low",
    }  # fmt: skip


# -- the file that a finding refers to

CART = "src/shop/cart.py"


@pytest.mark.parametrize(
    "named",
    [
        "b/src/shop/cart.py",
        "a/src/shop/cart.py",
        "./src/shop/cart.py",
        "/src/shop/cart.py",
        "/b/src/shop/cart.py",
        "src\\shop\\cart.py",
        ".\\src\\shop\\cart.py",
        "C:\\build\\repo\\src\\shop\\cart.py",
        "/home/ann/repo/src/shop/cart.py",
        "`src/shop/cart.py`",
        "'src/shop/cart.py'",
        '"b/src/shop/cart.py"',
        "**src/shop/cart.py**",
        "[cart.py](src/shop/cart.py)",
        " src/shop/cart.py\n",
        "src//shop/./cart.py",
        "src/old/../shop/cart.py",
        "src/shop/cart.py:1",
        "src/shop/cart.py:1:7",
        "src/shop/cart.py#L1",
        "src/shop/cart.py (line 1)",
        "src/shop/cart%2Epy",
        "src/shop/\\u0063art.py",
        "src/shop/\\143art.py",
        "file:///src/shop/cart.py",
        "SRC/Shop/Cart.py",
        "shop/cart.py",
        "cart.py",
        "i/src/shop/cart.py",
        "new/src/shop/cart.py",
    ],
)
def test_a_finding_is_mapped_to_the_file_that_the_model_means(named: str) -> None:
    shown = (file_of(CART), file_of("src/other.py"))

    (found,) = read_findings({"findings": [said(named)]}, shown).findings

    assert (found.file, found.line, found.is_placed) == (CART, 1, True)


def test_the_old_name_of_a_moved_file_means_the_file() -> None:
    shown = (file_of("src/new.py", old_path="lib/old.py"), file_of("x.py"))

    read = read_findings({"findings": [said("lib/old.py"), said("b/lib/old.py", 2)]}, shown)

    assert [(one.file, one.line) for one in read.findings] == [("src/new.py", 1), ("src/new.py", 2)]


def test_a_file_that_has_a_name_now_goes_before_one_that_had_it() -> None:
    places = Places((file_of("b.py", old_path="a.py"), file_of("a.py")))

    found = places.find("a.py")

    assert found is not None
    assert found.file.path == "a.py"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("b/x.py", "b/x.py"),
        ("app/(group)/[id]/page.tsx", "`app/(group)/[id]/page.tsx`"),
        ("(group)/page.tsx", "b/(group)/page.tsx"),
        ("Übung/größe.py", '"\\303\\234bung/gr\\303\\266\\303\\237e.py"'),
        ("a b/c d.py", "a%20b/c%20d.py"),
        ("a b/c d.py", "a\\ b/c\\ d.py"),
    ],
)
def test_odd_paths_are_found_too(path: str, named: str) -> None:
    found = Places((file_of(path), file_of("x.py"))).find(named)

    assert found is not None
    assert found.file.path == path


@pytest.mark.parametrize("named", ["cart.py", "CART.py", "made/up.py", "", "..", "/"])
def test_a_path_that_may_mean_two_files_or_none_is_not_guessed(named: str) -> None:
    places = Places((file_of("a/src/cart.py"), file_of("lib/cart.py"), file_of("Lib/Cart.py")))

    assert places.find(named) is None


def test_a_line_behind_the_path_counts_if_the_line_itself_says_nothing() -> None:
    (found,) = read_findings({"findings": [said(f"{CART}:2", 0)]}, (file_of(CART),)).findings

    assert found.line == 2


def test_a_finding_without_a_file_of_the_change_is_kept_and_counted() -> None:
    change = Change((file_of("a.py"), file_of("c.py")))
    read = read_findings(
        {"findings": [said("made/up\x1b[2J.py", 7), said("c.py", 2), said("", 0)]},
        change.files[:1],
    )

    merged = merge([read], change)

    assert read.dropped == 0
    # c.py is a file of another part.
    assert {(one.file, one.line, one.is_placed) for one in merged.findings} == {
        ("made/up\\x1b[2J.py", 7, False), ("c.py", 2, True), ("(no file named)", None, False),
    }  # fmt: skip
    assert merged.unplaced == 2


def test_a_finding_whose_text_may_hold_a_secret_is_withheld_and_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast_review.secrets._FINDERS", ())
    aws = "AKIA" + "IOSFODNN7EXAMPLE"

    read = read_findings({"findings": [said("a.py", message=f"Remove {aws}.")]}, (file_of("a.py"),))

    (found,) = read.findings
    assert "withheld" in found.message
    assert aws not in found.message
    assert (read.dropped, read.cut) == (0, 1)


# -- what is counted


def test_every_kind_of_file_without_text_is_counted_by_its_kind() -> None:
    patch = (
        b"diff --git a/i.png b/i.png\nindex 1..2 100644\nBinary files a/i.png and b/i.png differ\n"
        b"diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n"
        b"diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
        b"diff --git a/lib b/lib\nindex 1111111..2222222 160000\n--- a/lib\n+++ b/lib\n"
        b"@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n"
        b"diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n"
        b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1,3 @@\n-a\n+\xff\xfe\n+"
        + b"z" * 1_001
        + b'\n+k = "[secret]"\n'
    )
    change = parse_patch(patch)
    coverage = Coverage.of_change(change)

    assert Coverage.of_change(parse_patch(write_patch(change))) == coverage
    assert coverage == Coverage(
        files=6, binary=1, moved=1, mode_only=1, submodule=1, empty=1, undecodable=1,
        cut_lines=1, masked=1,
    )  # fmt: skip
    assert coverage.unread == 5
    assert coverage.outcome(0) is Outcome.INCOMPLETE


@pytest.mark.parametrize(
    ("coverage", "findings", "outcome"),
    [
        (Coverage(files=1), 0, Outcome.CLEAN),
        (Coverage(), 0, Outcome.CLEAN),
        (Coverage(files=0), 0, Outcome.NOTHING_TO_REVIEW),
        (Coverage(files=2, binary=1, moved=1), 0, Outcome.NOTHING_TO_REVIEW),
        (Coverage(files=2, binary=1), 0, Outcome.INCOMPLETE),
        (Coverage(files=1, cut_lines=1), 0, Outcome.INCOMPLETE),
        (Coverage(files=1, masked=1), 0, Outcome.INCOMPLETE),
        (Coverage(files=1, dropped=1), 0, Outcome.INCOMPLETE),
        (Coverage(files=1, undecodable=1), 0, Outcome.INCOMPLETE),
        (Coverage(files=1, binary=1), 1, Outcome.FINDINGS),
    ],
)
def test_clean_means_no_finding_and_no_gap(
    coverage: Coverage, findings: int, outcome: Outcome
) -> None:
    assert coverage.outcome(findings) is outcome


def test_changed_lines_that_no_hunk_counts_are_refused_and_not_skipped() -> None:
    head = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"

    with pytest.raises(PatchInvalid):
        parse_patch(head + b"+eval(c)\n")
    with pytest.raises(PatchInvalid):
        parse_patch(head + b"-c\n")
    # The signature of a mail and the next file are not lines of the hunk.
    assert len(parse_patch(head + b"-- \n2.39.5\n\n").files) == 1
    assert len(parse_patch(head + head.replace(b"/x", b"/y")).files) == 2


# -- what people see


def outputs_of(office: Office, review_id: str, capsys: Any) -> tuple[str, str, str, Any]:
    """The subject, the mail, ``show`` and its JSON."""
    shown = office.reviews.find(review_id, org_id=ORG)
    print_shown(shown)
    mail = office.mails[-1]
    document = json.loads(json.dumps(shown.document, default=str))
    return mail["subject"], text_of(mail, "plain"), capsys.readouterr().out, document


def move(office: Office) -> None:
    git(office.repository, "mv", "cart", "basket")


def change_mode(office: Office) -> None:
    (office.repository / "cart").chmod(0o755)


def add_picture(office: Office) -> None:
    (office.repository / "i.png").write_bytes(b"\x89PNG\0" + os.urandom(64))


def add_submodule(office: Office) -> None:
    head = git(office.repository, "rev-parse", "HEAD")
    git(office.repository, "update-index", "--add", "--cacheinfo", f"160000,{head},lib")
    (office.repository / "lib").mkdir()


def change_nothing(office: Office) -> None:
    git(office.repository, "commit", "-q", "--allow-empty", "-m", "nothing")


@pytest.mark.parametrize(
    ("do", "kind", "says"),
    [
        (add_picture, "binary", "1 binary file"),
        (move, "moved", "1 moved file"),
        (change_mode, "mode_only", "1 mode change"),
        (add_submodule, "submodule", "1 submodule"),
        (change_nothing, "", ""),
    ],
)
def test_a_change_without_text_is_nothing_to_review_and_not_clean(
    office: Office, critic: Model, capsys: Any, do: Any, kind: str, says: str
) -> None:
    do(office)
    git(office.repository, "add", "-A") if do is not add_submodule else None
    git(office.repository, "commit", "-q", "--allow-empty", "-m", "change")
    base = "HEAD~2" if do is change_nothing else "HEAD~1"
    source = Source.git(str(office.repository), "HEAD", base)
    asked = office.submit(source=source)
    office.work_out()

    subject, text, show, document = outputs_of(office, asked.review.review_id, capsys)

    assert critic.asked == []
    assert "nothing to review" in subject
    assert "Nothing to review" in text
    assert "nothing to review" in show
    assert document["outcome"] == "nothing_to_review"
    assert "clean" not in f"{subject} {text} {show}"
    if kind:
        assert document["coverage"][kind] == document["coverage"]["files"] == 1
        assert says in text
        assert says in show
        assert "1 file not reviewed" in subject


class Careless(Model):
    """A model that writes file names in its own way and returns one finding without text."""

    def __call__(self, prompt: Prompt) -> Mapping[str, Any]:
        self.asked.append(prompt)
        return {
            "findings": [
                {**said("b/./cart", 1), "severity": "critical"},
                said("elsewhere.py", 3),
                said("cart", 1, "  "),
            ]
        }


@pytest.fixture
def critic(request: pytest.FixtureRequest) -> Model:
    return getattr(request, "param", Model)()


@pytest.mark.parametrize("critic", [Careless], indirect=True)
def test_whatever_was_dropped_cut_or_unread_is_counted_wherever_people_look(
    office: Office, capsys: Any
) -> None:
    aws = "AKIA" + "IOSFODNN7EXAMPLE"
    long = "x = 1  # " + "y" * 1_200
    commit(office.repository, cart=f'{long}\nkey = "{aws}"\n', pic=b"\0\1\2" * 30)
    asked = office.submit()
    office.work_out()

    subject, text, show, document = outputs_of(office, asked.review.review_id, capsys)

    counts = document["coverage"]
    assert (counts["binary"], counts["cut_lines"], counts["masked"]) == (1, 1, 1)
    assert (counts["dropped"], counts["unplaced"], counts["files"]) == (1, 1, 2)
    assert [(one["file"], one["is_placed"]) for one in document["findings"]] == [
        ("cart", True), ("elsewhere.py", False),
    ]  # fmt: skip
    for gap in ("1 file not reviewed", "1 line cut", "1 value masked", "1 finding dropped"):
        assert gap in subject
    for gap in ("1 binary file", "1 long line cut", "1 value masked", "1 finding dropped"):
        assert gap in text
        assert gap in show
    assert "elsewhere.py:3" in text
    assert aws not in subject + text + show + json.dumps(document)


def test_a_change_that_was_read_whole_without_findings_is_clean(
    office: Office, capsys: Any
) -> None:
    commit(office.repository, cart="def total(items):\n    return sum(items) + 0\n")
    asked = office.submit()
    office.work_out()

    subject, text, _, document = outputs_of(office, asked.review.review_id, capsys)

    assert subject == "Review of cl-1 (version 1): clean"
    assert "Nothing was found." in text
    assert document["outcome"] == "clean"
