"""A review from end to end: real commits, the simulator's model, mails in the local mailbox."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast import FakeClock, State
from holdfast_review.enums import Answer, ReviewProgress
from holdfast_review.model import Source
from holdfast_simulator import Simulator
from tests.apps_review.office import Model, Office, commit, git, text_of
from tests.operate.letters import operator, replay
from tests.story import ORG, look

ROOT = Path(__file__).resolve().parents[2]
AWS = "AKIAIOSFODNN7EXAMPLE"


def change_cart(office: Office) -> str:
    bad = f'KEY = "{AWS}"\ndef total(items):\n    return eval(items)\n'
    return commit(office.repository, cart=bad)


@pytest.mark.req("S-01", "J-38", "N-04", "N-14")
def test_a_commit_is_reviewed_and_every_recipient_has_a_mail(office: Office, critic: Model) -> None:
    head = change_cart(office)
    asked = office.submit(head=head)

    office.work_out()

    shown = office.reviews.find(asked.review.review_id, org_id=ORG)
    assert shown.review.word is ReviewProgress.SUCCEEDED
    assert [(one.file, one.line, one.severity) for one in shown.findings] == [
        ("cart", 3, "critical")
    ]
    assert [mail["to"] for mail in office.mails] == ["ann@example.org", "ben@example.org"]
    for mail in office.mails:
        assert mail["subject"] == (
            "Review of cl-1 (version 1): 1 finding (1 critical), 1 value masked"
        )
        assert "cart:3" in text_of(mail, "plain")
        assert "whatever &lt;it&gt; is given" in text_of(mail, "html")
    assert len(critic.asked) == 1
    # The secret of the commit was sent to no recipient.
    kept = [file.read_bytes() for file in (office.home / "artifacts").rglob("*") if file.is_file()]
    assert AWS not in critic.asked[0].text
    assert kept
    assert not any(AWS.encode() in data for data in kept)


@pytest.mark.req("N-01", "N-02", "N-03", "N-05")
def test_version_2_notifies_again_and_version_1_does_not(office: Office) -> None:
    first = office.submit(head=change_cart(office))
    office.work_out()
    again = office.reviews.rerun("cl-1", 1, "k2", org_id=ORG)
    office.work_out()
    assert (again.answer, again.review.review_id) == (
        Answer.SAME_VERSION, first.review.review_id,
    )  # fmt: skip
    assert (office.count("delivery"), len(office.mails)) == (2, 2)

    second = office.reviews.rerun("cl-1", 2, "k3", org_id=ORG)
    office.work_out()

    assert (second.answer, office.again(second).word) == (Answer.CREATED, ReviewProgress.SUCCEEDED)
    assert (office.count("delivery"), len(office.mails)) == (4, 4)
    assert sorted(mail["subject"] for mail in office.mails) == [
        *["Review of cl-1 (version 1): 1 finding (1 critical), 1 value masked"] * 2,
        *["Review of cl-1 (version 2): 1 finding (1 critical), 1 value masked"] * 2,
    ]


@pytest.mark.req("S-02", "S-03", "S-04", "S-05", "S-06", "D-17", "D-09")
def test_a_model_that_fails_five_times_is_replayed_without_fetching_again(
    office: Office, critic: Model
) -> None:
    critic.failing = 5
    asked = office.submit(head=change_cart(office))
    office.work_out()

    job = office.hf.get(asked.review.job_id, org_id=ORG)
    (letter,) = look(office.hf.store, "SELECT * FROM holdfast.dead_letter")
    assert (job.state, job.stage, len(critic.asked)) == (State.FAILED, "llm", 5)
    assert (letter["stage"], letter["attempts"]) == ("llm", 5)
    assert letter["first_failure_at"] < letter["last_failure_at"]
    assert office.again(asked).dead_letter_id == job.id
    assert office.mails == []

    # The fetched change is reviewed, even if the repository has changed since.
    office.repository.rename(office.home / "moved")
    replay(operator(office.hf), job)
    office.work_out()

    assert office.again(asked).word is ReviewProgress.SUCCEEDED
    assert (len(critic.asked), len(office.mails)) == (6, 2)
    assert office.count("artifact", "name = 'change.diff'") == 1


def own_commit() -> tuple[Path, str] | None:
    """A commit of this repository that is not too large; None if there is no history."""
    try:
        for head in git(ROOT, "rev-list", "--first-parent", "-n", "30", "HEAD").split():
            if git(ROOT, "rev-list", "--parents", "-n", "1", head).count(" ") == 0:
                return None
            if len(git(ROOT, "diff", f"{head}^1", head)) < 400_000:
                return Path(
                    git(ROOT, "rev-parse", "--path-format=absolute", "--git-common-dir")
                ), head
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError):
        return None
    return None


def test_a_commit_of_this_very_repository_is_reviewed(
    url: str, clock: FakeClock, tmp_path: Path, simulator: Simulator, critic: Model
) -> None:
    office = Office(url, clock, tmp_path, simulator)
    own = own_commit()
    place, head = own or (office.repository, change_cart(office))
    office.hf.close()
    office = Office(url, clock, tmp_path, simulator, repositories=(str(place),))

    asked = office.submit(source=Source.git(str(place), head))
    office.work_out()

    assert office.again(asked).word is ReviewProgress.SUCCEEDED
    assert (len(critic.asked) > 0, len(office.mails)) == (True, 2)
    office.hf.close()
