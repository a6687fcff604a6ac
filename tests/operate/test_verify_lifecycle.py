"""Every invariant of the job lifecycle: its violation is planted, and only that is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.clock import write_instant
from holdfast.engine.maintenance import Grace
from tests.operate.busy import Busy, declare
from tests.operate.conftest import Mould
from tests.operate.letters import operator, replay
from tests.operate.planting import plant
from tests.operate.sound import assert_sound, by_rule, report_of
from tests.story import ORG, OTHER_ORG, look, make_holdfast

EVENT = (
    "INSERT INTO holdfast.job_event (org_id, job_id, job_type, name, attempt, actor_type,"
    " actor_id, request_id, correlation_id, at, detail)"
    " SELECT org_id, id, job_type, :name, :attempt, 'system', 'hand', request_id, correlation_id,"
    " (SELECT max(at) FROM holdfast.job_event), :detail FROM holdfast.job_record WHERE id = :id"
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


def change(hf: Holdfast, job: Any, changes: str, table: str = "job", **params: Any) -> None:
    plant(hf, f"UPDATE holdfast.{table} SET {changes} WHERE id = :id", id=job.id, **params)


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
    change(
        hf,
        busy.running,
        "state = 'queued', claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL",
    )

    assert found(hf) == {"I1": ["its state is queued, its event history ends in processing"]}


def test_a_state_that_there_is_not(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.waiting, "state = 'lost'")

    assert found(hf) == {"I1": ["its state is lost, its event history ends in queued"]}


def test_a_job_without_an_enqueue_event(hf: Holdfast, busy: Busy) -> None:
    silent = hf.enqueue("plain", {}, org_id=ORG)
    plant(hf, "DELETE FROM holdfast.job_event WHERE job_id = :id", id=silent.id)

    assert found(hf) == {"I1": ["its state is queued, its event history ends in nothing"]}


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
        "SELECT max(id) AS id, max(attempt) AS attempt FROM holdfast.job_event WHERE job_id = :id",
        id=busy.deferred.id,
    )
    assert last["attempt"] == 2
    plant(hf, "UPDATE holdfast.job_event SET attempt = 1 WHERE id = :id", id=last["id"])

    assert found(hf) == {"I2": [f"event {last['id']} has a lower attempt than the previous event"]}


# -- I3: one end


def test_a_final_event_that_is_recorded_twice(hf: Holdfast, busy: Busy) -> None:
    say(hf, busy.done, "job.succeeded")

    assert found(hf) == {"I3": ["the audit has 2 events from its final one on, not one"]}


def test_a_step_after_the_end_of_an_archived_job(hf: Holdfast, busy: Busy) -> None:
    say(hf, busy.archived, "job.released")

    assert found(hf) == {"I3": ["the audit has 2 events from its final one on, not one"]}


# -- I4 and I5: leases


def test_a_running_job_without_a_lease(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.running, "claimed_by = NULL")

    assert found(hf) == {"I4": ["it is processing without a complete lease"]}


def test_a_waiting_job_with_a_lease(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.waiting, "lease_expires_at = created_at")

    assert found(hf) == {"I4": ["it is queued but has lease columns"]}


def test_an_expired_lease_without_rescue(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    grace = Grace.for_lease(hf.settings.lease_seconds).seconds
    clock.advance(seconds=60 + 2 * hf.settings.rescue_seconds + grace)
    assert_sound(hf)
    clock.advance(seconds=1)

    assert found(hf) == {"I5": ["its expired lease was not rescued; it was claimed by busy"]}


# -- I6 and I7: attempts and claims


def test_an_attempt_missing_from_the_attempt_count(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.waiting, "attempt_count = 1")

    assert found(hf) == {"I6": ["1 of 5 attempts are counted, the audit has 0"]}


def test_more_attempts_than_there_are(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.deferred, "max_attempts = 0")

    assert found(hf) == {"I6": ["1 of 0 attempts are counted, the audit has 1"]}


def test_a_stage_with_attempts_that_it_did_not_take(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_stage_history SET attempts = 7 WHERE job_id = :id AND stage = 'think'",
        id=busy.staged.id,
    )

    assert found(hf) == {"I6": ["stage think counts 7 attempts, the audit has 3"]}


def test_a_token_that_counts_other_claims(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.waiting, "lease_token = 5")

    assert found(hf) == {"I7": ["its lease token is 5, the audit has 0 claims"]}


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
    change(hf, busy.deferred, "not_before_at = '2026-01-01T00:00:00.000Z'")

    assert found(hf) == {"I8": ["its retry is due before its last failure"]}


# -- I9: the rows of an enqueue


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ("payload_hash = 'another'", "payload_hash"),
        ("request_id = 'another'", "request_id"),
        ("correlation_id = 'another'", "correlation_id"),
        ("actor_id = 'another'", "actor"),
        (f"project_id = '{OTHER_ORG}'", "project_id"),
        ("origin_queue = 'q:exports'", "origin_queue"),
    ],
)
def test_something_that_changed_since_it_was_enqueued(
    hf: Holdfast, busy: Busy, changes: str, named: str
) -> None:
    change(hf, busy.waiting, changes)

    assert found(hf) == {"I9": [f"changed since it was enqueued: {named}"]}


def test_history_that_was_rewritten(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.archived, "payload_hash = 'another'", table="job_history")

    assert found(hf) == {"I9": ["changed since it was enqueued: payload_hash"]}


def test_a_detail_that_is_no_document(hf: Holdfast, busy: Busy) -> None:
    """On SQLite a manual change can write one; no constraint refuses it, and a check finds it."""
    job = hf.enqueue("plain", {}, org_id=ORG)
    broken = "not json" if hf.store.dialect.name == "sqlite" else "[]"
    plant(
        hf, "UPDATE holdfast.job_event SET detail = :detail WHERE job_id = :id",
        id=job.id, detail=broken,
    )  # fmt: skip

    told = by_rule(report_of(hf, only=["I1", "I6", "I7", "I9"]))

    assert told == {
        "I9": [f"job:{job.id} changed since it was enqueued: payload_hash origin_queue"]
    }


# -- I10: ends


@pytest.mark.parametrize(
    ("which", "changes", "told"),
    [
        ("done", "result = NULL", "it is completed and has no result"),
        ("waiting", "result = '1'", "it is queued and has a result"),
        ("dead", "last_error_at = NULL", "it failed without an error class"),
        ("dead", "queue = 'q:default'", "it is failed on q:default"),
        (
            "done",
            "key_expires_at = NULL",
            "it is completed but finished_at or key_expires_at does not match",
        ),
    ],
)
def test_an_end_that_is_not_whole(
    hf: Holdfast, busy: Busy, which: str, changes: str, told: str
) -> None:
    change(hf, getattr(busy, which), changes)

    assert found(hf) == {"I10": [told]}


def test_a_finished_stage_without_its_result(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_stage SET output = NULL WHERE job_id = :id AND stage = 'fetch'",
        id=busy.dead.id,
    )

    assert found(hf) == {"I10": ["stage fetch is finished without a result"]}


# -- I12 and I13: keys and units


def archive_twice(hf: Holdfast, job: Any) -> None:
    """The job is in its table and in history too, as after a half-undone move."""
    plant(
        hf,
        "INSERT INTO holdfast.job_history SELECT * FROM holdfast.job WHERE id = :id",
        id=job.id,
    )


def test_a_key_of_two_jobs(hf: Holdfast, busy: Busy) -> None:
    archive_twice(hf, busy.done)

    assert found(hf) == {"I12": ["its idempotency key is used by two jobs"]}


def test_a_key_that_was_made_for_another_tenant(hf: Holdfast, busy: Busy) -> None:
    change(hf, busy.waiting, f"idempotency_key = 'plain:{OTHER_ORG}::1'")

    assert found(hf) == {"I12": ["its idempotency key names another job type or tenant"]}


def test_a_unit_with_two_jobs(hf: Holdfast, busy: Busy) -> None:
    archive_twice(hf, busy.unit)
    change(hf, busy.unit, f"idempotency_key = 'plain:{ORG}::another'", table="job_history")

    assert found(hf) == {"I13": ["its execution unit has another job"]}


def test_a_unit_whose_job_is_alive_beside_its_replay(hf: Holdfast, busy: Busy) -> None:
    original = hf.enqueue("plain", {}, org_id=ORG, unit_key="month-2")
    change(hf, busy.waiting, "unit_key = 'month-2', replay_of = :original", original=original.id)

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
    plant(hf, "UPDATE holdfast.job SET lease_token = 77")
    jobs = look(hf.store, "SELECT org_id FROM holdfast.job")

    (whole,) = report_of(hf, only=["I7"], shown=3).findings
    (mine,) = report_of(hf, only=["I7"], org_id=OTHER_ORG).findings

    assert (whole.count, len(whole.violations)) == (len(jobs), 3)
    assert 0 < mine.count < whole.count
    assert mine.count == sum(str(job["org_id"]) == OTHER_ORG for job in jobs)
    assert {item.org_id for item in mine.violations} == {OTHER_ORG}


def test_the_moment_of_the_report_is_the_stores(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    assert write_instant(report_of(hf, only=["I1"]).at) == write_instant(clock.now())
