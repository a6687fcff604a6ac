"""One full reframe a sender and ISO week: looked at, and held by a unique index."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.job import SYSTEM
from holdfast.errors import RuleBroken
from holdfast_rewrite import enqueue_rewrites, orchestrate
from holdfast_rewrite.directory import SqlDirectory
from holdfast_rewrite.enums import HomeRole, Status, Strength
from holdfast_rewrite.rewrites import Rewrites
from holdfast_rewrite.validation import Answer
from tests.apps.household import (
    HOME,
    OTHER_HOME,
    RECIPIENT,
    SENDER,
    Heard,
    count,
    furnish,
    request_row,
    result_of,
    rewriting,
    submission,
    told,
)
from tests.story import by_hand


@pytest.fixture
def heard() -> Heard:
    return Heard(result_of(Strength.FULL_REFRAME))


def codes(hf: Holdfast, *answers: Answer) -> list[str | None]:
    return [request_row(hf.store, item.rewrite_request_id)["failure_code"] for item in answers]


def test_a_second_full_reframe_of_a_week_fails_and_a_light_touch_does_not(
    rewrites: Rewrites, hf: Holdfast, heard: Heard
) -> None:
    first, second = rewrites.submit(submission()), rewrites.submit(submission())
    heard.result = result_of(Strength.LIGHT_TOUCH)
    third = rewrites.submit(submission())

    assert [item.status for item in (first, second, third)] == ["queued", "failed", "queued"]
    assert codes(hf, first, second, third) == [None, "cadence", None]
    row = request_row(hf.store, second.rewrite_request_id)
    assert (row["rewrite_strength"], row["context_pack"]) == ("full_reframe", None)
    assert [event["name"] for event in told(hf.store, second.rewrite_request_id)] == [
        "rewrite_received",
        "rewrite_queued",
        "rewrite_classified",
        "rewrite_failed",
    ]
    assert count(hf.store, "job") == 2


def test_the_week_begins_on_monday_at_midnight_in_utc(
    rewrites: Rewrites, hf: Holdfast, clock: FakeClock
) -> None:
    # Monday 09:00 is where the clock stands.
    first = rewrites.submit(submission())
    clock.advance(days=6, hours=14, minutes=59, seconds=59)
    late = rewrites.submit(submission())
    clock.advance(seconds=1)
    monday = rewrites.submit(submission())

    assert codes(hf, first, late, monday) == [None, "cadence", None]


def test_late_feedback_counts_for_the_week_it_is_about(rewrites: Rewrites, hf: Holdfast) -> None:
    this = rewrites.submit(submission())
    last = rewrites.submit(submission(feedback_cycle_start="2025-12-29"))
    again = rewrites.submit(submission(feedback_cycle_start="2025-12-29"))

    assert codes(hf, this, last, again) == [None, None, "cadence"]


def test_a_sender_of_two_homes_has_one_a_week_and_another_sender_their_own(
    rewrites: Rewrites, hf: Holdfast
) -> None:
    directory = rewrites.directory
    assert isinstance(directory, SqlDirectory)
    directory.add_home(OTHER_HOME)
    directory.add_member(OTHER_HOME, SENDER, role=HomeRole.OWNER)
    directory.add_member(OTHER_HOME, RECIPIENT, role=HomeRole.HOUSEMATE)
    answers = rewrites.submit_many(
        [
            submission(),
            submission(home_id=OTHER_HOME),
            submission(sender_user_id=RECIPIENT, recipient_user_id=SENDER),
        ]
    )

    assert codes(hf, *answers) == [None, "cadence", None]


def test_of_many_at_once_the_first_has_the_week_and_nothing_is_tried_twice(
    rewrites: Rewrites, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def counted(tx: Any, hf: Any, decisions: Any, **given: Any) -> Any:
        tried.append(len(decisions))
        return enqueue_rewrites.enqueue_rewrites(tx, hf, decisions, **given)

    monkeypatch.setattr(orchestrate, "enqueue_rewrites", counted)
    answers = rewrites.submit_many([submission(f"Please, {n}") for n in "abc"])
    later = rewrites.submit_many([submission("Please, d"), submission("Please, e")])

    assert codes(hf, *answers, *later) == [None, "cadence", "cadence", "cadence", "cadence"]
    assert tried == [3, 2]


def test_a_failed_or_canceled_one_frees_the_week(rewrites: Rewrites, hf: Holdfast) -> None:
    first = rewrites.submit(submission())
    assert first.job_id is not None
    hf.cancel(first.job_id, org_id=HOME, actor=SYSTEM, reason="a test")
    second = rewrites.submit(submission())

    assert request_row(hf.store, first.rewrite_request_id)["status"] == "canceled"
    assert codes(hf, second, rewrites.submit(submission())) == [None, "cadence"]


def test_the_database_enforces_the_cadence(rewrites: Rewrites, hf: Holdfast) -> None:
    rewrites.submit(submission())
    second = rewrites.submit(submission())

    with pytest.raises(RuleBroken):
        by_hand(
            hf.store,
            "INSERT INTO holdfast.rewrite_request (org_id, rewrite_request_id, sender_user_id,"
            " recipient_user_id, surface, iso_week_year, iso_week, step, status, rewrite_strength,"
            " request_id, correlation_id, created_at, updated_at)"
            " SELECT org_id, :id, sender_user_id, recipient_user_id, surface,"
            " iso_week_year, iso_week, 'queued', 'queued', 'full_reframe', 'r', 'c', {now}, {now}"
            " FROM holdfast.rewrite_request WHERE rewrite_request_id = :other"
            " RETURNING rewrite_request_id",
            id="0198c0de-0000-7000-8000-0000000000d1",
            other=second.rewrite_request_id,
        )


def test_two_orchestrators_at_the_same_time_let_one_pass(url: str, clock: FakeClock) -> None:
    meet = threading.Barrier(2, timeout=20)
    made = []
    for seed in (1, 2):
        hf = rewriting(url, clock)
        hf.ids._rng.seed(seed)
        heard = Heard(result_of(Strength.FULL_REFRAME), meanwhile=meet.wait)
        made.append(Rewrites(hf, classifier=heard))
    furnish(made[0])
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda rewrites: rewrites.submit(submission()), made))

    hf = made[0].hf
    assert sorted(item.status for item in answers) == ["failed", "queued"]
    assert sorted(map(str, codes(hf, *answers))) == ["None", "cadence"]
    assert count(hf.store, "job") == 1
    for rewrites in made:
        rewrites.hf.close()


def test_who_looked_before_the_other_wrote_is_held_by_the_index(
    postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one writer at a time, so no other connection can read in between."""
    meet = threading.Barrier(2, timeout=20)
    plain, looks = enqueue_rewrites._hold_cadence, []

    def look_together(tx: Any, decisions: Any) -> Any:
        found = plain(tx, decisions)
        looks.append(1)
        if len(looks) <= 2:
            meet.wait()
        return found

    monkeypatch.setattr(enqueue_rewrites, "_hold_cadence", look_together)
    made = []
    for seed in (1, 2):
        hf = rewriting(postgres_url, clock)
        hf.ids._rng.seed(seed)
        made.append(Rewrites(hf, classifier=Heard(result_of(Strength.FULL_REFRAME))))
    furnish(made[0])
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda rewrites: rewrites.submit(submission()), made))

    hf = made[0].hf
    assert len(looks) == 3
    assert sorted(item.status for item in answers) == [Status.FAILED, Status.QUEUED]
    assert sorted(map(str, codes(hf, *answers))) == ["None", "cadence"]
    for rewrites in made:
        rewrites.hf.close()
