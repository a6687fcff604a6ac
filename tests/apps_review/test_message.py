"""The message about a review: its subject, its severity, and each problem once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import State
from holdfast_review.coverage import Coverage
from holdfast_review.enums import Confidence, ReviewProgress, Severity
from holdfast_review.merge import Read, merge, tally
from holdfast_review.model import Finding, Origin, Review, Source
from holdfast_review.origin import origin_of_patch
from holdfast_review.patch import Change, FileChange, Hunk
from holdfast_review.render import LONGEST_SUBJECT, render
from holdfast_simulator import Prompt
from tests.apps_review.office import Model, Office, commit, git, hunks_of, text_of
from tests.story import ORG, look

REVIEW = Review(
    "r1", ORG, "cl-1", 2, "j1", State.PROCESSING, ReviewProgress.IN_PROGRESS,
    Source.git("/srv/git/shop", "feature", "main"), "k", datetime(2026, 1, 5, tzinfo=UTC),
    coverage=Coverage(files=1),
    origin=Origin("Ann Lee", "Round the total", "a" * 40, "b" * 40, 3),
)  # fmt: skip
PAID = Finding(
    "pay.py", 4, Severity.CRITICAL, "The sum is never checked.", quote="total = eval(items)"
)
LOW = Finding("cart.py", 9, Severity.LOW, "This name says little.")


# -- repeated findings


def merged(*findings: Finding) -> list[Finding]:
    return list(merge([Read(findings)]).findings)


@pytest.mark.parametrize(
    "message",
    [
        "the sum is NEVER checked",
        "The  sum is never checked!",
        "`The sum` is never checked.",
        "The sum is \u201cnever\u201d checked\u2026",
        "\uff34he sum is never checked.",
        "The sum, is never - checked.",
    ],
)
def test_findings_that_differ_only_in_writing_are_one(message: str) -> None:
    plain = replace(PAID, severity=Severity.LOW, quote="")

    (found,) = merged(plain, replace(plain, message=message, severity=Severity.HIGH))

    assert (found.severity, found.message) == (Severity.HIGH, plain.message)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("CWE-89: the query is concatenated.", "SQL injection through `name` (cwe-89)."),
        ("[no-eval] Do not call eval.", "[no-eval] Input reaches an interpreter."),
        ("S608: possible injection.", "S608: the query is built from input."),
    ],
)
def test_findings_of_one_rule_at_one_place_are_one(first: str, second: str) -> None:
    (found,) = merged(replace(PAID, message=first), replace(PAID, message=second))

    assert found.message == first


def test_another_place_another_rule_or_other_words_are_another_finding() -> None:
    found = merged(
        PAID,
        replace(PAID, line=5),
        replace(PAID, file="b.py"),
        replace(PAID, line=None),
        replace(PAID, message="The sum is never rounded."),
        replace(PAID, message="CWE-89: built from input."),
        replace(PAID, message="CWE-79: shown as it is."),
    )

    assert len(found) == 7


def test_a_finding_quotes_its_line() -> None:
    lines = ("+total = 1", "-gone", "+key = '[secret]'", "+" + "x" * 900, "+\x1b[2J\t")
    change = Change((FileChange("a.py", hunks=(Hunk(1, 1, lines),)),))
    findings = [Finding("a.py", at, Severity.LOW, str(at)) for at in (1, 2, 3, 4, 9)]

    quotes = [one.quote for one in merge([Read(tuple(findings))], change).findings]

    assert quotes[:2] == ["total = 1", "key = '[secret]'"]
    assert len(quotes[2]) == 200
    assert quotes[3:] == ["\\x1b[2J", ""]


# -- the text of the message


def test_the_message_names_what_was_reviewed_and_quotes_the_line() -> None:
    content = render(REVIEW, tally([PAID, LOW]), [PAID, LOW])

    for body in (content.text, str(content.html)):
        assert "/srv/git/shop" in body
        assert f"{'a' * 40}..{'b' * 40} (3 commits)" in body
        assert "Ann Lee" in body
        assert "Round the total" in body
        assert "total = eval(items)" in body


def test_the_tally_is_there_once() -> None:
    content = render(REVIEW, tally([PAID, LOW]), [PAID, LOW])

    assert content.text.count("1 critical, 1 low") == 1
    assert str(content.html).count("1 critical, 1 low") == 1
    assert "Ask Ben." in render(REVIEW, "Ask Ben.", [PAID]).text


def test_the_subject_says_how_bad_it_is() -> None:
    assert render(REVIEW, "", [PAID, LOW]).subject == (
        "Review of cl-1 (version 2): 2 findings (1 critical, 1 low)"
    )


def test_a_long_name_gives_way_to_the_counts() -> None:
    counts = Coverage(
        files=99_999, binary=9_999, moved=9_999, undecodable=9_999, cut_lines=9_999, masked=9_999,
        dropped=9_999, cut_findings=9_999, unplaced=9_999, left_out=9_999,
    )  # fmt: skip
    review = replace(REVIEW, changelist_id="c" * 200, coverage=counts)
    findings = [replace(LOW, severity=one) for one in Severity]

    content = render(review, "", findings)

    assert len(content.subject) <= LONGEST_SUBJECT
    assert content.subject.startswith("Review of ccc")
    assert "5 findings (1 critical" in content.subject
    assert "19998 files not reviewed" in content.subject


def test_author_title_and_quote_do_not_act() -> None:
    origin = Origin("<b>Eve</b>\x1b[2J", "x\r\nBcc: y@example.org <script>", "", "")
    content = render(
        replace(REVIEW, origin=origin), "", [replace(PAID, quote="</code><script>\u202e")]
    )

    assert "<script>" not in str(content.html)
    assert "<b>Eve" not in str(content.html)
    assert "\nBcc:" not in content.text
    assert "\u202e" not in content.text + str(content.html)
    assert "\x1b" not in content.text + str(content.html)


def body_of(office: Office) -> str:
    return text_of(office.mails[0], "plain").replace("\r\n", "\n")


class Repeats(Model):
    """Reports each call of eval in three ways."""

    def __call__(self, prompt: Prompt) -> Mapping[str, Any]:
        self.asked.append(prompt)
        usual = {"severity": "high", "confidence": "low"}
        return {
            "findings": [
                {"file": hunk["file"], "line": int(line[:6]), "message": message, **usual}
                for hunk in hunks_of(prompt)
                for line in hunk["lines"]
                for message in ("Do not eval.", "do not `eval`!", "Do  not eval")
                if "eval(" in line
            ]
        }


@pytest.fixture
def critic(request: pytest.FixtureRequest) -> Model:
    return getattr(request, "param", Model)()


@pytest.mark.parametrize("critic", [Repeats], indirect=True)
def test_a_mail_about_commits_names_them_and_says_each_problem_once(office: Office) -> None:
    base = git(office.repository, "rev-parse", "HEAD")
    commit(office.repository, cart="def total(items):\n    return eval(items)\n")
    token = "ghp_" + "a1B2" * 9
    git(office.repository, "commit", "-q", "--allow-empty", "--author", "Ann Lee <a@example.org>",
        "-m", f"Round the total {token}", "-m", "More text")  # fmt: skip
    head = git(office.repository, "rev-parse", "HEAD")

    asked = office.submit(source=Source.git(str(office.repository), "HEAD", base))
    office.work_out()

    mail = office.mails[0]
    text = body_of(office)
    assert "1 finding (1 high)" in mail["subject"]
    assert str(office.repository) in text
    assert f"{base}..{head} (2 commits)" in text
    assert "Author: Ann Lee, A\n" in text
    assert "Title: Round the total [secret]\n" in text
    assert "> return eval(items)" in text
    assert text.count("Do not eval") == text.count("1 high") == 1
    assert "a@example.org" not in text
    # Text of the tenant is not in the job, and is erased with the review.
    for table in ("job", "job_stage", "job_event"):
        assert "Round the total" not in str(
            look(office.hf.store, f"SELECT * FROM holdfast.{table}")
        )
    shown = office.reviews.find(asked.review.review_id, org_id=ORG).document
    assert shown["origin"]["title"] == "Round the total [secret]"
    office.reviews.erase("cl-1", org_id=ORG, reason="asked for")
    erased = office.reviews.find(asked.review.review_id, org_id=ORG).document
    assert "Round" not in json.dumps(erased, default=str)


def test_a_single_commit_is_named_with_its_own_title(office: Office) -> None:
    before = git(office.repository, "rev-parse", "HEAD")
    head = commit(office.repository, cart="def total(items):\n    return eval(items)\n")
    office.submit(head=head)
    office.work_out()

    text = body_of(office)
    assert f"Commits: {before}..{head}\n" in text
    assert "Author: A\nTitle: change\n" in text


def test_the_first_commit_of_a_repository_is_named_too(office: Office) -> None:
    head = git(office.repository, "rev-parse", "HEAD")
    office.submit(head=head)
    office.work_out()

    assert f"Commits: {head}\n" in body_of(office)


MAIL = b"""From 8f3a1c0d8f3a1c0d8f3a1c0d8f3a1c0d8f3a1c0d Mon Sep 17 00:00:00 2001
From: =?UTF-8?q?J=C3=BCrgen=20Lee?= <j@example.org>
Date: Mon, 5 Jan 2026 09:00:00 +0000
Subject: [PATCH 1/2] Round the
 total

