"""Conclude: after its job has ended, the orchestrator says when a rewrite's sender may read it."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import read_instant
from holdfast.config import RunProfile
from holdfast.engine.periodic_task import RunBudget
from holdfast.event import Event
from holdfast.store import Store, open_store
from holdfast_rewrite.event import RewriteMoved
from holdfast_rewrite.finish import (
    OrchestratorTask,
    count_to_finish,
    finish_once,
    reveal_once,
)
from tests.apps.planted import HOME, REWRITE, Stage
from tests.story import look

DAY = timedelta(days=1)


def conclude(stage: Stage) -> list[str]:
    return [moved.step for moved in finish_once(stage.store, reveal_delay=DAY)]


@pytest.mark.req("O-12")
@pytest.mark.req("O-13")
def test_a_worker_leaves_the_time_of_the_reveal_to_the_orchestrator(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    before = stage.row(planted)

    conclude(stage)

    after = stage.row(planted)
    completed = read_instant(after["rewrite_completed_at"])
    assert before["sender_reveal_at"] is None
    assert read_instant(after["sender_reveal_at"]) == completed + DAY
    assert after["step"] == "completed"
    assert stage.told(planted) == ["rewrite_completed"]


@pytest.mark.req("A-01")
def test_a_rewrite_is_revealed_once_its_day_is_over_and_not_before(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    conclude(stage)
    stage.clock.advance(hours=23, minutes=59)
    early = reveal_once(stage.store)
    stage.clock.advance(minutes=1)
    due = reveal_once(stage.store)
    again = reveal_once(stage.store)

    row = stage.row(planted)
    assert (early, again) == ([], [])
    assert [(moved.rewrite_request_id, moved.step) for moved in due] == [(planted.id, "revealed")]
    assert (row["step"], row["status"]) == ("revealed", "completed")
    assert stage.told(planted) == ["rewrite_completed", "rewrite_revealed"]


def test_with_no_delay_the_sender_may_read_it_at_once(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()

    finish_once(stage.store, reveal_delay=timedelta(0))

    row = stage.row(planted)
    assert row["sender_reveal_at"] == row["rewrite_completed_at"]
    assert len(reveal_once(stage.store)) == 1


def test_failed_and_canceled_requests_are_reported_and_never_revealed(stage: Stage) -> None:
    failed, canceled = stage.plant(), stage.plant("Please keep the door shut.")
    stage.hf.cancel(canceled.job_id, org_id=HOME, reason="asked")
    stage.answer({"rewritten_text": REWRITE, "output_language": "de"})

    conclude(stage)
    stage.clock.advance(days=3)

    assert reveal_once(stage.store) == []
    assert stage.told(failed) == ["rewrite_failed"]
    assert stage.told(canceled) == ["rewrite_canceled"]
    rows = [stage.row(failed), stage.row(canceled)]
    assert [row["sender_reveal_at"] for row in rows] == [None, None]
    (event,) = look(
        stage.store, "SELECT detail FROM holdfast.job_event WHERE name = 'rewrite_failed'"
    )
    assert "WRONG_LANGUAGE" in event["detail"]


def test_a_page_of_any_size_is_a_fixed_number_of_statements(stage: Stage) -> None:
    for number in range(12):
        stage.plant(f"Please take out the bins, number {number}.")
    stage.answer()
    asked: list[str] = []

    def counted(work: Any) -> Any:
        def count(tx: Any) -> Any:
            fetch = tx._fetch

            def fetching(*args: Any) -> Any:
                asked.append(args[0])
                return fetch(*args)

            tx._fetch = fetching
            return work(tx)

        return count

    class Counting:
        def write(self, work: Any) -> Any:
            return stage.store.write(counted(work))

    moved = finish_once(Counting(), reveal_delay=DAY)  # type: ignore[arg-type]

    assert len(moved) == 12
    assert len(asked) == 3


def test_two_orchestrators_report_each_end_once(stage: Stage, url: str) -> None:
    planted = [stage.plant(f"Please be quiet, number {number}.") for number in range(20)]
    stage.answer({"rewritten_text": "Could you please be quiet?", "output_language": "en"})
    stores = [open_store(url, clock=stage.clock) for _ in range(2)]
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def work(store: Store) -> None:
        try:
            barrier.wait(20)
            for _ in range(6):
                finish_once(store, reveal_delay=timedelta(0), limit=5)
                reveal_once(store, limit=5)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for store in stores:
        store.close()
    # What one had locked while the other looked is the next pass's.
    finish_once(stage.store, reveal_delay=timedelta(0))
    reveal_once(stage.store)

    assert failures == []
    for one in planted:
        assert stage.told(one) == ["rewrite_completed", "rewrite_revealed"]


def test_a_crash_before_the_commit_leaves_it_to_the_next_pass(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()

    class Dying:
        def write(self, work: Any) -> Any:
            def die(tx: Any) -> Any:
                work(tx)
                raise KeyboardInterrupt

            return stage.store.write(die)

    with pytest.raises(KeyboardInterrupt):
        finish_once(Dying(), reveal_delay=DAY)  # type: ignore[arg-type]
    undone = stage.told(planted)
    conclude(stage)

    assert undone == []
    assert stage.told(planted) == ["rewrite_completed"]


def test_a_run_of_the_orchestrator_does_all_work_and_reports_it(stage: Stage) -> None:
    stage.plant()
    stage.answer()
    heard: list[Event] = []
    stage.hf.events.subscribe(heard.append)
    resumed: list[int] = []

    def resume(limit: int) -> int:
        resumed.append(limit)
        return 0

    task = OrchestratorTask(stage.hf, resume=resume, count_unfinished=lambda _: 0)
    first = budget(stage)
    pending = task.count_pending(first)
    task.perform(first)
    stage.clock.advance(days=1)
    second = budget(stage)
    later = task.count_pending(second)
    task.perform(second)

    assert (pending, later) == (1, 1)
    assert (first.counts.claimed, second.counts.claimed) == (1, 1)
    assert len(resumed) == 2
    moved = [event for event in heard if isinstance(event, RewriteMoved)]
    assert [event.step for event in moved] == ["completed", "revealed"]
    assert count_to_finish(stage.store, most=10) == 0


def test_a_run_takes_no_more_than_it_may(stage: Stage) -> None:
    for number in range(5):
        stage.plant(f"Please take out the bins, number {number}.")
    stage.answer()
    task = OrchestratorTask(stage.hf, resume=lambda _: 0, count_unfinished=lambda _: 0)
    bounded = budget(stage, most=3)

    task.perform(bounded)

    assert bounded.counts.claimed == 3
    assert count_to_finish(stage.store, most=10) == 2


def budget(stage: Stage, *, most: int = 100) -> RunBudget:
    profile = RunProfile(max_jobs_per_run=most)
    return RunBudget("run", ("q:default",), (), profile, stage.hf.clock)
