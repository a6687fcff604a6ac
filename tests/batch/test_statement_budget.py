"""Statement budgets of the two runs of batch processing, for one item.

The budgets may only fall: a test fails when a run needs more statements than its budget, and also
when it needs so few that the budget is no longer a limit. Both count a whole run, with its claim,
its maintenance and its row in the run log.
"""

from __future__ import annotations

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from tests.batch.outgoing import Outgoing, set_out
from tests.engine.test_statement_budget import Statements, assert_within, statements

__all__ = ["statements"]

# One of them reads the budgets of workflow steps.
SUBMIT = 40
COLLECT = 32
BY_TIMER = Trigger(TriggerKind.CRON)


@pytest.fixture
def out(hf: Holdfast, clock: FakeClock) -> Outgoing:
    return set_out(hf, clock)


def submit(out: Outgoing) -> None:
    perform_run(out.hf, "batch_submitter", trigger=BY_TIMER)


def collect(out: Outgoing) -> None:
    perform_run(out.hf, "batch_collector", trigger=BY_TIMER)


def test_both_runs_stay_within_their_budgets(out: Outgoing, statements: Statements) -> None:
    (job,) = out.enqueue("one")

    assert_within(SUBMIT, statements.of(lambda: submit(out)))
    out.provider.complete()
    out.later(minutes=10)
    assert_within(COLLECT, statements.of(lambda: collect(out)))

    assert out.job(job).state == "completed"


def test_more_items_take_no_more_statements(out: Outgoing, statements: Statements) -> None:
    out.enqueue(*(f"text {number}" for number in range(20)))

    assert_within(SUBMIT, statements.of(lambda: submit(out)))
    out.provider.complete()
    out.later(minutes=10)
    assert_within(COLLECT, statements.of(lambda: collect(out)))

    assert [row["state"] for row in out.jobs] == ["completed"] * 20
