"""Budgets of workflow steps: a call beyond the budget is not sent, and the others are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from holdfast import (
    EnqueuedWorkflow,
    FakeClock,
    Holdfast,
    InvalidJob,
    State,
    Workflow,
    WorkflowState,
)
from holdfast.operate.operator import Operator
from holdfast_llm.settings import PriceSettings
from tests.batch.outgoing import JOB_TYPE, set_out
from tests.batch.test_call import Scene, scene
from tests.story import ORG, events, make_holdfast

__all__ = ["scene"]

# A call of these tests costs 2 cents, and at most 2.1 to 5 dollars before it is made.
PRICE = PriceSettings(
    "openai", "model-1", "async", date(2020, 1, 1), Decimal(1000), output=Decimal(1000)
)


@pytest.fixture
def priced(scene: Scene) -> Scene:
    scene.hf.settings = replace(scene.hf.settings, prices=(PRICE,))
    return scene


def enqueue(
    scene: Scene, budget: object, texts: int = 1, text: str = "text", **options: object
) -> EnqueuedWorkflow:
    workflow = Workflow("shouts")
    shout = scene.hf.declared("text.shout")
    items = [{"text": f"{text} {number}"} for number in range(texts)]
    workflow.map("shout", shout, items, budget=budget, **options)  # type: ignore[arg-type]
    return workflow.enqueue(org_id=ORG)


def work(scene: Scene, **advance: float) -> dict[str, int]:
    """Run workers until nothing is due; return the outcomes."""
    if advance:
        scene.clock.advance(**advance)
    done = dict[str, int]()
    while found := dict(scene.hf.worker().run_once().outcomes):
        done = {name: done.get(name, 0) + found.get(name, 0) for name in (*done, *found)}
    return done


def cost_of_a_call(scene: Scene) -> tuple[Decimal, Decimal]:
    """The maximum cost of a call before it is made, and what it costs."""
    scene.enqueue("text n")
    work(scene)
    [item], [entry] = scene.items, scene.ledger
    return (Decimal(int(item["reserve_pico"])) / 10**12, Decimal(int(entry["cost_pico"])) / 10**12)


def operator(hf: Holdfast) -> Operator:
    return hf.operate(actor="user:ann", role="admin")


def test_a_step_within_its_budget_completes(priced: Scene) -> None:
    most, _ = cost_of_a_call(priced)
    handle = enqueue(priced, budget=most * 3, texts=3)

    assert work(priced) == {"completed": 3}

    assert handle.get().state is WorkflowState.COMPLETED


def test_calls_beyond_the_budget_are_not_sent_and_the_step_fails(priced: Scene) -> None:
    most, cost = cost_of_a_call(priced)
    sent = priced.provider.calls["call"]
    handle = enqueue(priced, budget=most + cost / 2, texts=3, on_failure="continue")

    work(priced)
    # A job that may fit when the open calls have ended waits for a minute.
    work(priced, minutes=1)

    assert handle.get().state is WorkflowState.FAILED
    assert priced.provider.calls["call"] - sent == 1
    [step] = handle.get().steps
    assert (step.jobs_failed, step.jobs_left) == (2, 0)
    jobs = [priced.hf.get(job_id, org_id=ORG) for job_id in handle.job_ids["shout"]]
    assert sorted(str(job.error_class) for job in jobs) == [
        "None", "STEP_BUDGET_EXCEEDED", "STEP_BUDGET_EXCEEDED",
    ]  # fmt: skip
    assert "remedy=holdfast workflows budget" in str(
        next(job.last_error for job in jobs if job.state is State.FAILED)
    )


def test_the_cost_of_one_step_does_not_count_for_another_step_or_workflow(
    priced: Scene,
) -> None:
    most, _ = cost_of_a_call(priced)
    shout = priced.hf.declared("text.shout")
    workflow = Workflow("two")
    first = workflow.add("first", shout.step(text="one"), budget=most)
    workflow.add("second", shout.step(text="two"), deps=[first], budget=most)

    handles = [workflow.enqueue(org_id=ORG), enqueue(priced, budget=most)]
    work(priced)

    assert [handle.get().state for handle in handles] == [WorkflowState.COMPLETED] * 2


def test_a_failed_job_continues_with_a_higher_budget_and_a_replay(priced: Scene) -> None:
    most, cost = cost_of_a_call(priced)
    handle = enqueue(priced, budget=cost / 2)
    assert work(priced) == {"dead": 1}
    noun = operator(priced.hf).workflows

    noun.set_budget(handle.id, "shout", str(most), reason="it is worth it")
    noun.replay(handle.id, reason="it is worth it")
    work(priced)

    assert handle.get().state is WorkflowState.COMPLETED
    assert handle.get().steps[0].budget_usd is not None
    written = [row["name"] for row in priced.rows("job_event", "at") if "budget" in row["name"]]
    assert written == ["workflow.budget_changed"]


def test_what_a_replayed_job_costs_counts_for_its_step(priced: Scene) -> None:
    most, _ = cost_of_a_call(priced)
    handle = enqueue(priced, budget=most, text="never")
    assert work(priced) == {"dead": 1}

    operator(priced.hf).workflows.replay(handle.id, reason="again")

    assert work(priced) == {"dead": 1}
    replayed = [row for row in priced.ledger if row["job_id"] not in handle.job_ids["shout"]]
    assert len(replayed) == 1  # The call before the workflow; the replay was not sent.


def test_a_step_that_is_sent_in_batches_has_a_budget_too(url: str, clock: FakeClock) -> None:
    price = PriceSettings("openai", "*", "batch", date(2025, 1, 1), Decimal(1), output=Decimal(1))
    hf = make_holdfast(url, clock, prices=(price,))
    try:
        out = set_out(hf, clock)
        workflow = Workflow("batched")
        items = [{"text": text} for text in ("one", "two", "three")]
        # A request may cost 0.0009 dollars at most.
        workflow.map("shout", hf.declared(JOB_TYPE), items, budget="0.0015")
        handle = workflow.enqueue(org_id=ORG)

        done = out.submit()

        assert done.outcomes == Counter(submitted=1, released=2)
        waits = [operator(hf).explain(job_id) for job_id in handle.job_ids["shout"]]
        assert Counter(str(one.reason) for one in waits) == {"over_budget": 2, "awaits_batch": 1}
        assert out.alerts() == []
    finally:
        hf.close()


def test_a_step_without_a_price_waits_for_one(scene: Scene) -> None:
    handle = enqueue(scene, budget=5)

    assert work(scene) == {"released": 1}

    [job_id] = handle.job_ids["shout"]
    assert '"unpriced"' in str(events(scene.hf, scene.hf.get(job_id, org_id=ORG))[-1]["detail"])
    told = operator(scene.hf).explain(job_id)
    assert told.reason == "unpriced", told
    scene.hf.settings = replace(scene.hf.settings, prices=(PRICE,))
    assert work(scene, minutes=1) == {"completed": 1}


@pytest.mark.parametrize("wrong", [0, -1, "much", float("nan"), float("inf"), True, 10**7, "1e400"])
def test_a_budget_that_is_no_amount_is_refused(scene: Scene, wrong: object) -> None:
    with pytest.raises(InvalidJob) as refused:
        enqueue(scene, budget=wrong)

    assert "US dollars" in refused.value.fields["budget"]
