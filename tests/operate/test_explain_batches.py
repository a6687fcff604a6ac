"""Why a job of batch processing is in its state, and the condition for the next change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from holdfast import Enqueued, FakeClock, Holdfast
from holdfast.clock import write_instant
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import SYSTEM, Claimed, Released
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.settle import settle
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.operate.explain import Explanation, Reason, explain_job
from holdfast_llm.settings import BudgetSettings
from tests.batch.planted import Stage, set_stage
from tests.engine.planting import plant
from tests.operate.at_provider import plant_circuit, plant_claim_of_submitter
from tests.story import ORG, by_hand, claim


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


def explain(hf: Holdfast, job: Enqueued) -> Explanation:
    return explain_job(hf.operate(actor="user:op", role="admin").context, job.id)


def enqueue(hf: Holdfast) -> Enqueued:
    return hf.enqueue("text.shout", {"text": "canary-text"}, org_id=ORG)


# -- before it is submitted


def test_a_job_waits_for_the_submitter_also_where_workers_live(hf: Holdfast, stage: Stage) -> None:
    job = enqueue(hf)
    Heartbeat(hf.store, {}, "w1", ["q:default"], ["text.shout"], lease_ms=60_000).send()

    found = explain(hf, job)

    assert (found.reason, found.until) == (Reason.AWAITS_RUN, None)
    assert found.line.endswith("batch_submitter is not scheduled.")
    assert "holdfast run batch_submitter" in found.next


def test_the_next_run_of_the_submitter_is_explained(
    hf: Holdfast, stage: Stage, clock: FakeClock
) -> None:
    job = enqueue(hf)
    sync_schedules(hf)

    found = explain(hf, job)

    assert found.reason is Reason.AWAITS_RUN
    assert found.until is not None
    assert timedelta(0) < found.until - clock.now() <= timedelta(minutes=15)


def test_an_account_that_refuses_everything_is_the_reason(hf: Holdfast, stage: Stage) -> None:
    job = enqueue(hf)
    plant_circuit(hf, "gemini")
    assert explain(hf, job).reason is Reason.AWAITS_RUN
    plant_circuit(hf, "openai", minutes=5)

    found = explain(hf, job)

    assert (found.reason, found.facts["error_code"]) == (
        Reason.CIRCUIT_OPEN,
        "insufficient_quota",
    )
    assert found.until == hf.clock.now() + timedelta(minutes=5)


def test_a_job_that_waits_for_its_account_says_so_and_where_to_ask(
    hf: Holdfast, stage: Stage, clock: FakeClock
) -> None:
    job = enqueue(hf)
    (claimed,) = claim_batched(hf)
    settle(hf.store, [(claimed, Released("account_unknown", 300_000))], actor=SYSTEM)

    waits = explain(hf, job)
    clock.advance(minutes=6)
    due = explain(hf, job)

    assert waits.reason is due.reason is Reason.NO_ACCOUNT
    assert waits.facts["provider"] == "openai"
    assert "its account at openai was not usable" in waits.line
    assert "holdfast doctor" in waits.next


def test_a_spent_budget_is_the_reason_also_while_the_job_is_put_off(
    hf: Holdfast, stage: Stage, clock: FakeClock
) -> None:
    hf.settings = replace(hf.settings, budgets={ORG: BudgetSettings(usd_per_day=Decimal(0))})
    job = enqueue(hf)
    assert explain(hf, job).reason is Reason.OVER_BUDGET
    (claimed,) = claim_batched(hf)
    settle(hf.store, [(claimed, Released("budget", 900_000))], actor=SYSTEM)

    found = explain(hf, job)

    assert found.reason is Reason.OVER_BUDGET
    assert found.until is not None
    assert (found.until.hour, found.until.day) == (0, clock.now().day + 1)


def claim_batched(hf: Holdfast) -> list[Claimed]:
    assert claim(hf) == [], "a worker takes nothing of the lane"
    return claim_jobs(
        hf.store, queue="q:default", worker_id="w", limit=1, lease_ms=60_000, of_batch=True
    )


def test_what_does_not_fit_into_a_batch_is_put_off(
    hf: Holdfast, stage: Stage, clock: FakeClock
) -> None:
    job = enqueue(hf)
    (claimed,) = claim_batched(hf)
    settle(hf.store, [(claimed, Released("overflow", 60_000))], actor=SYSTEM)

    found = explain(hf, job)

    assert (found.reason, found.facts["because"]) == (Reason.NOT_DUE, "released")
    assert "overflow" in found.line
    assert found.until == clock.now() + timedelta(minutes=1)


# -- at the provider


def test_a_submitted_job_says_which_batch_it_is_in_and_when_it_is_asked_about(
    hf: Holdfast, stage: Stage, clock: FakeClock
) -> None:
    planted = stage.plant("one", "canary-two")

    found = explain(hf, planted.jobs[1])

    assert found.reason is Reason.AWAITS_BATCH
    assert found.until == clock.now()
    assert planted.id in found.line
    assert "with 2 items" in found.line
    assert found.facts["provider_batch_id"] == planted.at_provider.id
    assert found.facts["item"] == 1
    assert found.facts["deadline_at"] == clock.now() + timedelta(hours=25)
    assert "canary" not in repr(found)

    plant(hf, "UPDATE holdfast.provider_batch SET state = 'ended' WHERE id = :id", id=planted.id)
    assert "its answer is being read" in explain(hf, planted.jobs[1]).line


def test_a_quarantined_batch_waits_for_a_person(hf: Holdfast, stage: Stage) -> None:
    planted = stage.plant("one")
    by_hand(
        hf.store,
        "UPDATE holdfast.provider_batch SET state = 'quarantined', error_code = 'cross_wired',"
        " updated_at = {now} WHERE id = :id RETURNING id",
        id=planted.id,
    )

    found = explain(hf, planted.jobs[0])

    assert (found.reason, found.until) == (Reason.QUARANTINED, None)
    assert "(cross_wired)" in found.line
    assert found.next.endswith(f"holdfast batches show {planted.id}")


@pytest.mark.parametrize(
    ("state", "doubt"),
    [
        ("creating", "submission is not confirmed yet"),
        ("uploaded", "not submitted yet"),
    ],
)
def test_a_job_whose_submitter_went_is_held_and_not_rescued(
    hf: Holdfast, stage: Stage, clock: FakeClock, state: str, doubt: str
) -> None:
    planted = stage.plant("one")
    later = clock.now() + timedelta(minutes=1)
    plant_claim_of_submitter(hf, planted.jobs[0].id, "w9", until=later)
    plant(
        hf,
        "UPDATE holdfast.provider_batch SET state = :state WHERE id = :id",
        id=planted.id,
        state=state,
    )
    # The lease of the job does not tell the state of its batch.
    before = explain(hf, planted.jobs[0])
    clock.advance(minutes=2)

    found = explain(hf, planted.jobs[0])

    assert found.reason is before.reason is Reason.HELD
    assert doubt in found.line
    assert f"is {state}" in found.line
    assert "continues at" in found.next
    assert found.until == clock.now() - timedelta(minutes=2)


@pytest.mark.parametrize("state", ["prepared", "uploaded", "creating"])
def test_a_job_whose_batch_is_being_sent_says_by_which_run(
    hf: Holdfast, stage: Stage, clock: FakeClock, state: str
) -> None:
    planted = stage.plant("one")
    later = clock.now() + timedelta(minutes=1)
    plant_claim_of_submitter(hf, planted.jobs[0].id, "run-1", until=later)
    plant(
        hf,
        "UPDATE holdfast.provider_batch SET state = :state, lease_owner = 'run-1',"
        " lease_expires_at = {later(60000)} WHERE id = :id",
        id=planted.id,
        state=state,
        now=write_instant(clock.now()),
    )

    found = explain(hf, planted.jobs[0])

    assert found.reason is Reason.HELD
    assert f"is {state}" in found.line
    assert "run-1 is submitting it" in found.next
    assert found.until == clock.now() + timedelta(minutes=1)


def test_a_submitted_job_that_no_batch_has_says_what_to_look_at(hf: Holdfast, stage: Stage) -> None:
    planted = stage.plant("one")
    plant(hf, "DELETE FROM holdfast.batch_item WHERE batch_id = :id", id=planted.id)

    found = explain(hf, planted.jobs[0])

    assert (found.reason, found.next) == (
        Reason.HELD,
        "Investigate: holdfast verify --only I22",
    )
