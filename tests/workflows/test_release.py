"""The release of dependents: once, also when the last two jobs end at the same time."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast, Permanent, Workflow, chord
from holdfast.engine.classify import fault_of
from holdfast.engine.job import Actor, ActorType, Completed, Dead
from holdfast.engine.settle import settle_in
from holdfast.errors import RuleBroken
from tests.story import ORG, by_hand, claim, look, make_holdfast
from tests.workflows.flow import drain, verify_clean

WORKER = Actor(ActorType.SYSTEM, "w1")


def declare(hf: Holdfast) -> Any:
    @hf.job("flow.item")
    def item(number: int) -> int:
        return number

    @hf.job("flow.join")
    def join(job: Context) -> int:
        return sum(next(iter(job.results.values())))

    return item, join


def joins(hf: Holdfast) -> list[Any]:
    return look(hf.store, "SELECT id, state FROM holdfast.job WHERE job_type = 'flow.join'")


@pytest.mark.both_databases
def test_the_join_is_released_once_when_the_last_two_items_end_together(
    hf: Holdfast, url: str, clock: Any
) -> None:
    """Each transaction has settled its item before the other commits."""
    item, join = declare(hf)
    handle = chord(item.map([{"number": 1}, {"number": 2}]), join.step()).enqueue(org_id=ORG)
    other = make_holdfast(url, clock)
    declare(other)
    other.extensions.find_named("workflows")
    first, second = claim(hf, limit=2)
    is_settled, done = threading.Event(), []

    def settle_second() -> None:
        is_settled.wait(30)
        done.append(
            other.store.write(lambda tx: settle_in(tx, [(second, Completed("2"))], actor=WORKER))
        )

    thread = threading.Thread(target=settle_second)
    thread.start()

    def settle_first(tx: Any) -> None:
        settle_in(tx, [(first, Completed("1"))], actor=WORKER)
        is_settled.set()
        # PostgreSQL: the other transaction now waits for the lock of the workflow. SQLite has
        # one writer, so that the other one has not begun.
        if not hf.store.is_embedded:
            wait_until_blocked(other)

    hf.store.write(settle_first)
    thread.join(60)
    assert done
    assert len(joins(hf)) == 1
    drain(hf)
    assert handle.result(timeout=10) == 3
    verify_clean(hf)
    other.close()


@pytest.mark.both_databases
def test_two_transactions_that_end_two_steps_release_the_join_once(
    hf: Holdfast, url: str, clock: Any
) -> None:
    """Each ends another step, so that only the lock of the workflow orders them."""
    item, join = declare(hf)
    workflow = Workflow("two")
    steps = [workflow.add(name, item.step(number=1)) for name in ("left", "right")]
    workflow.add("join", join.step(), deps=steps)
    handle = workflow.enqueue(org_id=ORG)
    other = make_holdfast(url, clock)
    declare(other)
    other.extensions.find_named("workflows")
    first, second = claim(hf, limit=2)
    is_settled = threading.Event()

    def settle_second() -> None:
        is_settled.wait(30)
        other.store.write(lambda tx: settle_in(tx, [(second, Completed("2"))], actor=WORKER))

    thread = threading.Thread(target=settle_second)
    thread.start()

    def settle_first(tx: Any) -> None:
        settle_in(tx, [(first, Completed("1"))], actor=WORKER)
        is_settled.set()
        if not hf.store.is_embedded:
            wait_until_blocked(other)

    hf.store.write(settle_first)
    thread.join(60)
    assert len(joins(hf)) == 1
    assert handle.get().steps[2].state == "running"
    verify_clean(hf)
    other.close()


def test_a_settle_waits_for_its_workflow_before_it_changes_a_step(
    postgres_url: str, clock: Any
) -> None:
    """Settles of several workflows lock them in one order, so that none waits for another."""
    with (
        make_holdfast(postgres_url, clock) as hf,
        psycopg.connect(postgres_url) as holder,
        psycopg.connect(postgres_url) as reader,
    ):
        item, join = declare(hf)
        chord(item.map([{"number": 1}, {"number": 2}]), join.step()).enqueue(org_id=ORG)
        first, _ = claim(hf, limit=2)
        holder.execute("SELECT id FROM holdfast.workflow FOR NO KEY UPDATE")
        settle = threading.Thread(
            target=lambda: hf.store.write(
                lambda tx: settle_in(tx, [(first, Completed("1"))], actor=WORKER)
            )
        )
        settle.start()
        wait_until_blocked(hf)

        free = reader.execute(
            "SELECT step FROM holdfast.workflow_step FOR UPDATE SKIP LOCKED"
        ).fetchall()

        reader.rollback()
        holder.rollback()
        settle.join(60)
        assert len(free) == 2
        verify_clean(hf)


def test_a_step_of_a_failed_workflow_is_not_released(hf: Holdfast) -> None:
    """The other branch ends after the workflow has failed."""
    item, join = declare(hf)
    workflow = Workflow("late")
    workflow.add("bad", item.step(number=1))
    good = workflow.add("good", item.step(number=1))
    workflow.add("join", join.step(), deps=[good])
    handle = workflow.enqueue(org_id=ORG)
    bad, late = claim(hf, limit=2)
    fault = fault_of(Permanent("no"), stage=bad.stage, attempt=1)
    hf.store.write(lambda tx: settle_in(tx, [(bad, Dead(fault))], actor=WORKER))
    hf.store.write(lambda tx: settle_in(tx, [(late, Completed("1"))], actor=WORKER))

    assert handle.get().state == "failed"
    assert not joins(hf)
    verify_clean(hf)


def wait_until_blocked(hf: Holdfast) -> None:
    """Return when a transaction waits for a row that another one has locked."""
    for _ in range(600):
        blocked = look(
            hf.store,
            "SELECT count(*) AS found FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        if blocked[0]["found"]:
            return
        threading.Event().wait(0.05)
    raise AssertionError("the other transaction did not wait")


def test_a_map_of_many_items_and_its_join_run_each_job_once(hf: Holdfast) -> None:
    item, join = declare(hf)
    numbers = range(600)
    handle = chord(item.map([{"number": n} for n in numbers]), join.step()).enqueue(org_id=ORG)

    assert drain(hf) == 601

    assert handle.result(timeout=10) == sum(numbers)
    verify_clean(hf)


def test_a_workflow_in_a_transaction_that_rolls_back_does_not_exist(hf: Holdfast) -> None:
    item, join = declare(hf)
    hf.worker()
    connection = connect(hf)
    rolled = chord(item.map([{"number": 1}]), join.step()).enqueue(org_id=ORG, conn=connection)
    connection.rollback()
    kept = chord(item.map([{"number": 5}]), join.step()).enqueue(org_id=ORG, conn=connection)
    connection.commit()
    connection.close()
    drain(hf)

    assert kept.result(timeout=10) == 5
    found = look(hf.store, "SELECT id FROM holdfast.workflow")
    assert [str(row["id"]) for row in found] == [kept.id]
    assert rolled.id != kept.id
    verify_clean(hf)


def connect(hf: Holdfast) -> Any:
    if hf.store.is_embedded:
        import sqlite3

        return sqlite3.connect(hf.settings.db.removeprefix("sqlite:///"))
    import psycopg

    return psycopg.connect(hf.settings.db)


def test_the_result_of_a_completed_item_cannot_be_changed(hf: Holdfast) -> None:
    item, join = declare(hf)
    chord(item.map([{"number": 1}]), join.step()).enqueue(org_id=ORG)
    drain(hf)
    with pytest.raises(RuleBroken, match="workflow_item_completed_once"):
        by_hand(hf.store, "UPDATE holdfast.workflow_item SET result = '9'")
