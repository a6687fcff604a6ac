"""A posted patch is stored sealed until a stage redacts it, and its caller does not wait."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest

from holdfast import State, UpstreamDown
from holdfast.artifacts.artifacts import Artifacts
from holdfast.errors import RuleBroken
from holdfast_review import fetch as fetching
from holdfast_review.enums import ReviewProgress
from holdfast_review.failure import InvalidReview
from holdfast_review.model import Review, Source, slow_hash
from holdfast_review.patch import Change
from holdfast_review.refusal import RedactionFailed
from holdfast_review.seal import new_key, seal
from tests.apps_review.office import Model, Office
from tests.story import ORG, look

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
PATCH = f'--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+eval(b)\n+key = "{AWS}"\n'.encode()
TABLES = (
    "review", "review_seal", "review_part", "finding", "job", "job_stage", "job_event", "artifact",
    "dead_letter", "delivery",
)  # fmt: skip


def stored_in(office: Office) -> str:
    """Everything in the database and in the artifact store."""
    rows = [look(office.hf.store, f"SELECT * FROM holdfast.{table}") for table in TABLES]
    files = [one.read_bytes() for one in (office.home / "artifacts").rglob("*") if one.is_file()]
    return str(rows) + str(files)


def test_the_caller_does_not_redact_and_a_patch_of_4_mib_takes_it_less_than_a_second(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    redacted_by: list[int] = []
    redact = fetching.redact_change

    def watched(change: Change) -> Change:
        redacted_by.append(threading.get_ident())
        return redact(change) if len(change.files) < 10 else Change(change.files[:1])

    monkeypatch.setattr(fetching, "redact_change", watched)
    monkeypatch.setattr("holdfast_review.posted.redact_change", watched)
    lines = "".join(
        f"+value_{at} = compute(total, rate={at}, password=None)\n" for at in range(500)
    )
    file = (
        "diff --git a/f{0}.py b/f{0}.py\n--- /dev/null\n+++ b/f{0}.py\n@@ -0,0 +1,500 @@\n" + lines
    )
    patch = "".join(file.format(at) for at in range(160)).encode()
    patch = patch[: 4 * 1024 * 1024]
    patch = patch[: patch.rindex(b"diff --git ")]
    assert len(patch) > 3.9 * 1024 * 1024

    spent = []
    for number in range(3):
        began = time.thread_time()
        office.submit(number + 1, f"k{number}", source=Source.posted(patch), recipients=[])
        spent.append(time.thread_time() - began)

    # The CPU time of this thread: other work on the machine does not count.
    assert min(spent) < 1.0
    assert redacted_by == []


def test_a_patch_that_waits_cannot_be_read_and_is_replaced_by_the_redacted_one(
    office: Office, critic: Model
) -> None:
    asked = office.submit(source=Source.posted(PATCH))
    waiting = stored_in(office)
    source = office.again(asked).source

    office.work_out()

    assert AWS not in waiting
    assert "eval(b)" not in waiting
    assert source.is_sealed
    done = stored_in(office)
    after = office.again(asked)
    assert after.word is ReviewProgress.SUCCEEDED
    assert "eval(b)" in done
    assert AWS not in done
    assert AWS not in critic.asked[0].text
    assert (after.source.is_sealed, office.count("review_seal")) == (False, 0)
    assert after.source.artifact_id != source.artifact_id
    states = look(
        office.hf.store, "SELECT name, state FROM holdfast.artifact WHERE name LIKE '%sealed'"
    )
    assert [row["state"] for row in states] == ["removed"]
    # The same request is recognized, and the redacted patch can be reviewed again.
    assert not office.submit(source=Source.posted(PATCH)).differs
    again = office.reviews.rerun("cl-1", 2, "k2", org_id=ORG)
    office.work_out()
    assert office.again(again).word is ReviewProgress.SUCCEEDED


def test_a_worker_that_dies_after_the_patch_was_replaced_continues_with_the_redacted_one(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, calls = Artifacts.remove, []

    def dies_once(self: Artifacts, *given: Any, **more: Any) -> None:
        calls.append(given)
        if len(calls) == 1:
            raise UpstreamDown
        remove(self, *given, **more)

    monkeypatch.setattr(Artifacts, "remove", dies_once)
    patch = b"From: Ann Lee <a@example.org>\nSubject: Round it\n\n" + PATCH
    asked = office.submit(source=Source.posted(patch))
    office.work_out()

    done = office.again(asked)
    assert done.word is ReviewProgress.SUCCEEDED
    assert office.count("review_seal") == 0
    # Data that only the sealed patch contained is kept.
    assert done.origin is not None
    assert (done.origin.author, done.origin.title) == ("Ann Lee", "Round it")


def test_a_patch_that_cannot_be_redacted_fails_its_review_and_is_sent_to_no_model(
    office: Office, critic: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(change: Change) -> Change:
        raise RedactionFailed(problem="not_clean")

    monkeypatch.setattr(fetching, "redact_change", fails)
    asked = office.submit(source=Source.posted(PATCH))
    office.work_out()

    job = office.hf.get(asked.review.job_id, org_id=ORG)
    assert (job.state, job.error_class) == (State.FAILED, "REDACTION_FAILED")
    assert critic.asked == []
    assert AWS not in stored_in(office)


def test_the_key_of_a_canceled_or_erased_review_is_gone(office: Office) -> None:
    canceled = office.submit(source=Source.posted(PATCH))
    assert office.count("review_seal") == 1
    office.hf.cancel(canceled.review.job_id, org_id=ORG, reason="no")
    assert office.count("review_seal") == 0

    office.submit(2, "k2", source=Source.posted(PATCH))
    assert office.count("review_seal") == 1
    office.reviews.erase("cl-1", org_id=ORG, reason="asked for")
    assert office.count("review_seal") == 0


def test_a_patch_that_is_still_sealed_is_not_taken_for_another_review(office: Office) -> None:
    asked = office.submit(source=Source.posted(PATCH))

    with pytest.raises(InvalidReview, match="not redacted yet"):
        office.reviews.rerun("cl-1", 2, "k2", org_id=ORG)
    with pytest.raises(InvalidReview, match="not redacted yet"):
        office.submit(3, "k3", source=Source.patch(office.again(asked).source.artifact_id))


def test_the_database_lets_a_source_change_only_when_it_is_unsealed(office: Office) -> None:
    asked = office.submit(source=Source.posted(PATCH))
    sealed: Review = office.again(asked)

    def change(source: str) -> None:
        office.hf.store.write(lambda tx: tx.connection.execute(source))

    other = '{"kind":"patch","artifact_id":"x","sha256":"y","sealed":"1"}'
    plain = '{"kind":"patch","artifact_id":"x","sha256":"y"}'
    update = "UPDATE {} SET source = '{}' WHERE 1 = 1"
    table = "holdfast_review" if office.hf.store.dialect.name == "sqlite" else "holdfast.review"

    for source, is_refused in ((other, True), (plain, False), (other, True)):
        do = partial(change, update.format(table, source))
        if is_refused:
            with pytest.raises(RuleBroken):
                do()
        else:
            do()
    assert sealed.source.is_sealed


def test_what_is_sealed_is_opened_by_its_key_alone() -> None:
    key, data = new_key(), bytes(range(256)) * 5 + b"\0\0"
    sealed = seal(data, key)

    assert len(sealed) == len(data)
    assert seal(sealed, key) == data
    assert seal(sealed, new_key()) != data
    assert seal(b"", key) == b""


def test_a_kept_checksum_is_slow_to_guess_and_another_for_each_tenant() -> None:
    assert slow_hash("aa", ORG) == slow_hash("aa", ORG) != slow_hash("ab", ORG)
    assert slow_hash("aa", ORG) != slow_hash("aa", "other")
    slow_hash.cache_clear()
    began = time.thread_time()
    slow_hash("ac", ORG)
    assert time.thread_time() - began > 0.005
