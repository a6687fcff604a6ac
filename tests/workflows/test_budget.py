"""Budgets of steps without an extension that enforces them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from holdfast import ConfigError, Holdfast, InvalidJob, Workflow
from holdfast.workflows.budget import to_pico, to_usd
from tests.story import ORG


def test_a_budget_that_no_extension_enforces_is_refused(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @hf.job("page.count")
    def count(page: str) -> int:
        return len(page)

    for extension in hf.extensions.available():
        monkeypatch.setattr(type(extension), "enforces_budgets", False)
    workflow = Workflow("pages")
    workflow.add("count", count.step(page="one"), budget=1)

    with pytest.raises(InvalidJob) as refused:
        workflow.enqueue(org_id=ORG)

    assert "pip install holdfast-llm" in refused.value.fields["count.budget"]


def test_budgets_are_kept_exactly(hf: Holdfast) -> None:
    @hf.job("page.count")
    def count(page: str) -> int:
        return len(page)

    workflow = Workflow("pages")
    workflow.add("count", count.step(page="one").configure(budget="0.000000000001"))
    workflow.add("again", count.step(page="two"), budget=2.5)
    handle = workflow.enqueue(org_id=ORG)

    assert [step.budget_usd for step in handle.get().steps] == ["0.000000000001", "2.50"]


def test_a_budget_below_the_smallest_unit_is_refused(hf: Holdfast) -> None:
    @hf.job("page.count")
    def count(page: str) -> int:
        return len(page)

    with pytest.raises(InvalidJob):
        Workflow("pages").add("count", count.step(page="one"), budget="1e-13")


def test_a_handle_of_an_unknown_job_type_names_the_declared_ones(hf: Holdfast) -> None:
    hf.job("page.count")(lambda page: None)

    with pytest.raises(
        ConfigError, match=r"no job type 'page\.cuont'; declared are: .*page\.count"
    ):
        hf.declared("page.cuont")


def test_a_pipeline_is_a_step_of_a_workflow(hf: Holdfast) -> None:
    made = hf.pipeline("report.build")
    made.stage("collect")(lambda job, payload: {"pages": payload["pages"]})
    made.stage("write")(lambda job, payload: f"{job.outputs['collect']['pages']} pages")

    @hf.job("page.count")
    def count() -> int:
        return 3

    workflow = Workflow("report")
    pages = workflow.add("count", count.step())
    workflow.add("build", hf.declared("report.build").step(pages=pages.output))
    handle = workflow.enqueue(org_id=ORG)
    hf.worker().run(until_idle=True)

    assert handle.result(timeout=10) == "3 pages"


def test_money_is_converted_without_a_loss() -> None:
    assert to_usd(to_pico(Decimal("2.50"))) == "2.50"
    assert to_usd(to_pico(Decimal("1000000"))) == "1000000.00"
