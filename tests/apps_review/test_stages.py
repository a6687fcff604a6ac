"""The stages of a review: each has its own attempts, and a completed stage is not repeated."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast import State
from holdfast.document import decode
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.retry import CRITIC
from holdfast_review.enums import ReviewProgress
from holdfast_review.model import Criticism
from tests.apps_review.bench import ANN, BEN, FINDINGS, Bench
from tests.engine.faulty import Died
from tests.failpoints import OutboxPoint as Point
from tests.failpoints import install
from tests.operate.letters import operator, replay
from tests.story import ORG, SQL, look


@pytest.mark.req("S-01", "S-03", "K-08")
def test_a_review_has_three_stages_of_five_attempts_and_the_critics_backoff(bench: Bench) -> None:
    stages = bench.hf.registry.get("review.process").stages

    assert [stage.name for stage in stages] == ["fetch", "llm", "notify"]
    assert {(stage.max_attempts, stage.retry) for stage in stages} == {(5, CRITIC)}


@pytest.mark.req("J-38")
def test_the_word_goes_from_in_progress_over_failed_to_succeeded(bench: Bench) -> None:
    bench.failing["llm"] = 1
    asked = bench.submit()
    words = [asked.review.word]

    bench.work()
    words.append(bench.again(asked).word)
    bench.clock.advance(minutes=2)
    bench.work()
    words.append(bench.again(asked).word)

    assert words == [
        ReviewProgress.IN_PROGRESS,
        ReviewProgress.RETRYABLE_FAILED,
        ReviewProgress.SUCCEEDED,
    ]


@pytest.mark.req("S-02", "S-04", "S-05", "S-06", "D-17", "J-38")
def test_llm_fails_five_times_and_the_replay_begins_there(bench: Bench) -> None:
    bench.failing["llm"] = 5
    asked = bench.submit()
    bench.work_out()

    failed = bench.again(asked)
    letter = bench.hf.store.read(
        lambda tx: tx.one(SQL.find_dead_letter, org_id=ORG, job_id=asked.review.job_id)
    )
    assert (bench.calls["fetch"], bench.calls["llm"]) == (1, 5)
    assert (failed.state, failed.word) == (State.FAILED, ReviewProgress.FAILED)
    assert failed.dead_letter_id == asked.review.job_id
    assert (letter["stage"], letter["attempts"]) == ("llm", 5)

    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    replay_id = replay(operator(bench.hf), job)
    assert bench.again(asked).word is ReviewProgress.IN_PROGRESS
    bench.work_out()

    done = bench.again(asked)
    assert (done.word, done.job_id, done.dead_letter_id) == (
        ReviewProgress.SUCCEEDED,
        replay_id,
        None,
    )
    assert (bench.calls["fetch"], bench.calls["llm"]) == (1, 6)
    assert len(bench.channel.sends) == 1


@pytest.mark.req("S-04")
def test_failures_of_fetch_leave_llm_its_five_attempts(bench: Bench) -> None:
    bench.failing.update(fetch=4, llm=4)
    asked = bench.submit()

    bench.work_out()

    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    assert bench.calls == {"fetch": 5, "llm": 5}


@pytest.mark.req("I-18", "N-10", "N-11")
@pytest.mark.parametrize("point", list(Point))
def test_a_worker_that_dies_while_telling_leaves_what_the_next_one_resolves(
    bench: Bench, point: Point
) -> None:
    died: list[Point] = []

    def die(reached: Point) -> None:
        if reached is point:
            stop()
            died.append(reached)
            raise Died

    stop = install(bench.hf, Point, die)
    asked = bench.submit(to=[ANN, BEN])
    if point is Point.AFTER_LOOKUP:
        bench.channel.script("lost_answer", "lost_answer")
    for _ in range(60):
        with suppress(Died):
            bench.work()
        rescue_jobs(bench.hf.store, limit=10)
        if bench.again(asked).word is ReviewProgress.SUCCEEDED:
            break
        bench.clock.advance(minutes=2)

    assert (bench.again(asked).word, died) == (ReviewProgress.SUCCEEDED, [point])
    assert sorted(bench.channel.accepted.values()) == [1, 1]


@pytest.mark.req("N-07", "N-11")
def test_a_replay_two_days_later_sends_nothing_that_was_taken(bench: Bench) -> None:
    # One recipient gets the message, the other has an invalid address.
    bench.channel.script("accepted", "refused")
    asked = bench.submit(to=[ANN, BEN])
    bench.work_out()
    assert bench.again(asked).word is ReviewProgress.FAILED
    sent = len(bench.channel.sends)

    bench.clock.advance(days=2)
    replay(operator(bench.hf), bench.hf.get(asked.review.job_id, org_id=ORG))
    bench.work_out()

    assert len(bench.channel.sends) == sent
    assert sorted(bench.channel.accepted.values()) == [1]
    assert bench.again(asked).state is State.FAILED


def test_a_full_restart_after_a_notification_finds_nothing_else(bench: Bench) -> None:
    bench.channel.script("accepted", "refused")
    asked = bench.submit(to=[ANN, BEN])
    bench.work_out()
    before = bench.reviews.find(asked.review.review_id, org_id=ORG).findings

    bench.findings = ()
    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    replay(operator(bench.hf), job, full_restart=True)
    bench.work_out()

    assert bench.reviews.find(asked.review.review_id, org_id=ORG).findings == before
    assert (bench.calls["fetch"], bench.calls["llm"]) == (2, 1)


def test_a_critic_that_is_asked_again_says_again_what_it_finds(bench: Bench) -> None:
    real = bench.reviews._criticise

    asked = bench.submit()
    stage = bench.hf.registry.handlers["review.process"].stages[1]
    died: list[bool] = []

    def die_once(job: object, payload: object) -> object:
        found = real(job, payload)  # type: ignore[arg-type]
        if not died:
            died.append(True)
            raise Died
        return found

    object.__setattr__(stage, "function", die_once)
    with pytest.raises(Died):
        bench.work()
    bench.findings = bench.findings[:1]
    bench.clock.advance(seconds=61)
    rescue_jobs(bench.hf.store, limit=10)
    bench.work_out()

    shown = bench.reviews.find(asked.review.review_id, org_id=ORG)
    assert (shown.review.word, len(shown.findings)) == (ReviewProgress.SUCCEEDED, 1)
    assert shown.review.finding_count == 1


def test_a_canceled_review_has_no_result_and_sends_no_notification(bench: Bench) -> None:
    asked = bench.submit()

    bench.hf.cancel(asked.review.job_id, org_id=ORG, reason="not now")
    bench.work_out()

    assert (bench.again(asked).state, bench.again(asked).word) == (State.CANCELED, None)
    assert bench.channel.sends == []


def test_findings_are_kept_with_the_most_severe_first(bench: Bench) -> None:
    asked = bench.submit()
    bench.work_out()

    rows = look(
        bench.hf.store,
        "SELECT number, severity, file, line FROM holdfast.finding ORDER BY number",
    )
    assert [(row["number"], row["severity"], row["line"]) for row in rows] == [
        (1, "critical", 40),
        (2, "low", 12),
    ]
    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    assert "checked" not in str(job.record), "the job holds counts, no text"
    assert bench.clock.now() - bench.again(asked).created_at < timedelta(days=1)


def test_what_was_not_kept_of_an_answer_is_counted(bench: Bench) -> None:
    bench.reviews._criticise_change = lambda *given: Criticism(
        FINDINGS, "", {"dropped": 3, "left_out": 4}
    )
    bench.submit()
    bench.work_out()

    (row,) = look(bench.hf.store, "SELECT output FROM holdfast.job_stage WHERE stage = 'llm'")
    said = decode(row["output"])
    assert (said["finding_count"], said["dropped"], said["left_out"]) == (2, 3, 4)
