"""The doctor's findings about batch processing, and the remedies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.operate.doctor import Finding, Limits, Severity, examine
from holdfast.operate.explain import Reason, explain_job
from holdfast_llm.batch.cost import record_calls
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import BudgetSettings
from tests.batch.ledger import PRICES, call
from tests.batch.planted import Shout, Stage, set_stage
from tests.batch.scripted import ScriptedAccounts
from tests.engine.planting import plant
from tests.operate.at_provider import plant_batch, plant_circuit, plant_items
from tests.rows import claim_by_hand, expire_lease, requeue
from tests.story import ORG

OK, NOTICE, WARNING, PROBLEM = Severity


def found(hf: Holdfast, check: str, **limits: Any) -> list[Finding]:
    """The doctor's finding about one subject; None if it is healthy."""
    context = hf.operate(actor="user:op", role="admin").context
    every = [one for one in examine(context, replace(Limits(), **limits)) if one.check == check]
    bad = [one for one in every if one.severity is not OK]
    assert all(one.remedy and one.seen for one in bad)
    return bad


def test_a_lane_without_work_is_well(hf: Holdfast) -> None:
    for check in ("lane", "quarantine", "circuits", "prices", "batch_files"):
        assert found(hf, check) == []


def test_jobs_of_the_lane_wait_for_no_worker(hf: Holdfast, clock: FakeClock, stage: Stage) -> None:
    hf.enqueue("text.shout", {"text": "one"}, org_id=ORG)
    clock.advance(minutes=59)
    assert found(hf, "queues") == []
    assert found(hf, "lane") == []

    clock.advance(minutes=1)

    (told,) = found(hf, "lane")
    assert told.severity is PROBLEM
    assert "have waited for batch submission for 60 min; batch_submitter never ran" in told.seen
    assert "holdfast run batch_submitter" in told.remedy
    assert found(hf, "queues") == []


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


def test_work_beside_the_lane_still_needs_a_worker(
    hf: Holdfast, clock: FakeClock, stage: Stage
) -> None:
    hf.job("report.export")(lambda job, payload: None)
    hf.enqueue("text.shout", {"text": "one"}, org_id=ORG)
    hf.enqueue("report.export", {}, org_id=ORG)
    clock.advance(minutes=6)

    (told,) = found(hf, "queues")
    assert told.facts["queue"] == "q:default"


def test_uncollected_batches_are_a_problem(hf: Holdfast, clock: FakeClock, stage: Stage) -> None:
    stage.plant("one", "two")
    perform_run(hf, "batch_collector", trigger=Trigger(TriggerKind.CRON))
    clock.advance(minutes=50)
    assert found(hf, "lane") == []

    clock.advance(hours=2)

    (told,) = found(hf, "lane")
    assert told.severity is PROBLEM
    assert "1 batches that are submitted, with 2 items" in told.seen
    assert "batch_collector last ran at 2026-01-05 09:00:00 UTC" in told.seen


def test_a_create_without_an_answer_is_the_submitters(hf: Holdfast, clock: FakeClock) -> None:
    plant_batch(hf, "creating", items=7)
    clock.advance(hours=2)

    (told,) = found(hf, "lane")
    assert "with 7 items" in told.seen
    assert "batch_submitter never ran" in told.seen


def test_a_quarantined_batch_is_a_problem_until_an_operator_decides(hf: Holdfast) -> None:
    batch_id = plant_batch(hf, "quarantined", items=4)

    (told,) = found(hf, "quarantine")

    assert (told.severity, told.facts) == (PROBLEM, {"batch_id": batch_id, "items": 4})
    assert f"holdfast batches show {batch_id}" in told.remedy


def test_an_account_that_refuses_everything_is_a_problem(hf: Holdfast) -> None:
    plant_circuit(hf, "openai")

    (told,) = found(hf, "circuits")

    assert told.severity is PROBLEM
    assert "insufficient_quota" in told.seen
    assert "No attempt was counted" in told.remedy


