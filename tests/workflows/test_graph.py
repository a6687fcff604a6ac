"""Workflows as graphs: chain, group, chord, map and dependencies."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, Holdfast, InvalidJob, Permanent, Workflow, chain, chord, group
from tests.story import ORG
from tests.workflows.flow import drain, verify_clean


def declare(hf: Holdfast) -> dict[str, Any]:
    @hf.job("flow.double", max_attempts=1)
    def double(number: int) -> int:
        return number * 2

    @hf.job("flow.add", max_attempts=1)
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    @hf.job("flow.show", max_attempts=1)
    def show(job: Context) -> dict[str, Any]:
        return dict(job.results)

    return {"double": double, "add": add, "show": show}


def test_a_chain_passes_each_result_on(hf: Holdfast) -> None:
    jobs = declare(hf)
    handle = chain(jobs["double"].step(number=3), jobs["double"], jobs["double"]).enqueue(
        org_id=ORG
    )

    drain(hf)

    assert handle.result(timeout=10) == 24
    assert [step.state for step in handle.get().steps] == ["completed"] * 3
    verify_clean(hf)


def test_a_chord_joins_the_results_in_the_order_of_the_steps(hf: Holdfast) -> None:
    jobs = declare(hf)
    handle = chord([jobs["double"].step(number=n) for n in range(20)], jobs["add"]).enqueue(
        org_id=ORG
    )

    drain(hf)

    assert handle.result(timeout=10) == 2 * sum(range(20))
    verify_clean(hf)


def test_a_group_returns_the_results_of_all(hf: Holdfast) -> None:
    jobs = declare(hf)
    handle = group([jobs["double"].step(number=n) for n in (1, 2, 3)]).enqueue(org_id=ORG)

    drain(hf)

    assert handle.result(timeout=10) == [2, 4, 6]


def test_a_graph_runs_each_step_after_its_dependencies(hf: Holdfast) -> None:
    jobs = declare(hf)
    workflow = Workflow("diamond")
    top = workflow.add("top", jobs["double"].step(number=1))
    left = workflow.add("left", jobs["double"].step(number=top.output))
    right = workflow.add("right", jobs["double"].step(number=10), deps=["top"])
    workflow.add("bottom", jobs["show"].step(), deps=[left, right])
    handle = workflow.enqueue(org_id=ORG)

    drain(hf)

    assert handle.result(timeout=10) == {"left": 4, "right": 20}
    verify_clean(hf)


def test_a_workflow_with_a_known_key_is_not_enqueued_again(hf: Holdfast) -> None:
    jobs = declare(hf)
    first = chain(jobs["double"].step(number=3)).enqueue(org_id=ORG, key="once")
    second = chain(jobs["double"].step(number=3)).enqueue(org_id=ORG, key="once")

    assert (first.created, second.created) == (True, False)
    assert second.id == first.id


def test_a_failed_step_fails_the_workflow_and_starts_no_further_step(hf: Holdfast) -> None:
    jobs = declare(hf)

    @hf.job("flow.break")
    def broken() -> None:
        raise Permanent("no")

    workflow = Workflow("fails")
    first = workflow.add("first", broken.step())
    workflow.add("second", jobs["show"].step(), deps=[first])
    handle = workflow.enqueue(org_id=ORG)

    drain(hf)

    found = handle.get()
    assert found.state == "failed"
    assert [step.state for step in found.steps] == ["failed", "waiting"]
    verify_clean(hf)


@pytest.mark.parametrize(("policy", "state"), [("ignore", "completed"), ("continue", "failed")])
def test_a_failure_policy_lets_other_steps_continue(hf: Holdfast, policy: str, state: str) -> None:
    jobs = declare(hf)

    @hf.job("flow.odd")
    def odd(number: int) -> int:
        if number % 2:
            raise Permanent("odd")
        return number

    workflow = Workflow("partial")
    many = workflow.map("many", odd, [{"number": n} for n in range(4)], on_failure=policy)
    workflow.add("after", jobs["show"].step(), deps=[many])
    workflow.add("beside", jobs["double"].step(number=4))
    handle = workflow.enqueue(org_id=ORG)

    drain(hf)

    found = {step.name: step for step in handle.get().steps}
    assert handle.get().state == state
    assert found["beside"].state == "completed"
    if policy == "ignore":
        after = hf.get(handle.job_ids["after"][0], org_id=ORG)
        assert after.result == {"many": [0, None, 2, None]}
    else:
        assert found["after"].state == "waiting"
    verify_clean(hf)


def test_an_invalid_step_is_refused_and_nothing_is_written(hf: Holdfast) -> None:
    jobs = declare(hf)
    with pytest.raises(InvalidJob, match="number"):
        jobs["double"].step()
    with pytest.raises(InvalidJob, match="numbers"):
        jobs["add"].step(numbers="text")
    workflow = Workflow("bad")
    top = workflow.add("top", jobs["double"].step(number=1))
    with pytest.raises(InvalidJob, match="other"):
        workflow.add("next", jobs["double"].step(number=1, other=top.output))
    with pytest.raises(InvalidJob, match="not a step"):
        workflow.add("next", jobs["double"].step(number=1), deps=["missing"])
    with pytest.raises(InvalidJob, match="taken"):
        workflow.add("top", jobs["double"].step(number=1))
