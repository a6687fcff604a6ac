"""Settle: one fenced write per claim, with its audit, checked by database constraints."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.engine import enqueue as enqueueing
from holdfast.engine.job import (
    SYSTEM,
    Advanced,
    Canceled,
    Completed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    Snoozed,
    unit_of,
)
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from holdfast.errors import RuleBroken, StoreBusy
from holdfast.store import Statement, Tx
from tests.acceptance.processes import wait_until
from tests.rows import attempt_of, outcome_of, refused_by
from tests.store.hand import move
from tests.story import ORG, OTHER_ORG, SQL, claim, events, look, make_holdfast, timeline

FAULT = Fault("NETWORK_TIMEOUT", "NETWORK_TIMEOUT stage=run attempt=1", True)


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: None)
    return hf


def settle_one(hf: Holdfast, outcome: Outcome) -> Any:
    enqueued = hf.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(hf)
    (settled,) = settle(hf.store, [(claimed, outcome)], actor=SYSTEM)
    assert settled.lease_held
    return enqueued


@pytest.mark.req("J-05", "A-05")
def test_a_completed_job_keeps_its_output_and_its_times(work: Holdfast, clock: FakeClock) -> None:
    began = clock.now()
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    clock.advance(seconds=1)
    (claimed,) = claim(work)
    clock.advance(seconds=1)

    settle(work.store, [(claimed, Completed('{"rows":3}'))], actor=SYSTEM)

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.state, job.result, job.attempt_count) == (State.COMPLETED, {"rows": 3}, 0)
    assert job.created_at == began
    assert job.record["finished_at"] == job.updated_at == began + timedelta(seconds=2)
    assert (job.record["claimed_at"], job.record["claimed_by"]) == (None, None)


@pytest.mark.req("J-06", "E-04", "A-05")
def test_a_dead_job_is_failed_for_good_says_why_and_stores_no_output(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = settle_one(work, Dead(FAULT))

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count) == (State.FAILED, 1)
    assert (job.error_class, job.last_error) == (FAULT.error_class, FAULT.last_error)
    assert job.record["last_error_at"] == clock.now()
    assert job.result is None
    clock.advance(days=365)
    assert claim(work, limit=10) == []
    assert claim(work, limit=10, queue="q:deadletter") == []


@pytest.mark.req("Q-21")
def test_a_dead_job_moves_to_the_dead_letter_queue_with_its_letter_in_one_step(
    work: Holdfast,
) -> None:
    enqueued = settle_one(work, Dead(replace(FAULT, context={"status": 503}, stack="a:1 in b")))

    job = work.get(enqueued.id, org_id=ORG)
    letter = work.store.read(
        lambda tx: tx.one(SQL.find_dead_letter, org_id=ORG, job_id=enqueued.id)
    )
    assert (job.queue, job.origin_queue) == ("q:deadletter", "q:default")
    assert (letter["queue"], letter["stage"], letter["attempts"]) == ("q:default", "run", 1)
    assert (letter["error_class"], letter["last_stack"]) == (FAULT.error_class, "a:1 in b")
    assert '"status"' in letter["sanitized_context"]
    assert timeline(work, enqueued)[-2:] == ["job.failed", "job.deadlettered"]


def test_a_retry_charges_the_attempt_and_sets_the_next_instant(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueued = settle_one(work, Retry(FAULT, 8_000))

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count) == (State.QUEUED, 1)
    assert job.record["not_before_at"] == clock.now() + timedelta(seconds=8)
    assert timeline(work, enqueued)[-2:] == ["job.failed", "job.retried"]


@pytest.mark.parametrize(
    ("outcome", "event"),
    [(Snoozed(5_000), "job.snoozed"), (Released("overflow", 5_000), "job.released")],
)
def test_a_snooze_and_a_release_cost_nothing(
    work: Holdfast, clock: FakeClock, outcome: Outcome, event: str
) -> None:
    enqueued = settle_one(work, outcome)

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count, job.last_error) == (State.QUEUED, 0, None)
    assert job.record["last_error_at"] is None
    assert (job.record["claimed_at"], job.record["claimed_by"]) == (None, None)
    assert job.record["not_before_at"] == clock.now() + timedelta(seconds=5)
    assert timeline(work, enqueued)[-1] == event


def test_a_group_is_written_with_a_fixed_number_of_statements(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.enqueue_many("report.export", [{} for _ in range(40)], org_id=ORG)
    outcomes: list[Outcome] = [Completed("1"), Retry(FAULT, 1_000), Dead(FAULT), Snoozed(1_000)]
    group = [(job, outcomes[at % 4]) for at, job in enumerate(claim(work, limit=40))]
    ran: list[str] = []
    run = Tx._ready

    def counted(tx: Tx, statement: Statement, params: dict[str, Any]) -> Any:
        ran.append(statement.name)
        return run(tx, statement, params)

    monkeypatch.setattr(Tx, "_ready", counted)
    settle(work.store, group, actor=SYSTEM)
    monkeypatch.undo()

    states = look(work.store, "SELECT state, count(*) AS n FROM holdfast.job GROUP BY state")
    assert {row["state"]: row["n"] for row in states} == {
        "completed": 10,
        "failed": 10,
        "queued": 20,
    }
    assert ran == [
        "hold_claims",
        "insert_outcomes",
        "insert_attempts",
        "find_cancels",
        "insert_dead_letters",
        "insert_events",
        "insert_dead_letter_events",
    ]


@pytest.mark.req("I-14")
def test_a_lease_lost_inside_a_group_is_that_jobs_alone(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue_many("report.export", [{}, {}, {}], org_id=ORG)
    claimed = claim(work, limit=3)
    settle(work.store, [(claimed[1], Released("taken away"))], actor=SYSTEM)

    settled = settle(work.store, [(job, Completed('"x"')) for job in claimed], actor=SYSTEM)

    assert [item.lease_held for item in settled] == [True, False, True]
    assert [work.get(item.id, org_id=ORG).state for item in enqueued] == [
        State.COMPLETED, State.QUEUED, State.COMPLETED,
    ]  # fmt: skip
    assert timeline(work, enqueued[1])[-1] == "job.lease_lost"
    assert work.get(enqueued[1].id, org_id=ORG).result is None


LATE = [
    Completed('"late"'),
    Advanced('"late"', "second", 5),
    Retry(FAULT, 1_000),
    Dead(FAULT),
    Snoozed(1_000),
    Released("late"),
    Canceled(),
]


@pytest.mark.req("C-04")
@pytest.mark.parametrize("late", LATE, ids=lambda outcome: type(outcome).__name__.lower())
def test_an_outcome_of_a_lost_claim_is_refused_while_another_worker_runs_the_job(
    work: Holdfast, clock: FakeClock, late: Outcome
) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (first,) = claim(work, worker="first")
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)
    (second,) = claim(work, worker="second")
    before = work.get(enqueued.id, org_id=ORG).record

    (settled,) = settle(work.store, [(first, late)], actor=SYSTEM)

    assert not settled.lease_held
    assert work.get(enqueued.id, org_id=ORG).record == before
    assert timeline(work, enqueued)[-1] == "job.lease_lost"
    (settled,) = settle(work.store, [(second, Completed('"done"'))], actor=SYSTEM)
    assert settled.lease_held


@pytest.mark.req("C-04")
@pytest.mark.parametrize("late", LATE, ids=lambda outcome: type(outcome).__name__.lower())
def test_an_outcome_of_a_lost_claim_is_refused_while_the_job_waits(
    work: Holdfast, clock: FakeClock, late: Outcome
) -> None:
    """The job was not claimed again, so its token is still that of the lost claim."""
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (lost,) = claim(work)
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)
    before = work.get(enqueued.id, org_id=ORG).record

    (settled,) = settle(work.store, [(lost, late)], actor=SYSTEM)

    assert not settled.lease_held
    assert work.get(enqueued.id, org_id=ORG).record == before
    assert timeline(work, enqueued)[-1] == "job.lease_lost"


@pytest.mark.req("C-05")
def test_an_outcome_waits_for_the_transaction_that_holds_its_unit(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as other:
        hf.job("rewrite.text")(lambda job, payload: None)
        enqueued = hf.enqueue("rewrite.text", {}, org_id=ORG, unit_key="r1/u1")
        (claimed,) = claim(hf)
        other.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            (unit_of(ORG, "rewrite.text", "r1/u1"),),
        )
        outcome = [(claimed, Completed("1"))]
        settling = threading.Thread(target=lambda: settle(hf.store, outcome, actor=SYSTEM))
        settling.start()

        def waits() -> bool:
            asked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            return bool(other.execute(asked).fetchall())

        wait_until(lambda: waits() or not settling.is_alive())
        waited, state = waits(), hf.get(enqueued.id, org_id=ORG).state
        other.rollback()
        settling.join(60)

        assert (waited, state) == (True, State.PROCESSING)
        assert hf.get(enqueued.id, org_id=ORG).state is State.COMPLETED


@pytest.mark.req("J-05", "J-06", "J-09")
@pytest.mark.parametrize("outcome", [Completed("1"), Dead(FAULT), Canceled()])
def test_an_ended_job_never_leaves_its_state(work: Holdfast, outcome: Outcome) -> None:
    enqueued = settle_one(work, outcome)
    ended = work.get(enqueued.id, org_id=ORG).state

    for target in set(State) - {ended}:
        with pytest.raises((RuleBroken, StoreBusy)):
            move(work.store, enqueued.id, ended, target)

    assert work.get(enqueued.id, org_id=ORG).state is ended


RUNNING = "holdfast.job_running"
ENVELOPE = "holdfast.job_envelope"
FORBIDDEN = [
    (outcome_of("canceled", result="'1'"), "job_completed_iff_result"),
    (outcome_of("completed", result="NULL"), "job_completed_iff_result"),
    (outcome_of("asleep"), "job_outcome_known"),
    (outcome_of("failed", error="NULL, NULL"), "job_failed_says_why"),
    (outcome_of("completed", lease_token=0), "job_outcome_was_claimed"),
    (outcome_of("completed", lease_token=7), "job_moved"),
    (attempt_of(attempt_count=9, lease_token=1), "job_attempts_in_budget"),
    (attempt_of(attempt_count=-1, lease_token=1), "job_attempts_in_budget"),
    (attempt_of(attempt_count=1, lease_token=7), "job_moved"),
    (f"UPDATE {RUNNING} SET lease_token = 7 WHERE job_id = :id", "job_running_write_once"),
    (f"UPDATE {RUNNING} SET queue = 'q:x' WHERE job_id = :id", "job_running_write_once"),
    (f"DELETE FROM {RUNNING} WHERE job_id = :id", "job_running_"),
    (f"UPDATE {ENVELOPE} SET payload = '{{}}' WHERE id = :id", "job_envelope_never_changes"),
    (f"UPDATE {ENVELOPE} SET org_id = '{OTHER_ORG}' WHERE id = :id", "job_envelope_never_changes"),
    (f"UPDATE {ENVELOPE} SET request_id = 'other' WHERE id = :id", "job_envelope_never_changes"),
    (f"DELETE FROM {ENVELOPE} WHERE id = :id", "job_leaves_only_when_ended"),
]


@pytest.mark.req("E-04", "J-01", "J-05")
def test_the_database_itself_refuses_what_the_contract_forbids(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {"n": 1}, org_id=ORG)
    claim(work)

    for text, rule in FORBIDDEN:
        assert refused_by(work, text, id=enqueued.id).startswith(rule), text

    assert work.get(enqueued.id, org_id=ORG).state is State.PROCESSING


@pytest.mark.req("E-04")
def test_the_output_of_a_failed_job_is_refused_by_the_database(work: Holdfast) -> None:
    enqueued = settle_one(work, Dead(FAULT))

    text = "UPDATE holdfast.job_outcome SET result = '1' WHERE job_id = :id"
    assert refused_by(work, text, id=enqueued.id) in (
        "job_outcome_never_changes", "job_completed_iff_result",
    )  # fmt: skip


@pytest.mark.req("A-05")
def test_the_routing_of_a_job_is_kept_as_it_was_decided(work: Holdfast) -> None:
    (chunk,) = work._chunks("report.export", [{}], ORG, {}, whole=True)
    batch = chunk()
    batch.shared[0]["routing_decision"] = '{"provider": "openai", "model": "m-1"}'
    (enqueued,) = enqueueing.insert(work.store, batch)
    work.worker().run_once()

    text = "UPDATE holdfast.job_envelope SET routing_decision = '{}' WHERE id = :id"
    assert refused_by(work, text, id=enqueued.id) == "job_envelope_never_changes"
    job = work.get(enqueued.id, org_id=ORG)
    assert job.state is State.COMPLETED
    assert job.record["routing_decision"]["model"] == "m-1"


def test_the_next_stage_continues_under_the_same_claim(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)

    (settled,) = settle(work.store, [(claimed, Advanced('{"n":1}', "second", 3))], actor=SYSTEM)

    going = settled.next_claim
    assert going is not None
    assert (going.stage, going.attempt, going.max_attempts) == ("second", 1, 3)
    assert going.outputs == {"run": {"n": 1}}
    assert going.lease_token == claimed.lease_token
    assert work.get(enqueued.id, org_id=ORG).state is State.PROCESSING


@pytest.mark.req("A-09")
def test_a_lost_lease_is_audited_with_what_was_discarded(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)
    settle(work.store, [(claimed, Released("taken away"))], actor=SYSTEM)

    settle(work.store, [(claimed, Completed("1"))], actor=SYSTEM)

    last = events(work, enqueued)[-1]
    assert last["name"] == "job.lease_lost"
    assert '"completed"' in last["detail"]


@pytest.mark.req("I-14")
def test_a_settle_whose_answer_was_lost_is_settled_again_without_a_trace(hf: Holdfast) -> None:
    hf.job("report.export")(lambda job, payload: None)
    enqueued = hf.enqueue("report.export", {}, org_id=ORG)
    (job,) = claim(hf)

    (first,) = settle(hf.store, [(job, Completed("1"))], actor=SYSTEM)
    (again,) = settle(hf.store, [(job, Completed("1"))], actor=SYSTEM)
    (other,) = settle(hf.store, [(job, Canceled())], actor=SYSTEM)

    assert (first.lease_held, again.lease_held, other.lease_held) == (True, True, False)
    assert timeline(hf, enqueued) == [
        "job.enqueued",
        "job.started",
        "job.succeeded",
        "job.lease_lost",
    ]