def test_files_left_at_a_provider_are_reported(hf: Holdfast, clock: FakeClock) -> None:
    plant_batch(hf, "collected")
    clock.advance(hours=23)
    assert found(hf, "batch_files") == []
    clock.advance(hours=2)

    (told,) = found(hf, "batch_files")
    assert (told.severity, told.facts["batches"]) == (WARNING, 1)


def test_a_model_without_a_price_is_reported(hf: Holdfast, clock: FakeClock, stage: Stage) -> None:
    resources = stage.service.resources
    unpriced = replace(resources.settings, prices=())
    stage.service = BatchService(replace(resources, settings=unpriced))
    stage.plant("one", "two")
    stage.provider.complete()
    stage.collect(minutes=5)

    (told,) = found(hf, "prices")

    assert told.severity is WARNING
    assert told.seen.startswith("2 answers of model-1 at openai (batch) without a price")
    clock.advance(days=8)
    assert found(hf, "prices") == []


def test_list_prices_that_are_old_are_warned_about(hf: Holdfast, clock: FakeClock) -> None:
    clock.advance(datetime(2028, 1, 1, tzinfo=UTC) - clock.now())
    assert found(hf, "prices") == []
    entry = call(0, Route("anthropic", "anthropic", "m1"), occurred_at=clock.now())
    hf.store.write(lambda tx: record_calls(tx, Prices(PRICES), [entry]))

    old = [finding for finding in found(hf, "prices") if "built-in prices" in finding.seen]

    assert [finding.facts["provider"] for finding in old] == ["anthropic"]
    assert "https://platform.claude.com" in old[0].remedy
    hf.settings = replace(hf.settings, budgets={ORG: BudgetSettings(usd_per_day=Decimal(1))})
    with_budget = [one for one in found(hf, "prices") if "built-in prices" in one.seen]
    assert len(with_budget) == 4


def test_a_job_in_a_batch_is_not_an_unrescued_lease(
    hf: Holdfast, clock: FakeClock, stage: Stage
) -> None:
    planted = stage.plant("one")
    requeue(hf.store, planted.jobs[0].id)
    claim_by_hand(hf.store, planted.jobs[0].id)
    expire_lease(hf.store, planted.jobs[0].id)
    clock.advance(hours=1)
    assert found(hf, "rescue") == []

    plant(hf, "DELETE FROM holdfast.batch_item WHERE batch_id = :id", id=planted.id)
    assert found(hf, "rescue")


def test_a_look_reads_no_further_than_its_limit(hf: Holdfast) -> None:
    for _ in range(3):
        plant_items(hf, plant_batch(hf, "quarantined"), ORG, 1)

    assert len(found(hf, "quarantine", count=2)) == 2


def test_jobs_that_wait_for_an_account_name_the_variable_that_is_missing(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = Route("openai", "openai_responses", "model-1")
    hf.batch("text.ask", route=route)(Shout)
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    # Deferred jobs wait for it too.
    later = clock.now() + timedelta(minutes=1)
    hf.enqueue("text.ask", {"text": "one"}, org_id=ORG, not_before_at=later)
    assert found(hf, "accounts") == []
    monkeypatch.delenv("OPENAI_API_KEY")

    (told,) = found(hf, "accounts")

    assert told.severity is WARNING
    assert "1 job waits for an account at openai" in told.seen
    assert "set the variable OPENAI_API_KEY" in told.remedy
    assert "canary" not in repr(told)


def test_batches_without_their_credential_are_a_problem_until_it_is_restored(
    hf: Holdfast, stage: Stage
) -> None:
    planted = stage.plant("one", "two")
    accounts = stage.service.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.missing.add(stage.batch(planted)["account"])
    stage.collect()

    (told,) = found(hf, "accounts")
    said = explain_job(hf.operate(actor="user:op", role="admin").context, planted.jobs[0].id)

    assert told.severity is PROBLEM
    assert "1 batches with 2 items" in told.seen
    assert said.reason is Reason.NO_ACCOUNT
    assert "cannot be polled" in said.line
    accounts.missing.clear()
    stage.collect(minutes=30)
    assert found(hf, "accounts") == []
