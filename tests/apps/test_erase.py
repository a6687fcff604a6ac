"""Erase, export and retention: texts go when they must, and whom they belong to gets them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Forbidden
from holdfast.errors import RuleBroken
from holdfast.operate.authorization import OperatorContext
from holdfast_rewrite.erase import erase_data
from holdfast_rewrite.export import export_data
from holdfast_rewrite.failure import InvalidRewrite
from holdfast_rewrite.finish import finish_once
from holdfast_rewrite.settings import RewriteSettings
from holdfast_rewrite.show import list_received
from holdfast_rewrite.text_retention import count_overdue, forget_once
from holdfast_rewrite.work import RewriteWork
from tests.apps.planted import (
    HOME,
    ORIGINAL,
    OTHER_HOME,
    RECIPIENT,
    REWRITE,
    SENDER,
    STRANGER,
    Planted,
    Stage,
    plant_queued,
)
from tests.story import by_hand, look

TABLES = (
    "rewrite_request",
    "rewrite_message",
    "rewrite_output",
    "recipient_preference_snapshot",
    "job",
    "job_event",
)
SETTINGS = RewriteSettings(keep_original_days=30, keep_rewritten_days=365)


def admin(stage: Stage, org_id: str | None = None) -> OperatorContext:
    return stage.hf.operate(actor="user:admin", role="admin", org_id=org_id).context


def all_text(stage: Stage) -> str:
    return str(
        [
            dict(row)
            for name in TABLES
            for row in look(stage.store, f"SELECT * FROM holdfast.{name}")
        ]
    )


def settle_in(stage: Stage, home: str, *users: str) -> None:
    """Let them live in a home, with an answer each."""
    by_hand(stage.store, "INSERT INTO holdfast.home VALUES (:home, {now})", home=home)
    for user in users:
        by_hand(
            stage.store,
            "INSERT INTO holdfast.home_member (org_id, user_id, role, locale, joined_at,"
            " updated_at) VALUES (:home, :who, 'housemate', 'en', {now}, {now})",
            home=home,
            who=user,
        )
        by_hand(
            stage.store,
            "INSERT INTO holdfast.preference_answer"
            " VALUES (:home, :who, 'communication_directness', 'gentle', {now})",
            home=home,
            who=user,
        )


def told(stage: Stage, name: str) -> list[dict[str, Any]]:
    rows = look(
        stage.store, "SELECT * FROM holdfast.job_event WHERE name = :name ORDER BY id", name=name
    )
    return [dict(row) for row in rows]


# -- erase


def test_what_a_sender_wrote_and_what_became_of_it_is_gone_and_the_ids_stay(stage: Stage) -> None:
    settle_in(stage, HOME, SENDER, RECIPIENT)
    planted = stage.plant()
    stage.answer()
    other = stage.plant("Please keep the fridge tidy.", sender=STRANGER)
    stage.answer({"rewritten_text": "Could you keep the fridge tidy?", "output_language": "en"})

    erased = erase_data(admin(stage), user_id=SENDER, reason="asked by the person")

    assert (erased.requests, erased.members, erased.answers) == (1, 1, 1)
    left = all_text(stage)
    assert ORIGINAL not in left
    assert REWRITE not in left
    assert "fridge tidy" in left
    row = stage.row(planted)
    assert (row["status"], row["sender_user_id"]) == ("completed", SENDER)
    assert row["context_pack"] is None
    assert row["request_hash"] is not None
    assert stage.row(other)["erased_at"] is None
    assert [event["actor_id"] for event in told(stage, "rewrite_erased")] == ["admin"]
    (end,) = told(stage, "rewrite_data_erased")
    assert json.loads(end["detail"])["reason"] == "asked by the person"
    assert list_received(stage.store, home_id=HOME, user_id=RECIPIENT)[0].rewritten_text.startswith(
        "Could you keep"
    )


def test_a_recipients_erasure_takes_what_was_known_of_them(stage: Stage) -> None:
    settle_in(stage, HOME, RECIPIENT)
    stage.plant()
    stage.answer()

    erase_data(admin(stage), user_id=RECIPIENT, home_id=HOME, reason="left")

    assert look(stage.store, "SELECT * FROM holdfast.recipient_preference_snapshot") == []
    assert look(stage.store, "SELECT * FROM holdfast.preference_answer") == []
    assert "gentle" not in all_text(stage)
    (left,) = look(stage.store, "SELECT context_pack, policy FROM holdfast.rewrite_request")
    assert (left["context_pack"], left["policy"]) == (None, None)


def test_a_home_is_erased_whole_and_the_next_one_stays(stage: Stage) -> None:
    settle_in(stage, HOME, SENDER, RECIPIENT)
    settle_in(stage, OTHER_HOME, STRANGER)
    stage.plant()
    stage.answer()
    stage.plant("Please lock the door at night.", home=OTHER_HOME)

    erased = erase_data(admin(stage), home_id=HOME, reason="moved out")

    assert (erased.requests, erased.members) == (1, 2)
    left = look(stage.store, "SELECT org_id FROM holdfast.home")
    assert [row["org_id"] for row in left] == [OTHER_HOME]
    assert "lock the door" in all_text(stage)


def test_an_erasure_continues_in_pages_and_is_safe_to_repeat(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_rewrite.erase.PAGE", 2)
    for number in range(5):
        stage.plant(f"Please take out the bins, number {number}.")
    stage.answer()

    first = erase_data(admin(stage), home_id=HOME, reason="asked")
    second = erase_data(admin(stage), home_id=HOME, reason="asked")

    assert (first.requests, second.requests) == (5, 0)
    assert len(told(stage, "rewrite_erased")) == 5
    assert "bins" not in all_text(stage)


def test_a_rewrite_under_way_ends_without_output_when_its_text_is_erased(stage: Stage) -> None:
    waiting = stage.plant(delay=timedelta(minutes=10))
    at_provider = stage.plant("Please keep the noise down.", sender=STRANGER)
    stage.submit()
    erase_data(admin(stage), home_id=HOME, reason="asked")
    stage.clock.advance(minutes=15)

    stage.answer()

    for one in (waiting, at_provider):
        job = stage.job(one)
        assert (job.state, job.error_class) == ("failed", "TEXT_ERASED")
        assert stage.row(one)["status"] == "failed"
    assert stage.outputs() == []


def test_a_kept_answer_of_a_provider_goes_with_the_text(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage.plant()
    stage.submit()
    stage.clock.advance(minutes=15)
    monkeypatch.setattr(RewriteWork, "accept", lambda *_: {}["bug"])
    stage.answer()
    kept = look(stage.store, "SELECT job_id FROM holdfast.batch_answer")
    assert [row["job_id"] for row in kept] == [one.job_id]

    erase_data(admin(stage), home_id=HOME, reason="asked")

    assert look(stage.store, "SELECT job_id FROM holdfast.batch_answer") == []


def test_a_request_that_has_no_job_yet_ends_with_its_erasure(stage: Stage) -> None:
    request = stage.request()
    plant_queued(stage.store, request)
    planted = Planted(request, "")

    erase_data(admin(stage), user_id=SENDER, reason="asked")
    finish_once(stage.store, reveal_delay=timedelta(days=1))

    row = stage.row(planted)
    assert (row["step"], row["failure_code"]) == ("failed", "erased")
    assert stage.told(planted) == ["rewrite_erased", "rewrite_failed"]


def test_an_answer_that_was_judged_before_the_erasure_is_not_stored_after_it(
    stage: Stage,
) -> None:
    planted = stage.plant()
    stage.submit()
    stage.say()
    stage.provider.complete()
    work = stage.hf.registry.get("complaint_rewrite").work
    accept = work.accept

    def accept_late(item: Any, reply: Any) -> Any:
        kept = accept(item, reply)
        erase_data(admin(stage), home_id=HOME, reason="in the very moment")
        return kept

    object.__setattr__(
        stage.hf.registry.handlers["complaint_rewrite"], "work", _Late(work, accept_late)
    )
    stage.collect()

    assert stage.job(planted).state == "failed"
    assert stage.outputs() == []
    assert REWRITE not in all_text(stage)


class _Late:
    def __init__(self, work: Any, accept: Any) -> None:
        self.load, self.request, self.accept = work.load, work.request, accept


def test_erased_text_is_not_restored(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    erase_data(admin(stage), home_id=HOME, reason="asked")

    for what in (
        "rewrite_request SET rewrite_request = '{}'",
        "rewrite_request SET erased_at = NULL",
        "rewrite_message SET original_text = 'Again.', erased_at = NULL",
        "rewrite_output SET rewritten_text = 'Again.', erased_at = NULL",
    ):
        with pytest.raises(RuleBroken):
            by_hand(stage.store, f"UPDATE holdfast.{what}")
    assert stage.row(planted)["erased_at"] is not None


def test_only_an_admin_erases_and_exports_and_a_refusal_is_on_record(stage: Stage) -> None:
    stage.plant()
    operator = stage.hf.operate(actor="user:op", role="operator", org_id=HOME).context

    with pytest.raises(Forbidden):
        erase_data(operator, user_id=SENDER, home_id=HOME, reason="x")
    with pytest.raises(Forbidden):
        export_data(operator, home_id=HOME)
    with pytest.raises(Forbidden):
        # Of every home, by somebody who acts for one.
        erase_data(admin(stage, HOME), user_id=SENDER, reason="x")

    assert len(told(stage, "operator.refused")) == 3
    assert ORIGINAL in all_text(stage)


def test_an_erasure_says_whose_and_why(stage: Stage) -> None:
    for bad in (
        {"reason": "x"},
        {"user_id": "me", "reason": "x"},
        {"user_id": SENDER, "reason": " "},
    ):
        with pytest.raises(InvalidRewrite):
            erase_data(admin(stage), **bad)


# -- export


def test_a_person_gets_what_is_theirs_and_no_word_of_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_rewrite.export.PAGE", 1)
    settle_in(stage, HOME, SENDER, RECIPIENT)
    stage.plant()
    stage.plant("Please take the bins out tonight, all of them.")
    stage.answer()
    finish_once(stage.store, reveal_delay=timedelta(days=1))

    mine = list(export_data(admin(stage), user_id=SENDER))
    theirs = list(export_data(admin(stage), user_id=RECIPIENT))
    stage.clock.advance(days=1)
    later = list(export_data(admin(stage), user_id=SENDER, home_id=HOME))

    assert [one["kind"] for one in mine] == ["membership", "answer", "sent", "sent"]
    assert {one.get("original_text") for one in mine[2:]} == {
        ORIGINAL,
        "Please take the bins out tonight, all of them.",
    }
    assert REWRITE not in str(mine)
    assert [one["kind"] for one in theirs] == [
        "membership", "answer", "preferences_used", "received", "received",
    ]  # fmt: skip
    assert REWRITE in str(theirs)
    assert ORIGINAL not in str(theirs)
    assert SENDER not in str(theirs)
    assert REWRITE in str(later)
    assert json.dumps(later)
    assert len(told(stage, "rewrite_data_exported")) == 3


def test_of_a_message_that_never_reached_them_a_person_gets_what_was_known_of_them_alone(
    stage: Stage,
) -> None:
    settle_in(stage, HOME, RECIPIENT)
    planted = stage.plant()

    found = list(export_data(admin(stage), user_id=RECIPIENT))

    assert [one["kind"] for one in found] == ["membership", "answer", "preferences_used"]
    assert found[-1]["preference_payload"]
    assert planted.request.rewrite_request_id not in json.dumps(found)


def test_the_sender_learns_the_language_of_a_rewrite_with_the_rewrite(stage: Stage) -> None:
    stage.plant()
    stage.answer()
    finish_once(stage.store, reveal_delay=timedelta(days=1))
    (early,) = export_data(admin(stage), user_id=SENDER)
    stage.clock.advance(days=1)
    (late,) = export_data(admin(stage), user_id=SENDER)

    assert (early["output_language"], late["output_language"]) == (None, "en")


def test_a_home_gets_everything_and_an_erased_one_nothing_of_texts(stage: Stage) -> None:
    settle_in(stage, HOME, SENDER, RECIPIENT)
    stage.plant()
    stage.answer()

    whole = list(export_data(admin(stage), home_id=HOME))
    erase_data(admin(stage), home_id=HOME, reason="asked")
    after = list(export_data(admin(stage), home_id=HOME))

    assert ORIGINAL in str(whole)
    assert REWRITE in str(whole)
    assert [one["kind"] for one in whole].count("membership") == 2
    assert [one["kind"] for one in after] == ["rewrite"]
    assert ORIGINAL not in str(after)
    assert REWRITE not in str(after)


# -- retention


def test_each_kind_of_text_is_kept_for_its_own_time(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    stage.clock.advance(days=29)
    early = forget_once(stage.store, SETTINGS, limit=10)
    stage.clock.advance(days=1)
    pending = count_overdue(stage.store, SETTINGS, most=10)
    originals = forget_once(stage.store, SETTINGS, limit=10)
    after_a_month = all_text(stage)
    stage.clock.advance(days=335)
    rewrites = forget_once(stage.store, SETTINGS, limit=10)
    again = forget_once(stage.store, SETTINGS, limit=10)

    assert (early, pending, originals, rewrites, again) == (0, 1, 1, 1, 0)
    assert ORIGINAL not in after_a_month
    assert REWRITE in after_a_month
    assert REWRITE not in all_text(stage)
    assert stage.row(planted)["context_pack"] is not None
    kinds = [json.loads(one["detail"])["text"] for one in told(stage, "rewrite_forgotten")]
    assert kinds == ["original", "rewritten"]


def test_the_text_of_a_rewrite_under_way_is_not_forgotten(stage: Stage) -> None:
    stage.plant()
    stage.clock.advance(days=400)

    assert forget_once(stage.store, SETTINGS, limit=10) == 0
    assert ORIGINAL in all_text(stage)


def test_a_retention_pass_is_bounded_and_the_next_one_continues(stage: Stage) -> None:
    for number in range(3):
        stage.plant(f"Please take out the bins, number {number}.")
    stage.answer()
    stage.clock.advance(days=400)

    taken = [forget_once(stage.store, SETTINGS, limit=2) for _ in range(4)]

    assert taken == [2, 2, 2, 0]
