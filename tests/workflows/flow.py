"""Shared parts of the workflow tests: run everything that is due, and verify the store."""

from __future__ import annotations

from holdfast import Holdfast, Workflow
from tests.story import ORG


def drain(hf: Holdfast) -> int:
    """Run workers until no job is due; return how many jobs were claimed."""
    claimed = 0
    worker = hf.worker()
    while found := worker.run_once().claimed:
        claimed += found
    return claimed


def two_steps(hf: Holdfast, org_id: str = ORG) -> str:
    """Enqueue a workflow of two steps; return its id."""

    @hf.job("flow.step")
    def step(name: str) -> str:
        return name

    workflow = Workflow("two-steps")
    first = workflow.add("first", step.step(name="first"))
    workflow.add("second", step.step(name="second"), deps=[first])
    return str(workflow.enqueue(org_id=org_id).id)


def verify_clean(hf: Holdfast) -> None:
    """The invariants of the store hold."""
    report = hf.operate(actor="user:auditor", role="admin").verify()
    assert not report.violated, report.violated
