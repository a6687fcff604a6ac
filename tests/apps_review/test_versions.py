"""Versions of a changelist: a completed review is not repeated, except on request."""

from __future__ import annotations

import threading
from itertools import product
from typing import Any

import pytest

from holdfast import Context, Holdfast, State
from holdfast.store import Tx
from holdfast_review import notify as notifying
from holdfast_review import show
from holdfast_review.enums import Answer, ReviewProgress
from holdfast_review.failure import InvalidReview
from holdfast_review.model import Review
from holdfast_review.submit import Submitted
from tests.apps_review.bench import ANN, BEN, Bench, wait_for_a_lock
from tests.operate.letters import operator, replay
from tests.operate.sound import assert_sound
from tests.story import ORG, look


@pytest.mark.req("N-01")
def test_a_version_that_succeeded_is_not_done_again(bench: Bench) -> None:
    first = bench.succeed(1, "k1")

    again = bench.submit(1, "k2")
    flagged = bench.submit(1, "k3", rerun=True)
    bench.work_out()

    assert [again.answer, flagged.answer] == [Answer.SAME_VERSION] * 2
    assert again.review.job_id == flagged.review.job_id == first.review.job_id
    assert again.review.word is ReviewProgress.SUCCEEDED
    assert bench.calls == {"fetch": 1, "llm": 1}
    assert len(bench.channel.sends) == 1


@pytest.mark.req("N-01")
def test_a_version_that_runs_is_answered_with_the_running_job(bench: Bench) -> None:
    first = bench.submit(1, "k1")

    again = bench.submit(1, "k2", to=[BEN])

    assert (again.answer, again.differs) == (Answer.SAME_VERSION, True)
    assert again.review.job_id == first.review.job_id


@pytest.mark.req("N-02")
def test_a_higher_version_without_the_flag_is_refused_once_one_succeeded(bench: Bench) -> None:
    bench.succeed(1, "k1")

    with pytest.raises(InvalidReview) as refused:
        bench.submit(2, "k2")

    assert list(refused.value.fields) == ["rerun"]


