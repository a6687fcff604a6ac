"""Changes that cannot be reviewed are refused at submission, and are harmless if stored."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from typing import Any

import pytest

from holdfast import State
from holdfast.document import decode
from holdfast_review import submit as submitting
from holdfast_review.enums import Answer, ReviewProgress
from holdfast_review.failure import InvalidReview
from holdfast_review.model import Source
from tests.apps_review.office import ANN, BEN, Model, Office, commit, git, text_of
from tests.story import ORG, OTHER_ORG, look

AWS = "AKIAIOSFODNN7EXAMPLE"
PATCH = f'--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+eval(b)\n+k = "{AWS}"\n'.encode()


def refused(office: Office, field: str, **asked: Any) -> str:
    """Check that the request is refused for this field and stores nothing; return the message."""
    with pytest.raises(InvalidReview) as caught:
        office.submit(**asked)

    assert list(caught.value.fields) == [field]
    tables = ("review", "changelist", "review_recipient", "job", "delivery")
    assert {name: office.count(name) for name in tables} == dict.fromkeys(tables, 0)
    return str(caught.value)


def test_a_change_that_cannot_be_read_is_refused_where_it_comes_in(office: Office) -> None:
    (office.home / "git" / "empty").mkdir()
    shutil.copytree(office.repository, office.home / "other")
    (office.home / "git" / "link").symlink_to(office.home / "other")

    for place, head, field in (
        ("git/shop", "no-such-branch", "source.head"),
        ("git/shop", "--output=x", "source.head"),
        ("git/shop", "HEAD:cart", "source.head"),
        ("git/empty", "HEAD", "source.repository"),
        ("git/nowhere", "HEAD", "source.repository"),
        ("git/../other", "HEAD", "source.repository"),
        ("git/link", "HEAD", "source.repository"),
        ("other", "HEAD", "source.repository"),
    ):
        refused(office, field, source=Source.git(str(office.home / place), head))


def test_a_base_that_is_no_revision_is_refused(office: Office) -> None:
    source = Source.git(str(office.repository), "HEAD", base="no-such-branch")

    refused(office, "source.base", source=source)


def test_a_change_whose_beginning_is_not_there_is_refused_and_says_so(office: Office) -> None:
    git(office.repository, "checkout", "-q", "--orphan", "other")
    commit(office.repository, other="x\n")
    commit(office.repository, other="y\n")
    shallow = office.home / "git" / "shallow"
    git(office.home, "clone", "-q", "--depth=1", f"file://{office.repository}", str(shallow))

    source = Source.git(str(office.repository), "other", base="main")
    assert "no history in common" in refused(office, "source.base", source=source)
    source = Source.git(str(shallow), "HEAD")
    assert "a shallow clone" in refused(office, "source.head", source=source)


def test_a_commit_with_an_endless_message_is_refused(office: Office) -> None:
    text = office.home / "message"
    text.write_text("word " * 300_000)
    git(office.repository, "commit", "-q", "--allow-empty", "-F", str(text))

    assert "message is too large" in refused(office, "source.head")


def test_where_the_repositories_are_not_the_worker_looks(office: Office) -> None:
    office.repository.parent.rename(office.home / "elsewhere")

    asked = office.submit()
    office.work_out()

    job = office.hf.get(asked.review.job_id, org_id=ORG)
    assert (job.state, job.stage, job.error_class) == (State.FAILED, "fetch", "PATH_REFUSED")
    assert office.mails == []


def test_whom_no_channel_reaches_is_refused_where_they_are_named(office: Office) -> None:
    wrong: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"channel": "pigeon"}, "recipients[1].channel", "not a declared channel"),
        ({"address": "ann"}, "recipients[1]", "one e-mail address"),
        ({"address": "Ann <ann@example.org>"}, "recipients[1]", "one e-mail address"),
        ({"address": "a@example.org, b@example.org"}, "recipients[1]", "one e-mail address"),
        ({"address": "a@example.org\r\nBcc: x@y.org"}, "recipients[1].address", "one line"),
    )
    for differs, field, says in wrong:
        bad = replace(ANN, **differs)
        problem = refused(office, field, recipients=[BEN, bad])
        assert says in problem
        assert bad.address not in problem


def test_a_known_key_is_answered_whatever_became_of_its_channel(office: Office) -> None:
    asked = office.submit()
    office.hf.settings = replace(office.hf.settings, channels={})
    office.repository.rename(office.home / "git" / "moved")

    again = office.submit()

    assert (again.answer, again.review.review_id) == (Answer.SAME_KEY, asked.review.review_id)


def test_what_is_no_patch_is_not_kept(office: Office) -> None:
    for patch, says in (
        (b"no patch", "not a valid patch"),
        (b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n", "see line"),
        (b"--- a/x\n+++ b/../../etc/x\n@@ -1 +1 @@\n-a\n+b\n", "see line"),
        (b"+" * 50 * 1024 * 1024, "larger than what is reviewed"),
    ):
        with pytest.raises(InvalidReview, match=says):
            office.reviews.store_patch(patch, org_id=ORG)
        assert says in refused(office, "patch", source=Source.posted(patch))

    assert office.count("artifact") == 0


def test_a_patch_is_stored_only_for_a_review_that_is_made(office: Office) -> None:
    posted = Source.posted(PATCH)
    bad = replace(ANN, address="ann")
    with pytest.raises(InvalidReview) as both:
        office.submit(source=Source.posted(b"no patch"), recipients=[bad])
    assert list(both.value.fields) == ["patch", "recipients[0]"]
    for wrong in ({"recipients": [bad]}, {"version": 0}, {"key": ""}):
        with pytest.raises(InvalidReview):
            office.submit(**{"source": posted, **wrong})
    assert office.count("artifact") == 0

    first = office.submit(source=posted)
    office.work_out()
    stored = office.count("artifact")
    again = office.submit(source=posted)
    broken = office.submit(source=Source.posted(b"no patch"))
    same = office.submit(1, "k2", source=Source.posted(PATCH.replace(b"-a", b"-c")))
    with pytest.raises(InvalidReview, match="pass rerun"):
        office.submit(2, "k3", source=posted)

    assert {one.review.review_id for one in (again, broken, same)} == {first.review.review_id}
    assert [one.differs for one in (again, broken, same)] == [False, True, True]
    assert office.count("artifact") == stored


@pytest.mark.parametrize("faster", [1, 2])
def test_a_patch_is_taken_away_if_another_request_was_faster(
    office: Office, monkeypatch: pytest.MonkeyPatch, faster: int
) -> None:
    store = submitting.store_posted

    def store_late(*given: Any, **more: Any) -> Source:
        office.submit(faster, "k2")
        office.work_out()
        return store(*given, **more)

    monkeypatch.setattr(submitting, "store_posted", store_late)
    if faster == 1:
        assert office.submit(source=Source.posted(PATCH)).answer is Answer.SAME_VERSION
    else:
        with pytest.raises(InvalidReview, match="must be higher than 2"):
            office.submit(source=Source.posted(PATCH))

    states = look(office.hf.store, "SELECT state FROM holdfast.artifact WHERE kind = 'input'")
    assert [row["state"] for row in states] == ["removed"]


def test_a_posted_patch_is_kept_without_its_secrets_and_reviewed(
    office: Office, critic: Model
) -> None:
    asked = office.submit(source=Source.posted(PATCH))
    office.work_out()

    assert office.again(asked).word is ReviewProgress.SUCCEEDED
    assert len(office.mails) == 2
    kept = [file.read_bytes() for file in (office.home / "artifacts").rglob("*") if file.is_file()]
    assert any(b"eval(b)" in data for data in kept)
    assert not any(AWS.encode() in data for data in kept)
    assert AWS not in critic.asked[0].text


def test_a_patch_of_another_tenant_or_a_missing_one_is_refused(office: Office) -> None:
    others = office.reviews.store_patch(PATCH, org_id=OTHER_ORG).artifact_id

    for artifact_id in ("nonsense", "0198c0de-0000-7000-8000-0000000000aa", others):
        refused(office, "source.artifact_id", source=Source.patch(artifact_id))


def test_an_oversized_diff_is_dead_lettered_without_model_call_or_notification(
    office: Office, critic: Model
) -> None:
    # 53 MB of text; a single file of that size would be treated as binary.
    lines = "".join(f"line {at} of a file that somebody put there\n" for at in range(90_000))
    commit(office.repository, **{f"part{at}": lines for at in range(13)})

    asked = office.submit()
    office.work_out()

    job = office.hf.get(asked.review.job_id, org_id=ORG)
    assert (job.state, job.stage, job.error_class) == (State.FAILED, "fetch", "CHANGE_TOO_LARGE")
    assert (critic.asked, office.mails, office.count("artifact")) == ([], [], 0)


def test_binary_files_and_broken_texts_are_reviewed_as_far_as_they_can_be_read(
    office: Office, critic: Model
) -> None:
    commit(office.repository, image=b"\x89PNG\0\0\1eval(", latin=b"eval('caf\xe9')\n")

    asked = office.submit()
    office.work_out()

    shown = office.reviews.find(asked.review.review_id, org_id=ORG)
    assert shown.review.word is ReviewProgress.SUCCEEDED
    assert [(one.file, one.line) for one in shown.findings] == [("latin", 1)]
    (fetched,) = look(
        office.hf.store, "SELECT output FROM holdfast.job_stage WHERE stage = 'fetch'"
    )
    counted = decode(fetched["output"])
    assert (counted["files"], counted["binary_files"], counted["lossy_files"]) == (2, 1, 1)
    assert b"PNG" not in critic.asked[0].text.encode()


def test_what_a_change_or_a_model_says_makes_no_header(office: Office, critic: Model) -> None:
    (office.repository / "a\nBcc: eve@example.org").write_text("eval(1)\n")
    commit(office.repository)
    critic.message = "Bad.\r\nBcc: eve@example.org\r\n\r\n<script>"

    asked = office.submit()
    office.work_out()

    assert office.again(asked).word is ReviewProgress.SUCCEEDED
    for mail in office.mails:
        assert mail["bcc"] is None
        assert "eve@example.org" not in mail["subject"]
        assert "<script>" not in text_of(mail, "html")


@pytest.mark.req("N-02")
def test_a_lower_version_is_refused_once_a_higher_one_succeeded(office: Office) -> None:
    office.submit(2)
    office.work_out()

    for key, is_rerun in (("k2", False), ("k3", True)):
        with pytest.raises(InvalidReview) as caught:
            office.submit(1, key, rerun=is_rerun)
        assert list(caught.value.fields) == ["review_version"]
    assert (office.count("review"), len(office.mails)) == (1, 2)


def test_the_same_version_submitted_twice_at_once_is_notified_once(office: Office) -> None:
    barrier = threading.Barrier(2)
    answers: list[Answer] = []

    def ask(key: str) -> None:
        barrier.wait(30)
        answers.append(office.submit(1, key).answer)

    threads = [threading.Thread(target=ask, args=(key,)) for key in ("k1", "k2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    office.work_out()

    assert sorted(answers) == [Answer.CREATED, Answer.SAME_VERSION]
    assert (office.count("review"), office.count("job"), len(office.mails)) == (1, 1, 2)