Because.
---
 x | 2 +-

diff --git a/x b/x
--- a/x
+++ b/x
@@ -1 +1 @@
-a
+eval(b)
--\x20
2.39.5

"""


def test_a_patch_from_a_mail_says_who_made_it() -> None:
    found = origin_of_patch(MAIL)

    assert (found.author, found.title) == ("J\u00fcrgen Lee", "Round the total")
    assert (found.head, found.commits) == ("8f3a1c0d" * 5, 1)
    assert origin_of_patch(b"--- a/x\n+++ b/x\n") == Origin()


@pytest.mark.parametrize(
    "head", [b"From: <\nSubject: =?x?q?=\n", b"\xff" * 99, b":\n" * 99, b"From:\n"]
)
def test_a_broken_mail_around_a_patch_says_nothing_and_breaks_nothing(head: bytes) -> None:
    assert origin_of_patch(head + b"\ndiff --git a/x b/x\n").head == ""


def test_the_title_of_a_posted_patch_is_in_its_mail(office: Office) -> None:
    office.submit(source=Source.posted(MAIL))
    office.work_out()

    text = body_of(office)
    assert "Title: Round the total\n" in text
    assert "j@example.org" not in text


def test_confidence_of_the_stronger_one_is_kept() -> None:
    (found,) = merged(PAID, replace(PAID, confidence=Confidence.HIGH))

    assert found.confidence is Confidence.HIGH