@pytest.mark.req("N-02")
@pytest.mark.parametrize("rerun", [False, True])
def test_a_lower_version_is_refused_once_a_higher_one_succeeded(bench: Bench, rerun: bool) -> None:
    bench.succeed(3, "k1")

    with pytest.raises(InvalidReview) as refused:
        bench.submit(2, "k2", rerun=rerun)

    assert list(refused.value.fields) == ["review_version"]
    assert look(bench.hf.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"] == 1


@pytest.mark.req("N-02", "N-03")
def test_a_rerun_is_another_review_with_deliveries_of_its_own(bench: Bench) -> None:
    first = bench.succeed(1, "k1")

    second = bench.succeed(2, "k2", rerun=True)

    tokens = [message.token for message in bench.channel.sends]
    assert second.review.job_id != first.review.job_id
    assert len(tokens) == len(set(tokens)) == 2
    rows = look(
        bench.hf.store,
        "SELECT version, recipient FROM holdfast.delivery WHERE subject = :subject"
        " ORDER BY version",
        subject="changelist:cl-1",
    )
    assert [(row["version"], row["recipient"]) for row in rows] == [(1, "ann"), (2, "ann")]


@pytest.mark.req("N-01", "N-02")
def test_after_a_rerun_the_first_version_makes_nothing(bench: Bench) -> None:
    first = bench.succeed(1, "k1")
    bench.succeed(2, "k2", rerun=True)

    again = bench.submit(1, "k3", rerun=True)
    bench.work_out()

    assert (again.answer, again.review.job_id) == (Answer.SAME_VERSION, first.review.job_id)
    assert len(bench.channel.sends) == 2


@pytest.mark.req("N-02")
def test_while_nothing_has_succeeded_any_version_is_another_review(bench: Bench) -> None:
    answers = [bench.submit(version, f"k{version}") for version in (5, 2, 9)]

    assert all(one.created for one in answers)


@pytest.mark.req("N-02")
def test_a_late_success_of_a_lower_version_does_not_lower_the_bar(bench: Bench) -> None:
    # Its message is in the outbox, and is accepted at the second attempt only.
    bench.channel.script("rejected")
    first = bench.submit(1, "k1")
    bench.work()
    bench.succeed(3, "k3")

    assert bench.again(first).word is ReviewProgress.SUCCEEDED
    row = look(bench.hf.store, "SELECT succeeded_version FROM holdfast.changelist")[0]
    assert row["succeeded_version"] == 3
    with pytest.raises(InvalidReview, match="higher than 3"):
        bench.submit(2, "k2", rerun=True)
    assert_sound(bench.hf)


@pytest.mark.parametrize("full_restart", [False, True])
def test_a_replay_of_an_old_version_calls_no_model_and_sends_no_notification(
    bench: Bench, full_restart: bool
) -> None:
    bench.failing["llm"] = 5
    old = bench.submit(1, "k1")
    bench.work_out()
    bench.succeed(2, "k2")
    calls = bench.calls.copy()

    job = bench.hf.get(old.review.job_id, org_id=ORG)
    replay(operator(bench.hf), job, full_restart=full_restart)
    bench.work_out()

    again = bench.hf.get(bench.again(old).job_id, org_id=ORG)
    assert (again.state, again.error_class) == (State.FAILED, "REVIEW_OVERTAKEN")
    assert (len(bench.channel.sends), bench.calls) == (1, calls)


def test_a_version_overtaken_right_before_its_notification_sends_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend, late = notifying._intend, []

    def intend_late(hf: Holdfast, job: Context, review: Review) -> None:
        if review.review_version == 1 and not late:
            late.append(bench.submit(2, "k2"))
            bench.work()
        intend(hf, job, review)

    monkeypatch.setattr(notifying, "_intend", intend_late)
    old = bench.submit(1, "k1")
    bench.work_out()

    job = bench.hf.get(old.review.job_id, org_id=ORG)
    assert (job.state, job.stage, job.error_class) == (State.FAILED, "notify", "REVIEW_OVERTAKEN")
    assert [bench.again(one).word for one in late] == [ReviewProgress.SUCCEEDED]
    assert len(bench.channel.sends) == 1


# SQLite has one writer at a time.
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_of_two_concurrent_versions_the_lower_is_not_notified_last(
    bench: Bench, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend, read = notifying._intend, show.read_findings
    higher, begun = threading.Thread(target=bench.work), threading.Event()

    def intend_late(hf: Holdfast, job: Context, review: Review) -> None:
        if review.review_version == 1:
            bench.submit(2, "k2")
            higher.start()
            assert begun.wait(120)
        intend(hf, job, review)

    def read_slowly(tx: Tx, review: Review) -> Any:
        # The higher version is marked and not committed when the lower one is submitted.
        if not begun.is_set():
            begun.set()
            wait_for_a_lock(url)
        return read(tx, review)

    monkeypatch.setattr(notifying, "_intend", intend_late)
    monkeypatch.setattr(show, "read_findings", read_slowly)
    old = bench.submit(1, "k1")
    bench.work_out()
    higher.join(120)
    assert not higher.is_alive()

    assert bench.hf.get(old.review.job_id, org_id=ORG).error_class == "REVIEW_OVERTAKEN"
    (message,) = bench.channel.sends
    assert "version 2" in message.subject


def test_a_rerun_takes_over_what_is_not_said(bench: Bench) -> None:
    bench.succeed(1, "k1", to=[ANN, BEN])

    again = bench.reviews.rerun("cl-1", 2, "k2", org_id=ORG)
    bench.work_out()

    assert again.created
    assert bench.again(again).word is ReviewProgress.SUCCEEDED
    sent = sorted(message.address for message in bench.channel.sends)
    assert sent == ["ann@example.org"] * 2 + ["ben@example.org"] * 2


def test_there_is_no_rerun_of_what_never_ran(bench: Bench) -> None:
    with pytest.raises(InvalidReview, match="no review to run again"):
        bench.reviews.rerun("cl-9", 2, "k2", org_id=ORG)


def stand(bench: Bench, state: str, succeeded: int | None, changelist: str) -> str:
    """Version 2 of a changelist in a state, with a version that succeeded; its id."""

    def ask(version: int) -> Submitted:
        key = f"{changelist}-{version}"
        return bench.submit(version, key, changelist=changelist, rerun=version > 1)

    if succeeded == 1:
        ask(1)
        bench.work_out()
    bench.failing["fetch"] = 5 if state == "failed" else 0
    asked = ask(2)
    if state == "canceled":
        bench.hf.cancel(asked.review.job_id, org_id=ORG)
    elif state != "queued":
        bench.work_out()
    if succeeded == 3:
        ask(3)
        bench.work_out()
    assert bench.again(asked).state == state
    return asked.review.review_id


@pytest.mark.req("I-12", "N-01")
def test_a_version_that_has_a_review_is_answered_with_it_whatever_became_of_it(
    bench: Bench,
) -> None:
    for state, succeeded in product(("queued", "completed", "failed", "canceled"), (None, 1, 3)):
        if (state, succeeded) == ("queued", 3):
            # It would run at the same time as the other.
            continue
        name = f"{state}-{succeeded}"
        review_id = stand(bench, state, succeeded, name)
        calls, sends = bench.calls.copy(), len(bench.channel.sends)

        for key, rerun in product((f"{name}-2", f"{name}-new"), (False, True)):
            if "new" in key and state in ("failed", "canceled") and succeeded == 3:
                # There is no review to answer with, and a message about a higher version was sent.
                with pytest.raises(InvalidReview, match="must be higher than 3"):
                    bench.submit(2, key, changelist=name, rerun=rerun)
                continue
            found = bench.submit(2, key, changelist=name, rerun=rerun)
            answer = Answer.SAME_VERSION if "new" in key else Answer.SAME_KEY
            assert (found.review.review_id, found.answer) == (review_id, answer), name
        for version in (1, 9):
            found = bench.submit(version, f"{name}-2", changelist=name, rerun=True)
            assert (found.review.review_id, found.differs) == (review_id, True), name

        bench.work_out()
        if state != "queued":
            assert (bench.calls, len(bench.channel.sends)) == (calls, sends), name
