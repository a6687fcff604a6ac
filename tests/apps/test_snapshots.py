"""Snapshots say for whom a message was meant and what they preferred: only an erasure ends one."""

from __future__ import annotations

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.errors import RuleBroken
from holdfast_rewrite import Rewrites
from holdfast_rewrite.text_retention import forget_once
from holdfast_rewrite.validation import Answer
from tests.apps.household import HOME, RECIPIENT, STRANGER, count, submission
from tests.engine.planting import plant
from tests.operate.sound import assert_sound, report_of, violations
from tests.story import by_hand

SNAPSHOTS = {
    "recipient_snapshot": "recipient_snapshot_never_leaves",
    "recipient_preference_snapshot": "preference_snapshot_stays_until_erased",
}


@pytest.fixture
def sent(rewrites: Rewrites) -> Answer:
    return rewrites.submit(submission())


@pytest.mark.req("O-06", "O-08")
@pytest.mark.parametrize(("table", "rule"), SNAPSHOTS.items())
@pytest.mark.parametrize("what", ["{table}", "rewrite_request"], ids=["itself", "its request"])
def test_the_database_refuses_to_delete_a_snapshot(
    hf: Holdfast, sent: Answer, table: str, rule: str, what: str
) -> None:
    with pytest.raises(RuleBroken) as caught:
        by_hand(hf.store, f"DELETE FROM holdfast.{what.format(table=table)}")

    assert caught.value.rule in ({rule} if what == "{table}" else set(SNAPSHOTS.values()))
    assert count(hf.store, table) == 1
    assert_sound(hf)


def test_postgresql_refuses_to_truncate_them(postgres_url: str) -> None:
    with Holdfast(postgres_url) as hf:
        for table in SNAPSHOTS:
            with pytest.raises(RuleBroken, match="never_truncated"):
                by_hand(hf.store, f"TRUNCATE holdfast.{table}")


def test_the_end_of_the_original_text_leaves_the_preferences(
    hf: Holdfast, rewrites: Rewrites, sent: Answer, clock: FakeClock
) -> None:
    """Retention takes the words. What the recipient preferred stays until a person is erased."""
    hf.cancel(str(sent.job_id), org_id=HOME)
    clock.advance(days=400)
    assert forget_once(hf.store, hf.settings.rewrite, limit=10) == 1

    with pytest.raises(RuleBroken, match="preference_snapshot_stays_until_erased"):
        by_hand(hf.store, "DELETE FROM holdfast.recipient_preference_snapshot")


@pytest.mark.parametrize("whose", ["person", "home"])
def test_an_erasure_takes_the_preferences_and_keeps_the_ids(
    hf: Holdfast, rewrites: Rewrites, sent: Answer, whose: str
) -> None:
    desk = rewrites.operate(actor="user:privacy", role="admin")

    if whose == "person":
        desk.erase(user_id=RECIPIENT, reason="asked")
    else:
        desk.erase(home_id=HOME, reason="asked")

    assert count(hf.store, "recipient_preference_snapshot") == 0
    assert count(hf.store, "recipient_snapshot") == 1
    assert "I39" not in violations(report_of(hf))


def test_the_mark_of_an_erasure_cannot_be_set_alone(hf: Holdfast, sent: Answer) -> None:
    with pytest.raises(RuleBroken, match="rewrite_request_preferences_erased_last"):
        by_hand(hf.store, "UPDATE holdfast.rewrite_request SET preferences_erased_at = created_at")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DELETE FROM holdfast.recipient_snapshot", "its recipient snapshot is missing"),
        (
            "DELETE FROM holdfast.recipient_preference_snapshot",
            "its preference snapshot is missing",
        ),
        (
            f"UPDATE holdfast.recipient_snapshot SET recipient_user_ids = '[\"{STRANGER}\"]'",
            "its recipient snapshot names another person",
        ),
        (
            f"UPDATE holdfast.recipient_preference_snapshot SET recipient_user_id = '{STRANGER}'",
            "its preference snapshot belongs to another person",
        ),
    ],
)
def test_verify_finds_a_snapshot_that_is_gone_or_changed(
    hf: Holdfast, sent: Answer, text: str, says: str
) -> None:
    plant(hf, text)

    assert violations(report_of(hf, only=["I39"])) == {
        "I39": [f"rewrite:{sent.rewrite_request_id} {says}"]
    }
