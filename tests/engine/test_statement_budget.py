"""Statement budgets: how many statements each pass of the engine may execute.

The budgets may only fall. A test fails when a pass needs more statements than its budget, and also
when it needs so few that the budget is no longer a limit: then lower the budget.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, Settings
from holdfast.config import RunSettings
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.job import Claimed
from holdfast.engine.schedule.dispatcher import Dispatcher
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.store import Statement, Tx
from tests.story import ORG, make_holdfast, seal_all

ENQUEUE = 1
# In addition to the statements that claim and settle.
JOB_IN_LIVE_WORKER = 5
DISPATCHER_WITHOUT_DUE_SCHEDULES = 1
IDLE_DISPATCHER = 7
SLACK = 4

CLAIM_AND_SETTLE = ("claim_jobs", "insert_outcomes", "insert_events")
RUNS = {
    name: RunSettings(queues=("q:default", "q:exports"), max_jobs_per_run=10)
    for name in ("sweep", "mop")
}


class Statements:
    """The names of the statements that stores execute, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def of(self, work: Callable[[], object]) -> list[str]:
        self.names = []
        work()
        return list(self.names)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    counted = Statements()
    ready = Tx._ready

    def note(self: Tx, statement: Statement, params: dict[str, Any]) -> Any:
        counted.names.append(statement.name)
        return ready(self, statement, params)

    monkeypatch.setattr(Tx, "_ready", note)
    return counted


def assert_within(budget: int, names: list[str]) -> None:
    assert len(names) <= budget, f"{len(names)} statements, the budget is {budget}: {names}"
    assert budget - len(names) <= SLACK, f"only {len(names)} statements: lower {budget} to that"


def test_an_enqueue_is_one_statement(hf: Holdfast, statements: Statements) -> None:
    hf.job("order.ship")(lambda job, payload: payload)

    assert_within(ENQUEUE, statements.of(lambda: hf.enqueue("order.ship", {}, org_id=ORG)))


def test_a_live_worker_runs_a_job_within_its_budget(url: str, statements: Statements) -> None:
    # Heartbeats and maintenance depend on time, not on the number of jobs.
    hf = Holdfast(settings=Settings(db=url, poll_seconds=60.0, rescue_seconds=600.0))
    ended = threading.Event()
    hf.job("order.ship")(lambda job, payload: ended.set())
    worker = hf.worker(queues=["q:default"])
    hf.enqueue("order.ship", {}, org_id=ORG)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert ended.wait(30)
        wait_until(lambda: worker.outcomes["completed"] == 1)
        ended.clear()

        def one_job() -> None:
            hf.enqueue("order.ship", {}, org_id=ORG)
            assert ended.wait(30)
            wait_until(lambda: worker.outcomes["completed"] == 2)

        names = statements.of(one_job)
        names.remove("insert_new_jobs")
    finally:
        worker.drain()
        thread.join()
        hf.close()

    # The announcement may come after a poll has found the job: then it causes a claim of nothing.
    assert names.count("claim_jobs") in (1, 2)
    assert names.count("insert_outcomes") == 1
    assert_within(JOB_IN_LIVE_WORKER, [name for name in names if name not in CLAIM_AND_SETTLE])


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("the condition did not come true in time")


@pytest.fixture
def scheduled(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    """An application with a run every 15 minutes, and no jobs."""
    hf = make_holdfast(url, clock, runs=RUNS)
    hf.job("order.ship")(lambda job, payload: payload)
    hf.schedule("sweeping", every="15m", run="sweep")
    sync_schedules(hf)
    seal_all(hf.store)
    yield hf
    hf.close()


def test_a_dispatcher_pass_without_due_schedules_is_one_statement(
    scheduled: Holdfast, statements: Statements
) -> None:
    names = statements.of(lambda: Dispatcher(scheduled).run_once())

    assert_within(DISPATCHER_WITHOUT_DUE_SCHEDULES, names)


def test_a_dispatcher_pass_with_nothing_to_do_stays_within_its_budget(
    scheduled: Holdfast, clock: FakeClock, statements: Statements
) -> None:
    clock.advance(minutes=16)
    dispatcher = Dispatcher(scheduled)

    names = statements.of(dispatcher.run_once)

    assert_within(IDLE_DISPATCHER, names)
    assert [run.outcome for run in scheduled.runs.list()] == ["skipped"]


def test_runs_without_work_that_are_due_together_share_their_statements(
    scheduled: Holdfast, clock: FakeClock, statements: Statements
) -> None:
    scheduled.schedule("mopping", every="15m", run="mop")
    sync_schedules(scheduled)
    seal_all(scheduled.store)
    clock.advance(minutes=16)

    names = statements.of(lambda: Dispatcher(scheduled).run_once())

    # Each run counts its own work, and nothing else.
    assert len(names) <= IDLE_DISPATCHER + 1, names
    assert [run.outcome for run in scheduled.runs.list()] == ["skipped", "skipped"]


def test_maintenance_runs_once_in_a_dispatcher_pass(
    scheduled: Holdfast, clock: FakeClock, statements: Statements
) -> None:
    for _ in range(3):
        scheduled.enqueue("order.ship", {}, org_id=ORG)
    clock.advance(minutes=16)

    names = statements.of(lambda: Dispatcher(scheduled).run_once())

    assert names.count("find_maintenance") == 1
    assert names.count("insert_outcomes") == 3


@pytest.mark.parametrize("order", list(Order))
def test_one_claim_serves_many_queues(hf: Holdfast, statements: Statements, order: Order) -> None:
    hf.job("order.ship")(lambda job, payload: payload)
    queues = ["q:default", "q:exports", "q:imports", "q:planning", "q:maintenance"]
    for number in range(3):
        for queue in queues[:2]:
            hf.enqueue("order.ship", {"n": number}, org_id=ORG, queue=queue)
    claimed: list[Claimed] = []

    def take(limit: int) -> None:
        claimed.extend(
            claim_jobs(
                hf.store, queues=queues, worker_id="w", limit=limit, lease_ms=60_000, order=order
            )
        )

    names = statements.of(lambda: take(5))

    assert [job.queue for job in claimed] == ["q:default"] * 3 + ["q:exports"] * 2
    claims = Counter(name for name in names if name.startswith("claim"))
    # All queues are one claim.
    assert claims == {"claim_jobs" if order is Order.FAIR else "claim_oldest": 1}
    assert names.count("read_rules") == names.count("poll_queues") == 1
    take(5)
    assert len(claimed) == 6
