"""Operators list, explain, cancel and replay workflows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    DeadLetterFilter,
    FakeClock,
    Forbidden,
    Holdfast,
    Permanent,
    Workflow,
    WorkflowNotFound,
)
from holdfast.operate.operator import Operator
from holdfast.operate.refusal import InvalidAction, StepRefused
from holdfast.workflows.cleanup import upkeep
from tests.story import ORG, OTHER_ORG, by_hand, look
from tests.workflows.flow import drain, verify_clean


def operate(hf: Holdfast, org_id: str | None = None, role: str = "admin") -> Any:
    operator: Operator = hf.operate(actor="user:ops", role=role, org_id=org_id)
    return operator.workflows


def build(hf: Holdfast, broken: set[str]) -> Any:
    """Two branches and a last step that needs both."""

    @hf.job("flow.work")
    def work(name: str) -> str:
        if name in broken:
            raise Permanent(name)
        return name.upper()

    @hf.job("flow.last")
    def last(job: Context) -> dict[str, Any]:
        return dict(job.results)

    workflow = Workflow("branches")
    left = workflow.add("left", work.step(name="left"), on_failure="continue")
    right = workflow.add("right", work.step(name="right"))
    workflow.add("last", last.step(), deps=[left, right])
    return workflow.enqueue(org_id=ORG)


def test_a_failed_branch_is_replayed_and_the_downstream_continues(hf: Holdfast) -> None:
    broken = {"left"}
    handle = build(hf, broken)
    drain(hf)
    assert handle.get().state == "failed"
    assert "needs left (failed)" in operate(hf).explain(handle.id).steps[2].line

    broken.clear()
    answer = operate(hf).replay(handle.id, step="left", reason="the supplier is back")
    assert (answer.replayed, answer.refused) == (1, 0)
    assert handle.get().state == "running"
    drain(hf)

    assert handle.result(timeout=10) == {"left": "LEFT", "right": "RIGHT"}
    verify_clean(hf)


def test_a_replay_of_the_dead_letter_continues_the_workflow_too(hf: Holdfast) -> None:
    broken = {"right"}
    handle = build(hf, broken)
    drain(hf)
    broken.clear()
    letters = hf.operate(actor="user:ops", role="admin").dead_letters
    done = letters.recover(DeadLetterFilter(job_type="flow.work"), reason="back", kind="transient")
    assert done
    drain(hf)

    assert handle.get().state == "completed"
    verify_clean(hf)


def test_a_replay_that_fails_again_fails_the_workflow_again(hf: Holdfast) -> None:
    handle = build(hf, {"right"})
    drain(hf)
    operate(hf).replay(handle.id, reason="try once more")
    drain(hf)

    assert handle.get().state == "failed"
    verify_clean(hf)
    with pytest.raises(InvalidAction):
        operate(hf).replay(handle.id, step="missing", reason="x")


def test_a_canceled_workflow_starts_no_further_step(hf: Holdfast) -> None:
    handle = build(hf, set())
    assert operate(hf).cancel(handle.id, reason="not needed") == 2
    drain(hf)

    found = handle.get()
    assert found.state == "canceled"
    assert {hf.get(ids[0], org_id=ORG).state for ids in list(handle.job_ids.values())[:2]} == {
        "canceled"
    }
    assert found.steps[2].state == "canceled"
    assert not look(hf.store, "SELECT id FROM holdfast.job WHERE job_type = 'flow.last'")
    with pytest.raises(StepRefused):
        operate(hf).replay(handle.id, reason="x")
    verify_clean(hf)


def test_operators_see_only_the_workflows_of_their_tenant(hf: Holdfast) -> None:
    handle = build(hf, set())
    assert [one.id for one in operate(hf, ORG, "viewer").list()] == [handle.id]
    assert not operate(hf, OTHER_ORG, "viewer").list()
    with pytest.raises(WorkflowNotFound):
        operate(hf, OTHER_ORG).get(handle.id)
    with pytest.raises(Forbidden):
        operate(hf, ORG, "viewer").cancel(handle.id, reason="no")


def test_an_overdue_step_is_canceled(hf: Holdfast, clock: FakeClock) -> None:
    @hf.job("flow.slow")
    def slow(job: Context) -> Any:
        return job.wait_for("never")

    workflow = Workflow("late")
    workflow.add("slow", slow.step(), deadline=60)
    handle = workflow.enqueue(org_id=ORG)
    drain(hf)
    assert upkeep(hf) == 0
    clock.advance(timedelta(minutes=2))
    assert upkeep(hf) == 1

    assert handle.get().state == "failed"
    verify_clean(hf)


def test_ended_workflows_are_pruned_after_their_retention(hf: Holdfast, clock: FakeClock) -> None:
    handle = build(hf, set())
    drain(hf)
    clock.advance(timedelta(days=29))
    assert upkeep(hf) == 0
    clock.advance(timedelta(days=2))
    assert upkeep(hf) == 1
    with pytest.raises(WorkflowNotFound):
        handle.get()
    assert not look(hf.store, "SELECT step FROM holdfast.workflow_step")


def test_an_end_that_a_process_without_workflows_wrote_is_caught_up(hf: Holdfast) -> None:
    handle = build(hf, set())
    statements, hf.store.state_statements = hf.store.state_statements, ()
    hf.cancel(handle.job_ids["right"][0], org_id=ORG)
    hf.store.state_statements = statements
    assert handle.get().state == "running"
    report = hf.operate(actor="user:ops", role="admin").verify()
    assert "I53" in {finding.id for finding in report.violated}

    assert upkeep(hf) == 1
    drain(hf)
    assert handle.get().state == "failed"
    verify_clean(hf)


def test_verify_finds_a_step_that_is_stuck_or_was_released_early(hf: Holdfast) -> None:
    build(hf, set())
    by_hand(hf.store, "UPDATE holdfast.workflow_step SET state = 'running' WHERE step = 'last'")
    report = hf.operate(actor="user:ops", role="admin").verify()
    assert "I51" in {finding.id for finding in report.violated}
