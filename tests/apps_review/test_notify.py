"""The notification of recipients: who gets it, once per version, and when the review is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.channel import slack
from holdfast_review.enums import ReviewProgress, Severity, SourceKind
from holdfast_review.failure import RecipientUnreachable
from holdfast_review.model import Finding, Review, Source
from holdfast_review.notify import finish_review
from holdfast_review.render import render
from holdfast_review.show import Told
from tests.apps_review.bench import ANN, BEN, CAT, FINDINGS, Bench
from tests.outbox.scripted import DUMB, ScriptedChannel
from tests.story import ORG, look

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def rows_of(bench: Bench, what: str, table: str = "delivery") -> list[Any]:
    found = look(bench.hf.store, f"SELECT {what} FROM holdfast.{table} ORDER BY recipient")
    return [tuple(row.values()) for row in found]


@pytest.mark.req("N-04", "N-05")
def test_every_recipient_has_one_row_under_the_changelist_and_the_version(bench: Bench) -> None:
    asked = bench.submit(4, to=[BEN, ANN, CAT])
    bench.work()

    assert rows_of(bench, "subject, recipient, version, state, is_required") == [
        ("changelist:cl-1", "ann", 4, "sent", 1),
        ("changelist:cl-1", "ben", 4, "sent", 1),
        ("changelist:cl-1", "cat", 4, "sent", 0),
    ]
    result = bench.hf.get(asked.review.job_id, org_id=ORG).result
    assert (result["recipients"], result["notified"], result["finding_count"]) == (3, 3, 2)


@pytest.mark.req("N-14", "N-07")
def test_a_review_is_done_only_when_every_required_recipient_is_notified(bench: Bench) -> None:
    bench.channel.script("rejected")
    asked = bench.submit(to=[ANN, BEN])

    bench.work()
    halfway = bench.again(asked)
    states = sorted(state for (state,) in rows_of(bench, "state"))
    bench.work_out()

    assert (halfway.state, halfway.word) == (State.QUEUED, ReviewProgress.IN_PROGRESS)
    assert states == ["pending", "sent"]
    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    # The first attempt notified this recipient, so the second did not.
    assert sorted(bench.channel.accepted.values()) == [1, 1]
    assert len(bench.channel.sends) == 3


@pytest.mark.req("N-14", "N-16")
def test_a_recipient_who_cannot_be_reached_leaves_the_others_served_and_a_dead_letter(
    bench: Bench,
) -> None:
    bench.channel.script("refused")
    asked = bench.submit(to=[ANN, BEN])

    bench.work_out()

    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    assert (job.state, job.stage) == (State.FAILED, "notify")
    assert job.error_class == "RECIPIENT_UNREACHABLE"
    assert sorted(state for (state,) in rows_of(bench, "state")) == ["failed", "sent"]
    letter = look(bench.hf.store, "SELECT sanitized_context FROM holdfast.dead_letter")[0]
    (failed,) = (one for one, state in rows_of(bench, "id, state") if state == "failed")
    assert str(failed) in str(letter["sanitized_context"])
    assert "example.org" not in str(letter["sanitized_context"])


@pytest.mark.req("N-14")
def test_who_is_not_required_holds_nothing_back(bench: Bench) -> None:
    other = ScriptedChannel(bench.clock, name="other")
    other.script("refused")
    bench.hf.outbox.use(bench.channel, other)
    asked = bench.submit(to=[ANN, replace(CAT, channel="other")])

    bench.work_out()

    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    assert rows_of(bench, "recipient, state") == [("ann", "sent"), ("cat", "failed")]


def test_a_review_without_recipients_is_done_when_it_is_criticised(bench: Bench) -> None:
    asked = bench.submit(to=[])

    bench.work()

    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    assert bench.channel.sends == []


@pytest.mark.req("N-17")
def test_a_lost_answer_is_looked_up_before_anything_is_sent_again(bench: Bench) -> None:
    bench.channel.script("lost_answer")
    asked = bench.submit()

    bench.work_out()

    assert bench.again(asked).word is ReviewProgress.SUCCEEDED
    assert len(bench.channel.sends) == 1
    assert len(bench.channel.lookups) == 1


@pytest.mark.req("N-14")
def test_without_a_lookup_a_delivery_is_held_and_not_sent_again(
    hf: Holdfast, clock: FakeClock
) -> None:
    bench = Bench(hf, clock, ScriptedChannel(clock, DUMB))
    bench.channel.script("lost_answer")
    asked = bench.submit()

    bench.work_out()

    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    assert (job.state, job.attempt_count, job.error_class) == (State.QUEUED, 0, None)
    assert rows_of(bench, "state") == [("held",)]
    assert len(bench.channel.sends) == 1


def test_an_address_is_let_go_when_the_delivery_holds_it(bench: Bench) -> None:
    bench.submit(to=[ANN])
    before = rows_of(bench, "address", "review_recipient")

    bench.work()

    assert before == [("ann@example.org",)]
    assert rows_of(bench, "address", "review_recipient") == [(None,)]
    assert rows_of(bench, "address") == [("ann@example.org",)]
    for place in ("job", "job_event", "job_stage"):
        assert "example.org" not in str(look(bench.hf.store, f"SELECT * FROM holdfast.{place}"))


# -- what the deliveries mean for the stage


def review() -> Review:
    return Review(
        review_id="r1",
        org_id=ORG,
        changelist_id="cl-1",
        review_version=2,
        job_id="j1",
        state=State.PROCESSING,
        word=ReviewProgress.IN_PROGRESS,
        source=Source(SourceKind.PATCH),
        idempotency_key="k",
        created_at=NOW,
        finding_count=0,
    )


def told(state: str) -> Told:
    return Told(
        recipient="ann",
        channel="post",
        is_required=True,
        state=state,
        reason=None,
        attempts=1,
        notified_at=NOW if state == "sent" else None,
        notification_id=None,
        delivery_id="d1",
    )


@pytest.mark.parametrize(
    "states", [["failed"], ["dropped"], ["erased"], ["held", "failed", "sent"]], ids=str
)
def test_a_finished_review_without_notification_needs_an_operator(states: list[str]) -> None:
    with pytest.raises(RecipientUnreachable):
        finish_review(review(), [told(state) for state in states])


def test_no_operator_is_needed_while_a_recipient_may_still_be_notified(bench: Bench) -> None:
    bench.channel.script("refused", "rejected")
    asked = bench.submit(to=[ANN, BEN])

    bench.work()
    job = bench.hf.get(asked.review.job_id, org_id=ORG)
    bench.work_out()

    assert (job.state, job.attempt_count) == (State.QUEUED, 0)
    assert bench.hf.get(asked.review.job_id, org_id=ORG).error_class == "RECIPIENT_UNREACHABLE"


# -- the text of the notification


@pytest.mark.req("N-08")
def test_the_same_review_is_always_the_same_message() -> None:
    assert render(review(), "Two.", FINDINGS).hash == render(review(), "Two.", FINDINGS).hash


def test_what_a_change_says_is_shown_and_does_not_act() -> None:
    nasty = Finding(
        "a.py\r\nBcc: x@example.org",
        1,
        Severity.HIGH,
        "<script>alert(1)</script>\x1b[2J\u202eevil\nsecond line",
    )

    content = render(review(), "<img src=x>", [nasty])

    assert "\n" not in content.subject
    assert "<script>" not in str(content.html)
    assert "<img" not in str(content.html)
    assert "&lt;script&gt;" in str(content.html)
    assert "\x1b" not in content.text + str(content.html)
    assert "\u202e" not in content.text + str(content.html)
    assert "\nBcc:" not in content.text
    assert "second line" in content.text


def test_a_message_shows_the_most_severe_and_counts_the_rest() -> None:
    many = [Finding(f"f{at}.py", at + 1, Severity.LOW, "x" * 400) for at in range(500)]

    content = render(review(), "", many)

    assert "f49.py" in content.text
    assert "f50.py" not in content.text
    assert "450 more are with the review" in content.text
    assert content.data["finding_count"] == 500


@pytest.mark.parametrize("letter", ["x", "<", "&", "\u202e", "\n"])
def test_a_long_message_fits_into_every_channel_and_counts_what_it_leaves_out(letter: str) -> None:
    many = [Finding(letter * 900, at, Severity.LOW, letter * 9_000) for at in range(1, 200)]

    content = render(review(), letter * 4_000, many)

    shown = content.text.count("(confidence")
    assert 0 < shown < 50
    assert str(content.html).count("(confidence") == shown
    assert f"{199 - shown} more are with the review" in content.text
    assert len(slack.written(content.subject, content.text)) <= slack.LONGEST_TEXT


def test_a_clean_review_says_so() -> None:
    content = render(review(), "", [])

    assert content.subject == "Review of cl-1 (version 2): clean"
    assert "Nothing was found." in content.text
