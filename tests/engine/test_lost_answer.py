"""A COMMIT whose answer is lost: the work runs again, and nothing is recorded twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.engine import enqueue as enqueueing
from holdfast.engine.job import (
    SYSTEM,
    Actor,
    ActorType,
    Advanced,
    Canceled,
    Claimed,
    Completed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    Snoozed,
    Submitted,
)
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from tests.engine.faulty import FaultyStore
from tests.operate.sound import assert_sound, report_of, violations
from tests.postgres_server import PostgresServer
from tests.store.proxy import Wire
from tests.story import ORG, OTHER_ORG, by_hand, claim, make_holdfast, timeline

FAULT = Fault("NETWORK_TIMEOUT", "NETWORK_TIMEOUT stage=first attempt=1", True)
WORKER = Actor(ActorType.SYSTEM, "w1")

OUTCOMES: dict[str, tuple[Outcome, list[str]]] = {
    "completed": (Completed('{"n":1}'), ["job.succeeded"]),
    "advanced": (Advanced('{"n":1}', "second", 3), ["job.advanced"]),
    "retry": (Retry(FAULT, 1_000), ["job.failed", "job.retried"]),
    "retry at once": (Retry(FAULT, None), ["job.failed", "job.retried"]),
    "dead": (Dead(FAULT), ["job.failed", "job.deadlettered"]),
    "snoozed": (Snoozed(1_000), ["job.snoozed"]),
    "released": (Released("overflow", 1_000), ["job.released"]),
    "submitted": (Submitted("batch_1"), ["job.submitted"]),
    "canceled": (Canceled(), ["job.canceled"]),
}
BACK_IN_THE_QUEUE = ["retry at once", "snoozed", "released"]


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    pipeline = hf.pipeline("order.pack")
    pipeline.stage("first")(lambda job, payload: 1)
    pipeline.stage("second")(lambda job, payload: 2)
    return hf


def claim_many(hf: Holdfast, many: int) -> list[Claimed]:
    hf.enqueue_many("order.pack", [{} for _ in range(many)], org_id=ORG)
    return claim(hf, limit=many)


@pytest.mark.req("I-14", "I-18")
@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_is_recorded_once_when_the_answer_to_its_commit_is_lost(
    work: Holdfast, name: str, many: int
) -> None:
    outcome, events = OUTCOMES[name]
    jobs = claim_many(work, many)
    store = FaultyStore(work.store).lose_answer()

    settled = settle(store, [(job, outcome) for job in jobs], actor=WORKER)

    assert store.lost == 1
    assert [one.lease_held for one in settled] == [True] * many
    for job in jobs:
        assert timeline(work, job) == ["job.enqueued", "job.started", *events]
    # One job and three leave the same rows.
    if name != "submitted" and many > 1:
        assert_sound(work)


@pytest.mark.req("I-14", "I-18")
@pytest.mark.parametrize("name", BACK_IN_THE_QUEUE)
def test_an_outcome_is_recognised_after_another_worker_has_claimed_the_job(
    work: Holdfast, clock: FakeClock, name: str
) -> None:
    outcome, events = OUTCOMES[name]
    (job,) = claim_many(work, 1)
    other: list[Claimed] = []

    def claim_elsewhere() -> None:
        clock.advance(seconds=2)
        other.extend(claim(work, worker="w2"))

    store = FaultyStore(work.store).lose_answer(meanwhile=claim_elsewhere)
    (settled,) = settle(store, [(job, outcome)], actor=WORKER)
    (of_other,) = settle(work.store, [(other[0], Dead(FAULT))], actor=SYSTEM)

    assert settled.lease_held
    assert of_other.lease_held
    assert timeline(work, job) == [
        "job.enqueued", "job.started", *events, "job.started", "job.failed", "job.deadlettered",
    ]  # fmt: skip
    assert_sound(work)


@pytest.mark.req("I-14")
def test_a_rescued_claim_is_lost_even_when_its_worker_wanted_a_retry(
    work: Holdfast, clock: FakeClock
) -> None:
    (job,) = claim_many(work, 1)
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)

    (settled,) = settle(work.store, [(job, Retry(FAULT, 1_000))], actor=WORKER)

    assert not settled.lease_held
    assert timeline(work, job)[-1] == "job.lease_lost"
    assert_sound(work)


@pytest.mark.req("I-14", "E-04")
def test_a_second_outcome_of_a_claim_that_ended_changes_nothing(work: Holdfast) -> None:
    done, dead = claim_many(work, 2)
    settle(work.store, [(done, Completed("1")), (dead, Dead(FAULT))], actor=WORKER)
    other_fault = replace(FAULT, last_error="STORE_UNAVAILABLE stage=first attempt=1")

    again = settle(work.store, [(done, Completed("2")), (dead, Dead(other_fault))], actor=WORKER)

    assert [one.lease_held for one in again] == [True, True]
    assert work.get(done.id, org_id=ORG).result == 1
    assert work.get(dead.id, org_id=ORG).last_error == FAULT.last_error
    assert timeline(work, done)[-1] == "job.succeeded"
    assert timeline(work, dead)[-1] == "job.deadlettered"


def test_the_next_stage_starts_once_when_the_answer_to_the_advance_is_lost(
    work: Holdfast,
) -> None:
    (job,) = claim_many(work, 1)
    store = FaultyStore(work.store).lose_answer()

    (settled,) = settle(store, [(job, Advanced("1", "second", 3))], actor=WORKER)

    going = settled.next_claim
    assert going is not None
    assert (going.stage, going.attempt, going.lease_token) == ("second", 1, 1)
    settle(work.store, [(going, Completed("2"))], actor=WORKER)
    assert_sound(work)


def test_an_advance_is_not_repeated_at_a_later_stage(work: Holdfast) -> None:
    (job,) = claim_many(work, 1)
    (first,) = settle(work.store, [(job, Advanced("1", "second", 3))], actor=WORKER)
    assert first.next_claim is not None

    late = settle(work.store, [(job, Retry(FAULT, None)), (job, Dead(FAULT))], actor=WORKER)

    assert [one.lease_held for one in late] == [False, False]
    found = work.get(job.id, org_id=ORG)
    assert (found.state, found.stage, found.attempt_count) == (State.PROCESSING, "second", 0)


def test_the_next_stage_does_not_start_after_the_claim_was_lost(
    work: Holdfast, clock: FakeClock
) -> None:
    (job,) = claim_many(work, 1)

    def lose_the_lease() -> None:
        clock.advance(seconds=61)
        rescue_jobs(work.store, limit=1)
        assert len(claim(work, worker="w2")) == 1

    store = FaultyStore(work.store).lose_answer(meanwhile=lose_the_lease)
    (settled,) = settle(store, [(job, Advanced("1", "second", 3))], actor=WORKER)

    assert settled.lease_held
    assert settled.next_claim is None
    assert timeline(work, job).count("job.advanced") == 1
    assert "job.lease_lost" not in timeline(work, job)
    assert_sound(work)


def test_a_cancel_settled_with_the_outcome_is_reported_when_the_answer_is_lost(
    work: Holdfast,
) -> None:
    (job,) = claim_many(work, 1)
    work.cancel(job.id, org_id=ORG)
    store = FaultyStore(work.store).lose_answer()

    (settled,) = settle(store, [(job, Snoozed(1_000))], actor=WORKER)

    assert settled.lease_held
    assert settled.canceled_instead
    assert timeline(work, job)[-2:] == ["job.snoozed", "job.canceled"]
    assert_sound(work)


# -- one group, several claims


@pytest.mark.req("I-14", "J-09")
def test_a_group_with_an_old_and_a_new_claim_of_a_job_records_the_new_one_alone(
    work: Holdfast, clock: FakeClock
) -> None:
    """A worker that waited for the database may hold both when it continues."""
    (old,) = claim_many(work, 1)
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)
    (new,) = claim(work)

    settled = settle(work.store, [(old, Retry(FAULT, None)), (new, Completed("1"))], actor=WORKER)

    assert [one.lease_held for one in settled] == [False, True]
    found = work.get(old.id, org_id=ORG)
    assert (found.state, found.attempt_count) == (State.COMPLETED, 1)
    assert timeline(work, old)[4:] == ["job.started", "job.succeeded", "job.lease_lost"]
    assert_sound(work)


def test_of_two_outcomes_of_one_claim_the_first_is_recorded(work: Holdfast) -> None:
    """A handler may end at the moment at which its time limit abandons it."""
    (job,) = claim_many(work, 1)

    settled = settle(work.store, [(job, Retry(FAULT, 1_000)), (job, Completed("1"))], actor=WORKER)

    assert [one.lease_held for one in settled] == [True, False]
    assert work.get(job.id, org_id=ORG).state is State.QUEUED
    assert_sound(work)


def enqueue_as(hf: Holdfast, job_id: str, org_id: str) -> None:
    enqueueing.insert(hf.store, hf.prepare("order.pack", {}, job_id=job_id, org_id=org_id))


@pytest.mark.req("X-09")
@pytest.mark.parametrize("stops", [False, True])
def test_jobs_of_two_tenants_with_the_same_id_are_settled_apart(
    work: Holdfast, clock: FakeClock, stops: bool
) -> None:
    if not work.store.is_embedded:
        pytest.skip("PostgreSQL refuses the second job (job_once_per_id)")
    job_id = work.ids.new()
    for org_id in (ORG, OTHER_ORG):
        enqueue_as(work, job_id, org_id)
    claimed = {job.org_id: job for job in claim(work, limit=2)}
    if stops:
        work.cancel(job_id, org_id=OTHER_ORG)
    settle(work.store, [(claimed[ORG], Released("taken away"))], actor=SYSTEM)

    settled = settle(
        work.store,
        [(claimed[ORG], Completed("1")), (claimed[OTHER_ORG], Snoozed(1_000))],
        actor=WORKER,
    )

    assert [one.lease_held for one in settled] == [False, True]
    assert [one.canceled_instead for one in settled] == [False, stops]
    assert work.get(job_id, org_id=ORG).state is State.QUEUED
    assert timeline(work, claimed[ORG])[-1] == "job.lease_lost"
    assert timeline(work, claimed[OTHER_ORG])[-1] == ("job.canceled" if stops else "job.snoozed")
    # I29 reports that two tenants share an id.
    assert set(violations(report_of(work))) == {"I29"}


# -- enqueue, claim and rescue


@pytest.mark.req("I-18")
def test_an_enqueue_is_recorded_once_when_the_answer_is_lost(work: Holdfast) -> None:
    batch = work.prepare("order.pack", {}, job_id=work.ids.new(), org_id=ORG)
    store = FaultyStore(work.store).lose_answer()

    (enqueued,) = enqueueing.insert(store, batch)

    assert store.lost == 1
    assert enqueued.created
    assert timeline(work, enqueued) == ["job.enqueued"]
    assert_sound(work)


@pytest.mark.req("I-18", "C-09")
@pytest.mark.parametrize("many", [1, 3])
def test_a_rescue_is_recorded_once_when_the_answer_is_lost(
    work: Holdfast, clock: FakeClock, many: int
) -> None:
    jobs = claim_many(work, many)
    clock.advance(seconds=61)

    rescue_jobs(FaultyStore(work.store).lose_answer(), limit=10)

    for job in jobs:
        assert work.get(job.id, org_id=ORG).attempt_count == 1
        assert timeline(work, job).count("job.retried") == 1
    assert_sound(work)


# -- verify


@pytest.mark.parametrize("name", ["advanced", "released"])
def test_verify_finds_an_outcome_that_the_audit_has_twice(work: Holdfast, name: str) -> None:
    outcome, (event,) = OUTCOMES[name]
    (job,) = claim_many(work, 1)
    settle(work.store, [(job, outcome)], actor=WORKER)
    assert_sound(work)

    by_hand(
        work.store,
        "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
        " actor_id, request_id, correlation_id, at, detail)"
        " SELECT org_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,"
        " correlation_id, at, detail FROM holdfast.job_event WHERE name = :name",
        name=event,
    )

    found = violations(report_of(work))
    assert f"job:{job.id} the audit has 1 outcomes twice" in found["I1"]


# -- on the wire


@pytest.fixture
def wired(postgres: PostgresServer, postgres_url: str) -> Iterator[tuple[Holdfast, Wire]]:
    wire = Wire(postgres.port)
    url = postgres_url.replace(f":{postgres.port}/", f":{wire.port}/")
    with make_holdfast(url) as hf:
        hf.job("order.pack")(lambda job, payload: 1)
        yield hf, wire
    wire.close()


@pytest.mark.req("I-14", "I-18")
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_connection_cut_after_the_server_committed_leaves_one_outcome(
    wired: tuple[Holdfast, Wire], name: str
) -> None:
    hf, wire = wired
    outcome, events = OUTCOMES[name]
    jobs = claim_many(hf, 2)

    wire.lose_answer_to("COMMIT")
    settled = settle(hf.store, [(job, outcome) for job in jobs], actor=WORKER)

    assert wire.lost == 1
    assert [one.lease_held for one in settled] == [True, True]
    for job in jobs:
        assert timeline(hf, job) == ["job.enqueued", "job.started", *events]
