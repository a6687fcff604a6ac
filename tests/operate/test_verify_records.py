"""Digests of rows in the audit, equal for every writer and reader."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from holdfast import Context, FakeClock, Holdfast, Settings, Snooze, State
from holdfast.config import RunSettings
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.promote import promote_jobs
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.operate.verify.run import as_document
from tests.operate.busy import upkeep
from tests.operate.planting import plant
from tests.operate.sound import assert_sound, report_of, violations
from tests.outbox.scripted import letter, outbox_with
from tests.story import ORG, OTHER_ORG, events, look, make_holdfast, seal_all

PAYLOAD = {"price": 1.50, "large": 1e20, "none": None, "text": "Grüße \u2028 🙂 \\ \" ' \x1f"}


@pytest.fixture
def hf(hf: Holdfast) -> Holdfast:
    hf.job("plain")(lambda job, payload: payload)
    hf.job("sleepy")(_sleep)
    hf.job("mail.send", category="notification")(lambda job, payload: None)
    return hf


def _sleep(job: Context, payload: Any) -> str:
    if job.saved is None:
        job.checkpoint({"slept": True})
        raise Snooze(timedelta(minutes=1))
    return "awake"


def found(hf: Holdfast, **options: Any) -> dict[str, list[str]]:
    return violations(report_of(hf, **options))


# -- recorded ends


def test_a_pruned_job_leaves_a_recorded_end(hf: Holdfast, clock: FakeClock) -> None:
    job = hf.enqueue("plain", {}, org_id=ORG)
    hf.worker().run_once()
    for _ in range(2):
        clock.advance(days=100)
        upkeep(hf)

    *_, last = events(hf, job)
    assert look(hf.store, "SELECT id FROM holdfast.job") == []
    assert (last["name"], last["actor_type"]) == ("job.pruned", "system")
    assert_sound(hf)


def test_a_job_that_was_deleted_by_hand_has_none(hf: Holdfast) -> None:
    kept, gone = (hf.enqueue("plain", {}, org_id=ORG) for _ in range(2))
    hf.worker().run_once()
    plant(hf, "DELETE FROM holdfast.job_outcome WHERE job_id = :id", id=gone.id)
    plant(hf, "DELETE FROM holdfast.job_envelope WHERE id = :id", id=gone.id)

    says = "it was enqueued, but is neither stored nor recorded as pruned"
    assert f"job:{gone.id} {says}" in found(hf)["I42"]
    assert found(hf, org_id=OTHER_ORG) == {}
    mine = found(hf, org_id=ORG)
    assert f"job:{gone.id} {says}" in mine["I42"]
    assert all(kept.id not in line for lines in mine.values() for line in lines)
    assert kept.id != gone.id


@pytest.mark.parametrize(
    "change",
    [
        "envelope SET priority = 0",
        "envelope SET limit_key = 'other'",
        """envelope SET payload = '{"n": 9}'""",
        """outcome SET result = '{"n": 9}'""",
    ],
)
def test_a_value_that_an_enqueue_or_a_settle_wrote_and_a_hand_changed_is_found(
    hf: Holdfast, change: str
) -> None:
    job = hf.enqueue("plain", {"n": 1}, org_id=ORG, priority="high")
    hf.worker().run_once()
    assert_sound(hf)
    key = "id" if change.startswith("envelope") else "job_id"
    plant(hf, f"UPDATE holdfast.job_{change} WHERE {key} = :id", id=job.id)

    told = found(hf, only=["I43", "I44"])
    assert [line.split()[0] for lines in told.values() for line in lines] == [f"job:{job.id}"]


def test_a_digest_that_was_changed_with_its_job_is_found_by_its_seal(hf: Holdfast) -> None:
    job = hf.enqueue("plain", {}, org_id=ORG)
    hf.worker().run_once()
    seal_all(hf.store, key=hf.settings.audit_key)
    assert_sound(hf)
    plant(
        hf,
        "UPDATE holdfast.audit_event SET digest = 'x' WHERE id ="
        " (SELECT event_id FROM holdfast.job_outcome WHERE job_id = :id)",
        id=job.id,
    )

    assert any("seal:" in line for lines in found(hf).values() for line in lines)


def test_deliveries_that_were_erased_leave_a_recorded_end(hf: Holdfast) -> None:
    outbox_with(hf)
    (erased, deleted) = hf.outbox.intend([letter("ann"), letter("bea")], org_id=ORG)
    assert_sound(hf)
    hf.outbox.erase("ann", org_id=ORG, actor="user:ann")
    assert_sound(hf)
    plant(hf, "DELETE FROM holdfast.delivery WHERE id = :id", id=deleted.id)

    says = "it was intended, but is neither stored nor recorded as removed"
    assert found(hf) == {"I49": [f"delivery:{deleted.id} {says}"]}
    assert erased.id != deleted.id


def test_a_delivery_that_a_hand_redirected_is_found(hf: Holdfast) -> None:
    outbox_with(hf)
    (intended,) = hf.outbox.intend([letter()], org_id=ORG)
    plant(hf, "UPDATE holdfast.delivery SET recipient = 'eve' WHERE id = :id", id=intended.id)

    ((check, (told,)),) = found(hf).items()
    assert (check, told.split()[0]) == ("I49", f"delivery:{intended.id}")


def test_a_delivery_that_a_hand_gave_up_is_found(hf: Holdfast) -> None:
    outbox_with(hf)
    (intended,) = hf.outbox.intend([letter()], org_id=ORG)
    plant(
        hf,
        "UPDATE holdfast.delivery SET state = 'dropped', reason = 'operator',"
        " ended_at = updated_at WHERE id = :id",
        id=intended.id,
    )

    says = "it is dropped, and its last event is its intent"
    assert found(hf) == {"I49": [f"delivery:{intended.id} {says}"]}


# -- changes without an event


def test_jobs_that_are_promoted_stay_sound(hf: Holdfast, clock: FakeClock) -> None:
    due = clock.now() + timedelta(minutes=5)
    hf.enqueue("plain", {}, org_id=ORG, not_before_at=due)
    hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=due)
    hf.enqueue("sleepy", {}, org_id=ORG)
    hf.worker().run_once()
    assert_sound(hf)
    clock.advance(minutes=6)
    promoted = promote_jobs(hf.store, ["q:default", "q:maintenance"])

    assert promoted == 3
    assert_sound(hf)
    hf.worker().run_once()
    assert_sound(hf)


def test_a_job_that_a_run_takes_before_its_time_stays_sound(hf: Holdfast, clock: FakeClock) -> None:
    hf.settings.runs["eager"] = RunSettings(queues=("q:default",), max_jobs_per_run=5)  # type: ignore[index]
    hf.enqueue("sleepy", {}, org_id=ORG)
    trigger = Trigger(TriggerKind.CRON)
    for _ in range(3):
        perform_run(hf, "eager", trigger=trigger)
        clock.advance(minutes=2)
        assert_sound(hf)


def test_a_job_that_its_delivery_wakes_stays_sound(hf: Holdfast) -> None:
    outbox_with(hf)
    (intended,) = hf.outbox.intend([letter()], org_id=ORG)
    hf.job("waits")(lambda job, payload: hf.outbox.wait_for(job, [intended.id]) and None)
    job = hf.enqueue("waits", {}, org_id=ORG)
    hf.worker(queues=["q:default"]).run_once()
    assert_sound(hf)
    hf.outbox.deliver([intended.id], org_id=ORG, worker_id="w1")

    assert [event["name"] for event in events(hf, job)][-2:] == ["job.snoozed", "job.woken"]
    assert_sound(hf)
    hf.worker(queues=["q:default"]).run_once()
    assert hf.get(job.id, org_id=ORG).state is State.COMPLETED
    assert_sound(hf)


def test_a_job_promoted_by_hand_before_its_time_is_found(hf: Holdfast, clock: FakeClock) -> None:
    due = clock.now() + timedelta(minutes=5)
    job = hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=due)
    plant(
        hf,
        "INSERT INTO holdfast.job_ready (queue, limit_key, org_id, turn, job_id, created_at,"
        " lease_token, unit) SELECT asked.origin_queue, waiting.limit_key, waiting.org_id,"
        " waiting.turn, waiting.job_id, waiting.created_at, 0, waiting.unit"
        " FROM holdfast.job_waiting AS waiting JOIN holdfast.job_envelope AS asked"
        " ON asked.org_id = waiting.org_id AND asked.id = waiting.job_id WHERE asked.id = :id",
        id=job.id,
    )
    plant(hf, "DELETE FROM holdfast.job_waiting WHERE job_id = :id", id=job.id)

    ((check, (told,)),) = found(hf).items()
    assert (check, "it is not deferred, but its last event" in told) == ("I44", True)


# -- all writers and readers


def test_an_odd_payload_has_the_same_digest_when_it_is_read(hf: Holdfast) -> None:
    hf.enqueue("plain", PAYLOAD, org_id=ORG)
    hf.enqueue_many("plain", [PAYLOAD, {}], org_id=ORG)
    hf.worker().run_once(limit=5)

    assert_sound(hf)


SET = ("TimeZone=Asia/Tokyo", "search_path=holdfast", "quote_all_identifiers=on")
ELSEWHERE = "?options=" + quote(" ".join(f"-c {setting}" for setting in SET))


def test_nothing_that_a_session_sets_changes_what_is_found(
    postgres_url: str, clock: FakeClock
) -> None:
    due = clock.now() + timedelta(hours=1)
    for url in (postgres_url, postgres_url + ELSEWHERE):
        with make_holdfast(url, clock) as writer:
            writer.job("plain")(lambda job, payload: payload)
            writer.job("sleepy")(_sleep)
            writer.enqueue("plain", PAYLOAD, org_id=ORG, not_before_at=due)
            writer.enqueue("sleepy", {}, org_id=ORG)
            writer.enqueue("plain", PAYLOAD, org_id=ORG)
            writer.worker().run_once(limit=5)
    for url in (postgres_url, postgres_url + ELSEWHERE):
        with make_holdfast(url, clock) as reader:
            assert_sound(reader)


def test_a_job_that_sql_enqueues_is_covered(postgres_url: str) -> None:
    with Holdfast(settings=Settings(db=postgres_url)) as hf:
        hf.job("plain")(lambda job, payload: payload)
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "SELECT * FROM holdfast.enqueue('plain', '{\"n\": 1}', %s,"
                " not_before_at => now() + interval '1 hour')",
                [ORG],
            )
        assert_sound(hf)
        plant(hf, "UPDATE holdfast.job_envelope SET priority = 0")

        assert list(found(hf)) == ["I43"]


def test_a_connection_of_the_callers_may_be_read_from_while_it_enqueues(
    migrated_sqlite_url: str, clock: FakeClock
) -> None:
    path = migrated_sqlite_url.removeprefix("sqlite:///")
    with make_holdfast(migrated_sqlite_url, clock) as hf, closing(sqlite3.connect(path)) as own:
        hf.job("plain")(lambda job, payload: payload)
        own.execute("CREATE TABLE sheet (id INTEGER PRIMARY KEY)")
        own.executemany("INSERT INTO sheet VALUES (?)", [(n,) for n in range(3)])
        own.commit()
        for (number,) in own.execute("SELECT id FROM sheet"):
            hf.enqueue("plain", {"n": number}, org_id=ORG, conn=own)
        own.commit()

        assert len(look(hf.store, "SELECT id FROM holdfast.job")) == 3
        assert_sound(hf)


def test_the_report_counts_every_check(hf: Holdfast) -> None:
    document = as_document(report_of(hf))

    assert [check["id"] for check in document["checks"]][-9:] == [
        "I47", "I48", "I49", "I50", "I51", "I52", "I53", "I54", "I55",
    ]  # fmt: skip
