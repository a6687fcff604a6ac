"""An orchestrator is killed between its two transactions, and another one continues."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.errors import StoreDown
from holdfast_rewrite import orchestrate
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.enums import Status
from holdfast_rewrite.orchestrate import CLASSIFIED_AT_ONCE, Orchestrator
from holdfast_rewrite.rewrites import Rewrites
from tests.apps.household import (
    HOME,
    RECIPIENT,
    Heard,
    count,
    furnish,
    request_row,
    rewriting,
    submission,
    told,
)
from tests.story import by_hand, look

ABANDONED = timedelta(seconds=300)
LIFE = ["received", "queued", "classified", "context_built", "routed", "enqueued"]


class Died(BaseException):
    """The process is gone."""


def leave_behind(rewrites: Rewrites, monkeypatch: pytest.MonkeyPatch) -> str:
    """A request whose orchestrator died when the message was stored; its id."""

    def die(*args: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Orchestrator, "_decide", die)
        with pytest.raises(Died):
            rewrites.submit(submission())
    (row,) = look(
        rewrites.hf.store,
        "SELECT rewrite_request_id FROM holdfast.rewrite_request WHERE step = 'queued'",
    )
    return str(row["rewrite_request_id"])


def names(hf: Holdfast, request_id: str) -> list[str]:
    return [row["name"].removeprefix("rewrite_") for row in told(hf.store, request_id)]


@pytest.mark.req("O-07", "E-05")
def test_a_request_becomes_what_it_would_have_been_whatever_changed_since(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rewriting("sqlite:", FakeClock()) as calm:
        twin = Rewrites(calm, classifier=Heard())
        furnish(twin)
        undisturbed = request_row(calm.store, twin.submit(submission()).rewrite_request_id)
    request_id = leave_behind(rewrites, monkeypatch)
    directory = rewrites.directory
    assert isinstance(directory, SqlDirectory)
    directory.answer(HOME, RECIPIENT, "communication_directness", "direct")
    directory.change_locale(HOME, RECIPIENT, "fr")
    directory.leave(HOME, RECIPIENT)
    clock.advance(ABANDONED)

    assert rewrites.orchestrator.resume_once() == 1
    row = request_row(hf.store, request_id)
    assert (row["step"], names(hf, request_id)) == ("enqueued", LIFE)
    assert row["rewrite_request_id"] == undisturbed["rewrite_request_id"]
    assert row["request_hash"] == undisturbed["request_hash"]
    assert hf.get(row["job_id"], org_id=HOME).record["actor_type"] == "user"
    assert [event["actor_type"] for event in told(hf.store, request_id)] == (
        ["user"] * 2 + ["system"] * 4
    )
    assert rewrites.orchestrator.resume_once() == 0


def test_a_request_whose_orchestrator_may_still_run_is_not_taken_over(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_behind(rewrites, monkeypatch)
    clock.advance(ABANDONED - timedelta(milliseconds=1))
    early = rewrites.orchestrator.count_unfinished(10), rewrites.orchestrator.resume_once()
    clock.advance(milliseconds=1)

    assert early == (0, 0)
    assert rewrites.orchestrator.count_unfinished(10) == 1
    assert count(hf.store, "job") == 0


def test_the_run_continues_interrupted_requests(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = leave_behind(rewrites, monkeypatch)
    clock.advance(ABANDONED)
    report = perform_run(hf, "rewrite_orchestrator", trigger=Trigger(TriggerKind.SCHEDULE))

    assert request_row(hf.store, request_id)["step"] == "enqueued"
    assert report.claimed_count == 1


@pytest.mark.req("E-05")
def test_of_two_that_resume_at_once_one_has_the_message_classified(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Rewrites(rewriting(url, clock), classifier=Heard()) for _ in range(2))
    furnish(first)
    request_id = leave_behind(first, monkeypatch)
    clock.advance(ABANDONED)
    late: list[int] = []
    never, slow = Heard(), Heard()
    slow.meanwhile = lambda: late.append(second.orchestrator.resume_once())
    first.orchestrator.classifier, second.orchestrator.classifier = slow, never

    assert second.orchestrator.count_unfinished(10) == 1
    assert first.orchestrator.resume_once() == 1
    assert (late, never.asked, len(slow.asked)) == ([0], [], 1)
    assert (count(first.hf.store, "job"), names(first.hf, request_id)) == (1, LIFE)
    for rewrites in (first, second):
        rewrites.hf.close()


def test_what_a_run_took_and_did_not_finish_is_taken_again_when_its_lease_is_over(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = leave_behind(rewrites, monkeypatch)
    clock.advance(ABANDONED)

    def die(*args: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Orchestrator, "_decide", die)
        with pytest.raises(Died):
            rewrites.orchestrator.resume_once()
    assert (rewrites.orchestrator.count_unfinished(10), rewrites.orchestrator.resume_once()) == (
        0,
        0,
    )
    clock.advance(minutes=1)

    assert rewrites.orchestrator.resume_once() == 1
    assert names(hf, request_id) == LIFE


@pytest.mark.req("I-13")
def test_an_orchestrator_that_was_only_slow_loses_calmly(
    rewrites: Rewrites, hf: Holdfast, heard: Heard, clock: FakeClock
) -> None:
    other = Orchestrator(
        hf,
        producer=rewrites.orchestrator._producer,
        directory=rewrites.directory,
        classifier=Heard(),
        routes=rewrites.routes,
    )

    def overtake() -> None:
        clock.advance(ABANDONED)
        assert other.resume_once() == 1

    heard.meanwhile = overtake
    answer = rewrites.submit(submission())

    assert answer.status is Status.QUEUED
    assert answer.job_id == request_row(hf.store, answer.rewrite_request_id)["job_id"]
    assert (count(hf.store, "job"), names(hf, answer.rewrite_request_id)) == (1, LIFE)


def test_a_request_whose_text_is_gone_is_abandoned(
    rewrites: Rewrites,
    hf: Holdfast,
    heard: Heard,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request_id = leave_behind(rewrites, monkeypatch)
    by_hand(
        hf.store,
        "UPDATE holdfast.rewrite_message SET original_text = NULL, erased_at = {now}"
        " RETURNING org_id",
    )
    clock.advance(ABANDONED)

    assert rewrites.orchestrator.resume_once() == 1
    row = request_row(hf.store, request_id)
    assert (row["step"], row["failure_code"]) == ("failed", "abandoned")
    assert (row["classifier_result"], row["classified_at"]) == (None, None)
    assert names(hf, request_id) == ["received", "queued", "failed"]
    assert heard.asked == []


def test_a_request_that_fails_in_every_run_is_abandoned_after_a_day(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = leave_behind(rewrites, monkeypatch)
    clock.advance(days=1)

    assert rewrites.orchestrator.resume_once() == 1
    assert request_row(hf.store, request_id)["failure_code"] == "abandoned"


def test_what_can_be_neither_enqueued_nor_failed_waits_to_be_resumed(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: Any) -> Any:
        raise StoreDown("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(orchestrate.Orchestrator, "_move", down)
        answer = rewrites.submit(submission())
    clock.advance(ABANDONED)

    assert (answer.status, answer.job_id) == (Status.QUEUED, None)
    assert rewrites.orchestrator.resume_once() == 1
    assert request_row(hf.store, answer.rewrite_request_id)["step"] == "enqueued"


def test_many_interrupted_requests_continue_a_page_at_a_time(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*args: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Orchestrator, "_decide", die)
        with pytest.raises(Died):
            rewrites.submit_many([submission() for _ in range(7)])
    clock.advance(ABANDONED)
    taken = [rewrites.orchestrator.resume_once(3) for _ in range(4)]

    assert taken == [3, 3, 1, 0]
    assert count(hf.store, "job") == 7


# -- classifiers that wait for somebody else


@pytest.mark.req("E-01")
def test_submitting_does_not_wait_for_a_classifying_model(
    rewrites: Rewrites, hf: Holdfast, heard: Heard, clock: FakeClock
) -> None:
    heard.waits = True
    answer = rewrites.submit(submission())

    assert (answer.status, answer.job_id) == ("queued", None)
    assert heard.asked == []
    report = perform_run(hf, "rewrite_orchestrator", trigger=Trigger(TriggerKind.CRON))

    assert report.claimed_count == 1
    assert len(heard.asked) == 1
    row = request_row(hf.store, answer.rewrite_request_id)
    assert (row["step"], row["status"]) == ("enqueued", "queued")
    assert names(hf, answer.rewrite_request_id) == LIFE


def test_calls_of_a_classifier_that_waits_are_under_way_together(
    rewrites: Rewrites, hf: Holdfast, heard: Heard
) -> None:
    heard.waits = True
    meet = threading.Barrier(CLASSIFIED_AT_ONCE, timeout=20)
    heard.meanwhile = meet.wait
    rewrites.submit_many([submission()] * CLASSIFIED_AT_ONCE)

    assert rewrites.orchestrator.resume_once() == CLASSIFIED_AT_ONCE
    assert count(hf.store, "job") == CLASSIFIED_AT_ONCE
