"""A review waits for its deliveries, and is restored if it failed because one was missing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.clock import read_instant
from holdfast.operate.verify.run import verify
from holdfast_review.enums import ReviewProgress
from tests.apps_review.bench import ANN, BEN, Bench
from tests.outbox.scripted import DUMB, ScriptedChannel, letter, outbox_with
from tests.story import ORG, look

OPERATOR: dict[str, Any] = {"actor": "user:op", "role": "operator"}


def job_of(bench: Bench, job_id: str) -> tuple[State, int, str | None]:
    job = bench.hf.get(job_id, org_id=ORG)
    return job.state, job.attempt_count, job.error_class


def the_delivery(hf: Holdfast, state: str) -> str:
    (row,) = look(hf.store, "SELECT id FROM holdfast.delivery WHERE state = :state", state=state)
    return str(row["id"])


def work_for(bench: Bench, seconds: float) -> None:
    """Run at every time at which a job is due."""
    end = bench.clock.now() + timedelta(seconds=seconds)
    while bench.clock.now() < end:
        bench.work()
        due = look(bench.hf.store, "SELECT min(not_before_at) AS at FROM holdfast.job")[0]["at"]
        left = end - bench.clock.now()
        step = left if due is None else min(read_instant(due) - bench.clock.now(), left)
        bench.clock.advance(max(step, timedelta(milliseconds=1)))
    bench.work()


def is_clean(hf: Holdfast) -> bool:
    return not verify(hf.operate(actor="user:op", role="admin").context).violated


@pytest.mark.req("N-14", "R-31")
@pytest.mark.parametrize("word", ["unreachable", "rejected", "unauthorized"])
def test_a_mail_outage_costs_a_review_no_attempt(bench: Bench, word: str) -> None:
    bench.channel.otherwise = word
    asked = bench.submit(to=[ANN, BEN])

    work_for(bench, 40)
    during = job_of(bench, asked.review.job_id), bench.again(asked).word
    bench.channel.otherwise, bench.channel.fingerprint = "accepted", "key-2"
    bench.hf.outbox.reconcile()
    work_for(bench, 1_200)

    assert during == ((State.QUEUED, 0, None), ReviewProgress.IN_PROGRESS)
    assert job_of(bench, asked.review.job_id) == (State.COMPLETED, 0, None)
    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    assert sorted(bench.channel.accepted.values()) == [1, 1]
    assert is_clean(bench.hf)


@pytest.mark.req("N-14", "J-38")
def test_confirming_a_held_delivery_completes_the_review(hf: Holdfast, clock: FakeClock) -> None:
    bench = Bench(hf, clock, ScriptedChannel(clock, DUMB))
    bench.channel.script("lost_answer")
    asked = bench.submit()
    work_for(bench, 3 * 3_600)
    during = job_of(bench, asked.review.job_id), bench.again(asked).word

    hf.operate(**OPERATOR).deliveries.confirm(the_delivery(hf, "held"), reason="Ann has it")
    bench.work()

    assert during == ((State.QUEUED, 0, None), ReviewProgress.IN_PROGRESS)
    assert job_of(bench, asked.review.job_id) == (State.COMPLETED, 0, None)
    assert len(bench.channel.sends) == 1
    assert is_clean(hf)


@pytest.mark.req("N-14")
def test_resending_a_held_delivery_completes_the_review_when_it_is_sent(
    hf: Holdfast, clock: FakeClock
) -> None:
    bench = Bench(hf, clock, ScriptedChannel(clock, DUMB))
    bench.channel.script("lost_message")
    asked = bench.submit()
    bench.work()

    hf.operate(**OPERATOR).deliveries.resend(the_delivery(hf, "held"), reason="it never came")
    bench.work()

    assert job_of(bench, asked.review.job_id) == (State.COMPLETED, 0, None)
    assert len(bench.channel.taken) == 1


@pytest.mark.req("N-14", "N-16", "J-38")
@pytest.mark.parametrize("decision", ["resend", "confirm"])
def test_a_review_that_died_for_a_delivery_is_brought_back_when_that_is_marked(
    bench: Bench, decision: str
) -> None:
    bench.channel.script("refused")
    asked = bench.submit(to=[ANN, BEN])
    work_for(bench, 60)
    dead = bench.again(asked)
    died_as = bench.hf.get(asked.review.job_id, org_id=ORG).error_class

    desk = bench.hf.operate(**OPERATOR).deliveries
    getattr(desk, decision)(the_delivery(bench.hf, "failed"), reason="the address is right now")
    waiting = bench.again(asked)
    bench.clock.advance(minutes=2)
    bench.hf.outbox.reconcile()
    work_for(bench, 60)

    assert (dead.state, dead.word, died_as) == (
        State.FAILED,
        ReviewProgress.FAILED,
        "RECIPIENT_UNREACHABLE",
    )
    # A review that only waits for its delivery is retried; a restored one runs.
    expected = (
        ReviewProgress.RETRYABLE_FAILED if decision == "resend" else ReviewProgress.IN_PROGRESS
    )
    assert waiting.word is expected
    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    assert is_clean(bench.hf)
    events = look(
        bench.hf.store,
        "SELECT name, actor_type FROM holdfast.job_event WHERE name LIKE 'dead_letter.%'"
        " ORDER BY id",
    )
    steps = [row["name"] for row in events]
    assert steps == [
        f"dead_letter.{step}"
        for step in ("triaged", "remediated", "validated", "replay_requested", "replayed")
    ]


def test_a_posted_message_that_failed_brings_its_job_back_when_it_is_sent(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel = outbox_with(hf)
    channel.script("refused")
    hf.outbox.post([letter()], org_id=ORG)
    hf.worker().run_once()
    (dead,) = look(hf.store, "SELECT state, error_class FROM holdfast.job")

    desk = hf.operate(**OPERATOR).deliveries
    desk.resend(the_delivery(hf, "failed"), reason="the mailbox is back")
    clock.advance(minutes=2)
    hf.outbox.reconcile()
    hf.worker().run_once()

    assert (dead["state"], dead["error_class"]) == ("failed", "DELIVERY_FAILED")
    states = [row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job ORDER BY id")]
    assert states == ["failed", "completed"]
    assert len(channel.taken) == 1
    hf.outbox.reconcile()
    assert len(look(hf.store, "SELECT id FROM holdfast.job")) == 2
    assert is_clean(hf)


@pytest.mark.req("J-38")
def test_a_review_that_nothing_will_retry_is_not_called_retryable(bench: Bench) -> None:
    bench.failing["llm"] = 5
    asked = bench.submit()

    bench.work_out()

    failed = bench.again(asked)
    assert (failed.state, failed.word) == (State.FAILED, ReviewProgress.FAILED)
    assert failed.dead_letter_id == asked.review.job_id
