"""Every invariant of deliveries: its violation is planted, and only that is reported."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.clock import write_instant
from holdfast.ids import IdSource
from tests.operate.planting import plant
from tests.operate.sound import assert_sound, by_rule, report_of
from tests.outbox.planted import plant_delivery, plant_evidence, plant_try, spoil, tell
from tests.story import ORG, OTHER_ORG, by_hand, make_holdfast

FIRST = (("first", "accepted"),)


def found(hf: Holdfast) -> dict[str, list[str]]:
    """The violations, without the subjects."""
    return {
        check: [line.partition(" ")[2] for line in lines]
        for check, lines in by_rule(report_of(hf)).items()
    }


def test_deliveries_on_their_way_and_at_their_ends_are_sound(
    hf: Holdfast, clock: FakeClock
) -> None:
    plant_delivery(hf)
    plant_delivery(hf, "sent", tries=FIRST)
    plant_delivery(hf, "sent", tries=FIRST, version=2, org_id=OTHER_ORG)
    plant_delivery(hf, tries=(("first", "throttled"), ("proven_not_taken", "unsure")))
    plant_delivery(hf, "held", tries=(("first", None),))
    plant_delivery(hf, "failed", tries=(("first", "refused"),))
    plant_delivery(hf, "dropped", tries=(("first", "unsure"),))
    asked = plant_delivery(hf, tries=(("first", None),))
    clock.advance(minutes=10)
    plant_evidence(hf, asked, "lookup", "not_found")
    plant_try(hf, asked, 2, "looked_up_not_found", "accepted")

    assert_sound(hf)
    for org_id in (ORG, OTHER_ORG):
        assert by_rule(report_of(hf, org_id=org_id)) == {}


def test_two_deliveries_of_one_version_to_a_recipient(postgres_url: str, clock: FakeClock) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        plant_delivery(hf, recipient="ada", version=1)
        twin = plant_delivery(hf, recipient="ada", version=2)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("ALTER TABLE holdfast.delivery DROP CONSTRAINT delivery_once")
        spoil(hf, twin, "version = 1")

        assert found(hf)["I14"] == ["2 deliveries for one recipient, subject and version"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("notified_at = NULL", "it is sent without a send time"),
        ("notification_id = NULL", "it is sent without a provider id or a confirmation"),
        (
            "state = 'held', reason = 'x', ended_at = NULL",
            "it is held, and marked as sent",
        ),
    ],
)
def test_a_mark_that_is_half_there(hf: Holdfast, changes: str, says: str) -> None:
    delivery = plant_delivery(hf, "sent", tries=FIRST)
    plant_delivery(hf, "sent", tries=FIRST)

    spoil(hf, delivery, changes)

    assert found(hf)["I15"] == [says]


@pytest.mark.req("N-21")
def test_a_mark_before_the_send(hf: Holdfast, clock: FakeClock) -> None:
    delivery = plant_delivery(hf)
    spoil(
        hf,
        delivery,
        "state = 'sent', notified_at = {now}, ended_at = {now}, notification_id = 'm-1'",
    )
    assert found(hf) == {"I16": ["it is marked sent without an attempt"]}

    # An attempt after the mark does not count as one before it.
    clock.advance(minutes=1)
    plant_try(hf, delivery, 1, "first", "accepted")

    assert found(hf) == {"I16": ["it is marked sent without an attempt"]}


def test_a_mark_by_a_person_or_a_look_needs_no_try(hf: Holdfast) -> None:
    by_person = plant_delivery(hf)
    seen = plant_delivery(hf)
    ended = "state = 'sent', notified_at = {now}, ended_at = {now}"
    spoil(hf, by_person, f"{ended}, confirmed_by = 'user:op'")
    tell(hf, by_person, "confirmed")
    spoil(hf, seen, f"{ended}, notification_id = 'm-1', proof = 'seen'")

    assert_sound(hf)


def test_two_deliveries_under_one_token(hf: Holdfast) -> None:
    one, other = plant_delivery(hf), plant_delivery(hf)
    spoil(hf, other, "token = (SELECT token FROM holdfast.delivery WHERE id = :one)", one=one)

    assert "2 deliveries have one token" in found(hf)["I16"]


def test_a_try_that_sent_something_else(hf: Holdfast) -> None:
    delivery = plant_delivery(hf, tries=(("first", "throttled"),))
    plant_try(hf, delivery, 2, "proven_not_taken", "unsure", body_hash="h2")

    assert found(hf) == {"I16": ["its attempts sent different content"]}


def test_an_attempt_without_an_answer_that_is_not_reconciled(
    hf: Holdfast, clock: FakeClock
) -> None:
    plant_delivery(hf, tries=(("first", None),))
    plant_delivery(hf, tries=(("first", "throttled"),))
    clock.advance(minutes=59)
    assert found(hf) == {}

    clock.advance(minutes=2)

    assert list(found(hf)) == ["I17"]


def test_a_try_that_waits_for_its_channel_is_looked_into(hf: Holdfast, clock: FakeClock) -> None:
    delivery = plant_delivery(hf, tries=(("first", "unsure"),))
    spoil(hf, delivery, "not_before_at = {later(7200000)}")
    clock.advance(minutes=119)

    assert_sound(hf)


def test_a_delivery_that_a_channel_has_twice(hf: Holdfast, clock: FakeClock) -> None:
    delivery = plant_delivery(hf, tries=(("first", None),))
    clock.advance(minutes=5)
    plant_evidence(hf, delivery, "lookup", "not_found")
    plant_try(hf, delivery, 2, "looked_up_not_found", "accepted")
    assert_sound(hf)

    clock.advance(minutes=1)
    plant_evidence(hf, delivery, "late_answer", "taken", provider_id="m-2", after=2)

    assert found(hf) == {"I18": ["its channel has it under 2 names"]}


def test_what_a_policy_or_a_person_sent_again_is_flagged(hf: Holdfast) -> None:
    delivery = plant_delivery(hf, tries=(("first", "unsure"),))
    plant_try(hf, delivery, 2, "policy_resend", "accepted")
    plant_evidence(hf, delivery, "late_answer", "taken", provider_id="m-2", after=2)

    assert_sound(hf)


def test_a_message_that_bounced_and_was_sent_again_exists_once(
    hf: Holdfast, clock: FakeClock
) -> None:
    delivery = plant_delivery(hf, tries=FIRST)
    clock.advance(minutes=5)
    plant_evidence(hf, delivery, "lookup", "not_found")
    clock.advance(minutes=5)
    plant_try(hf, delivery, 2, "looked_up_not_found", "accepted", provider_id="m-2")

    assert_sound(hf)


def plant_review(hf: Holdfast, version: int = 1, *recipients: str) -> str:
    """A review that succeeded, with messages to *recipients*."""
    review_id = IdSource(hf.clock).new()
    by_hand(
        hf.store,
        "INSERT INTO holdfast.changelist (org_id, changelist_id, created_at)"
        " SELECT CAST(:org_id AS {uuid}), '7', {now} WHERE NOT EXISTS"
        " (SELECT 1 FROM holdfast.changelist) RETURNING changelist_id",
        org_id=ORG,
    )
    plant(
        hf,
        "INSERT INTO holdfast.review (org_id, review_id, changelist_id, review_version,"
        " idempotency_key, request_hash, source, job_id, status, finding_count, criticised_at,"
        " intended_at, succeeded_at, request_id, correlation_id, created_at, updated_at)"
        " VALUES (:org_id, :id, '7', :version, :key, 'h', '{}', :id, 'completed', 0, {now}, {now},"
        " {now}, 'r', 'c', {now}, {now})",
        org_id=ORG,
        id=review_id,
        version=version,
        key=f"k{version}",
        now=write_instant(hf.clock.now()),
    )
    for recipient in recipients:
        plant(
            hf,
            "INSERT INTO holdfast.review_recipient (org_id, review_id, recipient, channel,"
            " is_required, created_at) VALUES (:org_id, :id, :recipient, 'mail', 1, {now})",
            org_id=ORG,
            id=review_id,
            recipient=recipient,
            now=write_instant(hf.clock.now()),
        )
    return review_id


OF_REVIEW = "changelist:7"


def test_a_review_that_succeeded_without_notifying_a_recipient(hf: Holdfast) -> None:
    plant_review(hf, 1, "ada", "bob")
    plant_delivery(hf, "sent", tries=FIRST, subject=OF_REVIEW, recipient="ada")
    assert found(hf).get("I19") is None

    plant_delivery(hf, subject=OF_REVIEW, recipient="bob")

    says = "it succeeded, and the delivery to a required recipient is pending"
    assert found(hf)["I19"] == [says]


def test_a_notification_to_a_person_who_is_not_a_recipient(hf: Holdfast) -> None:
    plant_review(hf, 1, "ada")
    plant_delivery(hf, subject=OF_REVIEW, recipient="eve")

    assert found(hf)["I19"] == ["its recipient is not a recipient of the review"]


def test_a_review_that_began_below_a_version_that_had_succeeded(
    hf: Holdfast, clock: FakeClock
) -> None:
    plant_review(hf, 2)
    clock.advance(minutes=1)
    plant_review(hf, 3)
    assert found(hf).get("I14") is None

    plant_review(hf, 1)

    says = "version 1 started after a higher version had succeeded"
    assert found(hf)["I14"] == [says]


def test_a_notification_of_an_old_version_after_a_new_one(hf: Holdfast, clock: FakeClock) -> None:
    for version in (1, 2):
        plant_review(hf, version, "ada", "bob")
    plant_delivery(hf, "sent", tries=FIRST, subject=OF_REVIEW, recipient="ada", version=2)
    plant_delivery(hf, "sent", tries=FIRST, subject=OF_REVIEW, recipient="bob", version=1)
    clock.advance(minutes=1)
    plant_delivery(hf, "sent", tries=FIRST, subject=OF_REVIEW, recipient="bob", version=2)
    assert_sound(hf)

    plant_delivery(hf, "sent", tries=FIRST, subject=OF_REVIEW, recipient="ada", version=1)

    says = "version 1 was notified after a higher version"
    assert found(hf) == {"I14": [says]}


def test_a_delivery_that_failed_without_a_look(hf: Holdfast) -> None:
    delivery = plant_delivery(hf, "failed", tries=(("first", "unsure"),))
    says = "it failed without a rejection or a lookup"
    assert found(hf) == {"I20": [says]}

    plant_evidence(hf, delivery, "lookup", "undelivered")

    assert_sound(hf)


@pytest.mark.parametrize(
    ("reason", "before", "says"),
    [
        ("first", "throttled", "attempt 2 has the reason first"),
        (
            "proven_not_taken",
            "unsure",
            "attempt 2 has the reason proven_not_taken, but the previous attempt was not rejected",
        ),
        (
            "looked_up_not_found",
            "unsure",
            "attempt 2 has the reason looked_up_not_found without a lookup",
        ),
        ("operator_resend", "unsure", "attempt 2 names an operator action that was not recorded"),
    ],
)
def test_a_resend_without_its_reason(hf: Holdfast, reason: str, before: str, says: str) -> None:
    delivery = plant_delivery(hf, tries=(("first", before),))
    plant_try(hf, delivery, 2, reason, None)

    assert found(hf) == {"I21": [says]}


def test_a_try_that_is_not_on_record(hf: Holdfast) -> None:
    delivery = plant_delivery(hf, tries=FIRST)
    plant(hf, "DELETE FROM holdfast.delivery_attempt WHERE delivery_id = :id", id=delivery)

    assert found(hf) == {"I21": ["it counts 1 attempts, and 0 are recorded"]}


def test_another_tenants_violation_is_not_shown(hf: Holdfast) -> None:
    delivery = plant_delivery(hf, "sent", tries=FIRST, org_id=OTHER_ORG)
    spoil(hf, delivery, "notification_id = NULL")

    assert by_rule(report_of(hf, org_id=ORG)) == {}
    assert list(by_rule(report_of(hf, org_id=OTHER_ORG))) == ["I15"]


# -- other invariants that concern deliveries


def test_a_delivery_of_another_tenants_job(hf: Holdfast) -> None:
    hf.job("text.tell")(lambda job, payload: None)
    job = hf.enqueue("text.tell", {}, org_id=OTHER_ORG)
    plant_delivery(hf, job_id=job.id)

    assert found(hf) == {"I29": ["it refers to a job of another tenant"]}


def test_a_canary_in_the_code_of_a_try(hf: Holdfast) -> None:
    plant_delivery(hf, "held", tries=(("first", "unsure"),))
    assert by_rule(report_of(hf, canaries=["canary-7"])) == {}

    plant(hf, "UPDATE holdfast.delivery_attempt SET code = 'it said canary-7'")

    assert list(by_rule(report_of(hf, canaries=["canary-7"]))) == ["I31"]


def test_a_mark_that_is_ahead_of_the_clock(hf: Holdfast) -> None:
    delivery = plant_delivery(hf, "sent", tries=FIRST)
    spoil(hf, delivery, "notified_at = {later(120000)}")

    assert found(hf) == {"I36": ["one of its timestamps is in the future"]}
