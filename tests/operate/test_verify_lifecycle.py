"""Every invariant of the job lifecycle: its violation is planted, and only that is reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.clock import write_instant
from holdfast.engine.maintenance import Grace
from tests.operate.busy import Busy, declare
from tests.operate.conftest import Mould
from tests.operate.letters import operator, replay
from tests.operate.planting import plant
from tests.operate.sound import assert_sound, by_rule, report_of, violations
from tests.story import ORG, OTHER_ORG, look, make_holdfast

EVENT = (
    "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
    " actor_id, request_id, correlation_id, at, detail)"
    " SELECT org_id, id, job_type, :name, :attempt, 'system', 'hand', request_id, correlation_id,"
    " (SELECT max(at) FROM holdfast.audit_event), :detail FROM holdfast.job WHERE id = :id"
)


@pytest.fixture
def busy(mould: Mould) -> Busy:
    """A store that has been through everything; only the planted violation is found in it."""
    return mould.busy


@pytest.fixture
def clock(mould: Mould) -> FakeClock:
    return FakeClock(mould.now)


@pytest.fixture
def hf(mould: Mould, clock: FakeClock) -> Iterator[Holdfast]:
    with mould.copy() as url, make_holdfast(url, clock) as made:
        declare(made)
        yield made


def change(hf: Holdfast, job: Any, table: str, changes: str, **params: Any) -> None:
    key = "id" if table == "job_envelope" else "job_id"
    plant(hf, f"UPDATE holdfast.{table} SET {changes} WHERE {key} = :id", id=job.id, **params)


def remove(hf: Holdfast, job: Any, table: str) -> None:
    plant(hf, f"DELETE FROM holdfast.{table} WHERE job_id = :id", id=job.id)


def number_of(hf: Holdfast, job: Any, name: str) -> int:
    """The id of the event *name* of a job."""
    (row,) = look(
        hf.store,
        "SELECT id FROM holdfast.job_event WHERE job_id = :id AND name = :name",
        id=job.id,
        name=name,
    )
    return int(row["id"])


def say(hf: Holdfast, job: Any, name: str, attempt: int = 1, detail: str | None = None) -> None:
    """Insert an audit event that no transition wrote."""
    plant(hf, EVENT, id=job.id, name=name, attempt=attempt, detail=detail)


def found(hf: Holdfast) -> dict[str, list[str]]:
    """The violations without their jobs: ``{"I4": ["its lease token is negative"]}``."""
    return {
        check: [line.partition(" ")[2] for line in lines]
        for check, lines in by_rule(report_of(hf)).items()
    }


# -- I1: the state matches the audit


def test_a_state_that_differs_from_the_event_history(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.done, "job_outcome", "state = 'canceled', result = NULL")

    assert found(hf) == {"I1": ["its state is canceled, its event history ends in completed"]}


def test_a_state_that_there_is_not(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.done, "job_outcome", "state = 'lost', result = NULL")

    assert found(hf) == {
        "I1": ["its state is lost, its event history ends in completed"],
        "I10": ["it ended as lost"],
    }


def test_a_job_without_an_enqueue_event(hf: Holdfast, busy: Busy) -> None:
    silent = hf.enqueue("plain", {}, org_id=ORG)
    event = number_of(hf, silent, "job.enqueued")
    plant(hf, "DELETE FROM holdfast.audit_event WHERE id = :id", id=event)

    assert found(hf) == {"I1": [f"the audit has no event {event}, its job.enqueued"]}


def test_a_claim_without_an_event(hf: Holdfast, busy: Busy) -> None:
    event = number_of(hf, busy.running, "job.started")
    plant(hf, "DELETE FROM holdfast.audit_event WHERE id = :id", id=event)

    assert found(hf)["I1"] == [f"the audit has no event {event}, its job.started"]


def test_a_claim_of_the_event_of_another_job(hf: Holdfast, busy: Busy) -> None:
    other = number_of(hf, busy.waiting, "job.enqueued")
    change(hf, busy.running, "job_running", "started_event_id = :other", other=other)

    assert found(hf)["I1"][0] == f"the audit has no event {other}, its job.started"


def test_an_event_that_cannot_follow_the_one_before_it(hf: Holdfast, busy: Busy) -> None:
    say(hf, busy.waiting, "job.retried")

    ((check, (told,)),) = found(hf).items()
    assert (check, told.split(" ", 2)[2]) == (
        "I1",
        "is not a valid transition from the previous event",
    )


# -- I2: attempts


def test_an_attempt_that_goes_back(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    clock.advance(seconds=10)
    hf.worker().run_once()
    (last,) = look(
        hf.store,
        "SELECT max(id) AS id FROM holdfast.job_event"
        " WHERE job_id = :id AND name = 'job.failed' AND attempt = 2",
        id=busy.deferred.id,
    )
    plant(hf, "UPDATE holdfast.audit_event SET attempt = 1 WHERE id = :id", id=last["id"])

    assert found(hf) == {"I2": [f"event {last['id']} has a lower attempt than the previous event"]}


# -- I3: one end


def test_a_final_event_that_is_recorded_twice(hf: Holdfast, busy: Busy) -> None:
    say(hf, busy.done, "job.succeeded")

    assert found(hf) == {"I3": ["the audit has 2 events from its final one on, not one"]}


def test_a_step_after_the_end_of_an_older_job(hf: Holdfast, busy: Busy) -> None:
    say(hf, busy.archived, "job.released")

    assert found(hf) == {"I3": ["the audit has 2 events from its final one on, not one"]}


# -- I4 and I5: places and leases


@pytest.mark.parametrize(
    ("which", "place"),
    [
        ("waiting", "job_ready"),
        ("deferred", "job_waiting"),
        ("running", "job_running"),
    ],
)
def test_a_job_that_is_nowhere(hf: Holdfast, busy: Busy, which: str, place: str) -> None:
    remove(hf, getattr(busy, which), place)

    assert "it has not ended, and is neither waiting nor running nor submitted" in found(hf)["I4"]


READY = (
    "INSERT INTO holdfast.job_ready (queue, limit_key, org_id, turn, job_id, created_at,"
    " lease_token, unit) SELECT origin_queue, limit_key, org_id, coalesce(turn, id), id,"
    " created_at, 0, '' FROM holdfast.job_envelope WHERE id = :id"
)


def test_a_running_job_that_also_waits(hf: Holdfast, busy: Busy) -> None:
    plant(hf, READY, id=busy.running.id)

    assert found(hf) == {"I4": ["it is ready and running"]}


def test_an_ended_job_that_waits(hf: Holdfast, busy: Busy) -> None:
    plant(hf, READY, id=busy.canceled.id)

    assert found(hf) == {"I4": ["it is ready and has ended"]}


def test_a_job_that_waits_in_two_queues(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    due = clock.now() + timedelta(minutes=5)
    parked = hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=due)
    plant(hf, READY, id=parked.id)

    assert found(hf) == {"I4": ["it is ready and waiting"]}


@pytest.mark.parametrize(
    ("which", "place", "changes", "told"),
    [
        ("waiting", "job_ready", "queue = 'q:exports'", "it is ready with another queue"),
        ("waiting", "job_ready", "limit_key = 'x'", "it is ready with another limit_key"),
        ("waiting", "job_ready", f"turn = '{OTHER_ORG}'", "it is ready with another turn"),
        ("waiting", "job_ready", "lease_token = 5", "it is ready with another lease_token"),
        ("waiting", "job_ready", "unit = 'x'", "it is ready with another unit"),
        ("deferred", "job_waiting", "lease_token = 5", "it is waiting with another lease_token"),
        ("deferred", "job_waiting", "limit_key = 'x'", "it is waiting with another limit_key"),
        ("running", "job_running", "limit_key = 'x'", "it is running with another limit_key"),
        ("running", "job_running", "attempt_count = 1", "it is running with another attempt_count"),
        ("running", "job_running", "max_attempts = 9", "it is running with another max_attempts"),
        ("running", "job_running", "stage = 'x'", "it is running with another stage"),
        (
            "running",
            "job_running",
            "lease_expires_at = '2026-01-01T00:00:00.000Z'",
            "it is running without a valid lease",
        ),
    ],
)
def test_a_place_that_differs_from_its_job(
    hf: Holdfast, busy: Busy, which: str, place: str, changes: str, told: str
) -> None:
    change(hf, getattr(busy, which), place, changes)

    assert told in found(hf)["I4"]


def test_an_expired_lease_without_rescue(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    grace = Grace.for_lease(hf.settings.lease_seconds).seconds
    clock.advance(seconds=60 + 2 * hf.settings.rescue_seconds + grace)
    assert_sound(hf)
    clock.advance(seconds=1)

    assert found(hf) == {"I5": ["its expired lease was not rescued; it was claimed by busy"]}


# -- I6 and I7: attempts and claims


def test_an_attempt_missing_from_the_attempt_count(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.deferred, "job_attempt", "attempt_count = 2")

    assert "2 of 5 attempts are counted, the audit has 1" in found(hf)["I6"]


def test_more_attempts_than_there_are(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.deferred, "job_attempt", "max_attempts = 0")

    assert found(hf) == {
        "I6": ["1 of 0 attempts are counted, the audit has 1", "attempt 1 counts 1 of 0 attempts"]
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("number = 2", "attempt 2 does not follow attempt 0"),
        ("lease_token = 4", "attempt 1 has lease token 4 after 0"),
    ],
)
def test_an_attempt_that_does_not_follow_the_one_before_it(
    hf: Holdfast, busy: Busy, changes: str, told: str
) -> None:
    change(hf, busy.deferred, "job_attempt", changes)

    assert told in found(hf)["I6"]


def test_a_stage_with_attempts_that_it_did_not_take(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_stage SET attempts = 7 WHERE job_id = :id AND stage = 'think'",
        id=busy.staged.id,
    )

    assert found(hf) == {"I6": ["stage think counts 7 attempts, the audit has 3"]}


def test_a_token_that_counts_other_claims(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.running, "job_running", "lease_token = 5")

    assert found(hf) == {
        "I4": ["it is running with another lease_token"],
        "I7": ["its lease token is 5, it has 1 claims"],
    }


def test_an_outcome_of_another_claim(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.done, "job_outcome", "lease_token = 3")

    assert found(hf) == {
        "I7": [
            "its lease token is 3, it has 1 claims",
            "it ended with lease token 3, its last attempt has 0",
        ]
    }


@pytest.mark.parametrize("detail", ['{"lease_token": 99}', '{"lease_token": "no number"}', "{}"])
def test_a_lost_lease_that_was_never_given(hf: Holdfast, busy: Busy, detail: str) -> None:
    say(hf, busy.done, "job.lease_lost", detail=detail)

    ((check, (told,)),) = found(hf).items()
    assert (check, told.split(" ", 2)[2]) == (
        "I7",
        "records the loss of a lease that was never issued",
    )


# -- I8: retries


def test_a_retry_that_is_due_before_its_failure(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.deferred, "job_waiting", "not_before_at = '2026-01-01T00:00:00.000Z'")

    assert found(hf) == {"I8": ["its retry is due before its last failure"]}


# -- I9 and I43: the rows of an enqueue


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ("actor_id = 'another'", "actor"),
        ("actor_type = 'user'", "actor"),
        ("created_at = '2026-07-01T00:00:00.000Z'", "created_at"),
    ],
)
def test_something_that_changed_since_it_was_enqueued(
    hf: Holdfast, busy: Busy, changes: str, named: str
) -> None:
    change(hf, busy.waiting, "job_envelope", changes)

    assert found(hf)["I9"] == [f"changed since it was enqueued: {named}"]


@pytest.mark.parametrize("which", ["waiting", "archived"])
@pytest.mark.parametrize(
    "changes",
    [
        "payload_hash = 'another'",
        "request_id = 'another'",
        "correlation_id = 'another'",
        f"project_id = '{OTHER_ORG}'",
        "origin_queue = 'q:exports'",
        "queue = 'q:exports'",
        "job_type = 'report.make'",
        "not_before_at = '2026-07-01T00:00:00.000Z'",
    ],
)
def test_a_column_that_the_digest_of_the_enqueue_covers(
    hf: Holdfast, busy: Busy, which: str, changes: str
) -> None:
    change(hf, getattr(busy, which), "job_envelope", changes)

    assert "I43" in violations(report_of(hf, only=["I43"]))


def test_a_detail_that_is_no_document(hf: Holdfast, busy: Busy) -> None:
    """On SQLite a manual change can write one; no constraint refuses it, and the checks run."""
    broken = "not json" if hf.store.dialect.name == "sqlite" else "[]"
    plant(
        hf, "UPDATE holdfast.audit_event SET detail = :detail WHERE job_id = :id",
        id=busy.deferred.id, detail=broken,
    )  # fmt: skip

    told = violations(report_of(hf, only=["I1", "I6", "I7", "I9", "I44"]))

    assert list(told) == ["I44"]
    assert f"job:{busy.deferred.id} attempt 1 is not what its event says" in told["I44"]


# -- I10: ends


@pytest.mark.parametrize(
    ("which", "changes", "told"),
    [
        ("done", "result = NULL", "it is completed and has no result"),
        ("canceled", "result = '1'", "it is canceled and has a result"),
        ("dead", "last_error = NULL", "it failed without an error or an error class"),
        ("dead", "error_class = NULL", "it failed without an error or an error class"),
        ("canceled", "error_class = 'GONE'", "it is canceled and has an error"),
        ("done", "key_expires_at = '2026-07-01T00:00:00.000Z'", "its key expires before its end"),
    ],
)
def test_an_end_that_is_not_whole(
    hf: Holdfast, busy: Busy, which: str, changes: str, told: str
) -> None:
    change(hf, getattr(busy, which), "job_outcome", changes)

    assert found(hf) == {"I10": [told]}


def test_an_attempt_with_a_part_of_an_error(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.deferred, "job_attempt", "last_error_at = NULL")

    assert found(hf) == {"I10": ["attempt 1 has a part of an error"]}


def test_a_finished_stage_without_its_result(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_stage SET output = NULL WHERE job_id = :id AND stage = 'fetch'",
        id=busy.dead.id,
    )

    assert found(hf) == {"I10": ["stage fetch is finished without a result"]}


# -- I12 and I13: keys and units


def test_a_key_of_two_jobs(hf: Holdfast, busy: Busy) -> None:
    """The key of a job without a stored one ends with its id, which no index covers."""
    key = busy.waiting.idempotency_key
    assert key.endswith(busy.waiting.id.replace("-", ""))
    change(hf, busy.done, "job_envelope", "idempotency_key = :key", key=key)

    assert found(hf) == {"I12": ["its idempotency key is used by two jobs"]}


def test_a_key_that_was_made_for_another_tenant(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.waiting, "job_envelope", f"idempotency_key = 'plain:{OTHER_ORG}::1'")

    assert found(hf) == {"I12": ["its idempotency key names another job type or tenant"]}


@pytest.mark.parametrize(
    "changes", ["idempotency_key = :key", "unit_key = 'month-1', job_type = 'plain'"]
)
def test_a_key_or_a_unit_has_one_job(hf: Holdfast, busy: Busy, changes: str) -> None:
    """The unique indexes refuse a second one, even from a hand without triggers and checks."""
    params = {"key": busy.done.idempotency_key} if ":key" in changes else {}

    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        change(hf, busy.waiting, "job_envelope", changes, **params)


def test_a_unit_whose_job_is_alive_beside_its_replay(hf: Holdfast, busy: Busy) -> None:
    original = hf.enqueue("plain", {}, org_id=ORG, unit_key="month-2")
    change(
        hf,
        busy.waiting,
        "job_envelope",
        "unit_key = 'month-2', replay_of = :original",
        original=original.id,
    )

    # Another check finds a replay that no dead letter lists.
    told = by_rule(report_of(hf, only=["I12", "I13"]))
    assert told == {
        "I13": [
            f"job:{busy.waiting.id} it is active together with another job of its execution unit"
        ]
    }


def test_a_unit_whose_job_died_and_is_replayed_is_sound(hf: Holdfast, busy: Busy) -> None:
    died = hf.enqueue("hopeless", {}, org_id=ORG, unit_key="month-3")
    hf.worker().run_once()
    alive = replay(operator(hf), died)
    (row,) = look(hf.store, "SELECT unit_key FROM holdfast.job WHERE id = :id", id=alive)

    assert row["unit_key"] == "month-3"
    assert_sound(hf)


# -- all of them


def test_all_violations_are_counted_and_shown_per_tenant(hf: Holdfast, busy: Busy) -> None:
    plant(hf, "UPDATE holdfast.job_outcome SET lease_token = 77")
    jobs = look(hf.store, "SELECT org_id FROM holdfast.job_outcome")

    (whole,) = report_of(hf, only=["I7"], shown=3).findings
    (mine,) = report_of(hf, only=["I7"], org_id=OTHER_ORG).findings

    # Both the number of claims and the last attempt of each job contradict it.
    assert (whole.count, len(whole.violations)) == (2 * len(jobs), 3)
    assert 0 < mine.count < whole.count
    assert mine.count == 2 * sum(str(job["org_id"]) == OTHER_ORG for job in jobs)
    assert {item.org_id for item in mine.violations} == {OTHER_ORG}


def test_the_moment_of_the_report_is_the_stores(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    assert write_instant(report_of(hf, only=["I1"]).at) == write_instant(clock.now())
