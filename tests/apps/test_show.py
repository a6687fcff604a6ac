"""Show: a sender sees the status, a recipient the rewrite, an operator everything but text."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Forbidden
from holdfast.clock import read_instant
from holdfast.store import open_store
from holdfast_rewrite.failure import InvalidRewrite, RewriteNotFound
from holdfast_rewrite.finish import finish_once
from holdfast_rewrite.show import (
    Received,
    Sent,
    find_record,
    find_sent,
    list_received,
    list_sent,
)
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
)
from tests.engine.planting import plant
from tests.story import look


def sent(stage: Stage, planted: Planted) -> Sent:
    return find_sent(stage.store, planted.id, home_id=HOME, user_id=SENDER)


@pytest.mark.req("F-02")
@pytest.mark.req("F-03")
@pytest.mark.req("F-04")
def test_a_sender_sees_states_from_the_database_and_no_word_of_how_they_come_about(
    stage: Stage, url: str
) -> None:
    # A frontend's own connection: it knows no job type, no worker and no provider.
    frontend = open_store(url, clock=stage.clock)
    planted = stage.plant()

    def status() -> str:
        return find_sent(frontend, planted.id, home_id=HOME, user_id=SENDER).status

    seen = [status()]
    stage.submit()
    seen.append(status())
    stage.say()
    stage.provider.complete()
    stage.collect()
    seen.append(status())
    frontend.close()

    assert seen == ["queued", "processing", "completed"]
    assert {item.name for item in fields(Sent)} == {
        "rewrite_request_id",
        "status",
        "created_at",
        "completed_at",
        "sender_reveal_at",
        "has_failed",
        "rewritten_text",
        "output_language",
    }


def test_a_sender_reads_the_rewrite_after_its_day_and_never_the_original(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    done = sent(stage, planted)
    finish_once(stage.store, reveal_delay=timedelta(days=1))
    stage.clock.advance(hours=23, minutes=59)
    early = sent(stage, planted)
    stage.clock.advance(minutes=1)
    due = sent(stage, planted)

    assert (done.rewritten_text, early.rewritten_text) == (None, None)
    assert early.sender_reveal_at is not None
    assert due.rewritten_text == REWRITE
    assert ORIGINAL not in repr(due)
    assert REWRITE not in repr(due)


@pytest.mark.req("X-05")
@pytest.mark.req("J-32")
def test_a_sender_learns_that_it_failed_and_not_why(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer({"rewritten_text": "Das ist Deutsch.", "output_language": "de"})

    found = sent(stage, planted)

    assert (found.status, found.has_failed, found.rewritten_text) == ("failed", True, None)
    assert "LANGUAGE" not in repr(found)


@pytest.mark.req("X-01")
def test_only_the_participants_see_what_was_sent(stage: Stage) -> None:
    planted = stage.plant()

    for home, user in ((HOME, RECIPIENT), (HOME, STRANGER), (OTHER_HOME, SENDER)):
        with pytest.raises(RewriteNotFound):
            find_sent(stage.store, planted.id, home_id=home, user_id=user)
        assert list_sent(stage.store, home_id=home, user_id=user) == []
    assert len(list_sent(stage.store, home_id=HOME, user_id=SENDER)) == 1


@pytest.mark.req("O-08")
@pytest.mark.req("O-09")
@pytest.mark.req("X-01")
def test_only_the_recipient_of_the_snapshot_reads_the_rewrite_and_nothing_but_it(
    stage: Stage,
) -> None:
    stage.plant()
    waiting = list_received(stage.store, home_id=HOME, user_id=RECIPIENT)
    stage.answer()

    (found,) = list_received(stage.store, home_id=HOME, user_id=RECIPIENT)

    assert waiting == []
    assert found.rewritten_text == REWRITE
    assert {item.name for item in fields(Received)} == {
        "rewrite_request_id",
        "rewritten_text",
        "output_language",
    }
    for home, user in ((HOME, SENDER), (HOME, STRANGER), (OTHER_HOME, RECIPIENT)):
        assert list_received(stage.store, home_id=home, user_id=user) == []


@pytest.mark.req("O-10")
def test_delivery_follows_the_snapshot_and_nothing_else(stage: Stage) -> None:
    stage.plant()
    stage.answer()
    plant(
        stage.hf,
        "UPDATE holdfast.recipient_snapshot SET recipient_user_ids = :named",
        named=f'["{STRANGER}"]',
    )

    assert list_received(stage.store, home_id=HOME, user_id=RECIPIENT) == []


def test_a_failed_rewrite_is_not_delivered(stage: Stage) -> None:
    stage.plant()
    stage.answer({"rewritten_text": "Das ist Deutsch.", "output_language": "de"})

    assert list_received(stage.store, home_id=HOME, user_id=RECIPIENT) == []


def test_lists_come_in_pages_newest_first(stage: Stage) -> None:
    planted = [stage.plant(f"Please take out the bins, number {number}.") for number in range(5)]
    stage.answer()
    newest = [one.id for one in reversed(planted)]
    whom = {"home_id": HOME, "user_id": RECIPIENT}

    first = list_received(stage.store, limit=2, **whom)
    second = list_received(stage.store, limit=2, before=first[-1].rewrite_request_id, **whom)
    mine = list_sent(stage.store, home_id=HOME, user_id=SENDER, limit=3)

    assert [one.rewrite_request_id for one in first + second] == newest[:4]
    assert [one.rewrite_request_id for one in mine] == newest[:3]


# What J-16 asks for, whether or not it is empty.
RECORDED = {
    "job_id",
    "rewrite_request_id",
    "task",
    "surface",
    "rewrite_strength",
    "language_pair",
    "recipient_user_id",
    "recipient_snapshot_id",
    "recipient_preference_snapshot_id",
    "status",
    "created_at",
    "updated_at",
    "not_before_at",
    "claimed_at",
    "claimed_by",
    "attempt_count",
    "max_attempts",
    "last_error",
    "last_error_at",
    "routing_decision",
}


def is_utc(value: Any) -> bool:
    """SQLite keeps an instant as text, PostgreSQL as one with its zone."""
    return value.endswith("Z") if isinstance(value, str) else value.utcoffset() == timedelta(0)


SUBMITTED = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.mark.req("A-02")
@pytest.mark.req("A-03")
@pytest.mark.req("A-05")
@pytest.mark.req("J-16")
@pytest.mark.req("J-19")
@pytest.mark.req("J-24")
def test_the_record_of_a_job_has_every_field_and_an_operator_sees_it_without_text(
    stage: Stage,
) -> None:
    assert stage.clock.now() == SUBMITTED
    planted = stage.plant(source="en", target="de")
    stage.answer(
        {"rewritten_text": "Kannst du bitte den Müll rausbringen?", "output_language": "de"}
    )
    finish_once(stage.store, reveal_delay=timedelta(days=1))

    (record,) = look(stage.store, "SELECT * FROM holdfast.rewrite_job")
    shown = find_record(
        stage.hf.operate(actor="user:op", role="operator", org_id=HOME).context, planted.id
    )

    request = planted.request
    nullable = {"not_before_at", "claimed_at", "claimed_by", "last_error", "last_error_at"}
    may_be_empty = {
        *nullable,
        "failure_code",
        "base_url",
        "revealed_at",
        "failed_at",
        "canceled_at",
        "erased_at",
    }
    empty = {name for name, value in record.items() if value is None}
    assert set(record) >= RECORDED
    assert nullable <= empty <= may_be_empty
    assert record["home_id"] == record["org_id"] == HOME
    assert (record["job_id"], record["rewrite_request_id"]) == (planted.job_id, planted.id)
    assert record["task"] == "complaint_rewrite"
    assert json.loads(record["language_pair"]) == {"from": "en", "to": "de"}
    assert record["recipient_snapshot_id"] == request.recipient_snapshot_id
    assert record["lane"] == "cross_language"
    assert (record["detected_language"], record["language_confidence"]) == ("en", "high")
    assert (record["status"], record["attempts"], record["attempt_count"]) == ("completed", 1, 0)
    assert record["batch_group_key"].startswith("openai|model-1|v1|v1|batch|cross_language|en|de")
    assert record["batch_item_index"] == 0
    instants = [value for name, value in record.items() if name.endswith("_at") and value]
    assert all(map(is_utc, instants))
    assert read_instant(record["created_at"]) == SUBMITTED
    assert shown["status"] == "completed"
    assert [event["name"] for event in shown["events"]] == ["rewrite_completed"]
    in_both = (record.keys() & shown.keys()) - {"routing_decision", "language_pair", "eval_result"}
    assert len(in_both) > 40
    for name in sorted(in_both):
        pair = (shown[name], record[name])
        if name.endswith("_at") and None not in pair:
            pair = (read_instant(pair[0]), read_instant(pair[1]))
        assert str(pair[0]) == str(pair[1]), name
    assert shown["language_pair"] == {"from": "en", "to": "de"}
    for told in (str(dict(record)), str(shown)):
        assert ORIGINAL not in told
        assert "Müll" not in told


def test_a_member_and_another_homes_operator_do_not_see_the_record(stage: Stage) -> None:
    planted = stage.plant()

    with pytest.raises(Forbidden):
        find_record(
            stage.hf.operate(actor="user:m", role="member", org_id=HOME).context, planted.id
        )
    other = stage.hf.operate(actor="user:op", role="operator", org_id=OTHER_HOME).context
    with pytest.raises(RewriteNotFound):
        find_record(other, planted.id)


def test_what_is_no_id_is_refused_by_its_name(stage: Stage) -> None:
    with pytest.raises(InvalidRewrite) as caught:
        find_sent(stage.store, "1; DROP", home_id="x", user_id=SENDER)

    assert set(caught.value.fields) == {"rewrite_request_id", "home_id"}
    assert "DROP" not in str(caught.value)


def test_the_view_for_frontends_folds_the_mechanics_away(stage: Stage) -> None:
    stage.plant()
    stage.submit()

    (row,) = look(stage.store, "SELECT * FROM holdfast.rewrite_status")

    assert row["status"] == "processing"
    assert set(row) == {
        "org_id",
        "rewrite_request_id",
        "sender_user_id",
        "status",
        "created_at",
        "completed_at",
        "sender_reveal_at",
        "has_failed",
    }
