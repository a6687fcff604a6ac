"""Faults during collection: killed processes, lost leases, silent providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.job import SYSTEM
from holdfast.engine.run_log import RunCounts
from holdfast.event import JobSettled
from holdfast.store import Store, open_store
from holdfast_llm.batch import collect
from holdfast_llm.batch.circuit import find_open_circuits
from holdfast_llm.batch.ingest import Ingest
from holdfast_llm.batch.lease import BatchLease
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.adapter import BatchPhase
from holdfast_llm.provider.reply import Failure, FailureKind
from tests.batch.planted import Stage, set_stage
from tests.batch.scripted import Act, Lose, Refuse, ScriptedAccounts, ScriptedProvider
from tests.failpoints import BatchPoint as Point
from tests.failpoints import watched
from tests.story import ORG, by_hand, timeline


class Died(BaseException):
    """Simulates a killed process."""


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


@pytest.fixture
def other_store(url: str, clock: FakeClock) -> Iterator[Store]:
    made = open_store(url, clock=clock)
    yield made
    made.close()


# -- a killed process


COLLECTING = [
    Point.POLLED,
    Point.END_RECORDED,
    Point.READING,
    Point.GROUP_RECORDED,
    Point.READ,
    Point.COLLECT_RECORDED,
    Point.FILES_DELETED,
    Point.DELETE_RECORDED,
]


def collect_dying(
    service: BatchService, die: Callable[[Point], None], *, worker_id: str = "dead"
) -> None:
    with watched(service, die) as dying:
        dying.collector.run_once(worker_id=worker_id)


def ingest_of(service: BatchService, batch: BatchLease) -> Ingest:
    parts = (service.resources, service.leases, service.loader, service.outcomes)
    return Ingest(*parts, batch, SYSTEM, Prices(()), RunCounts())


@pytest.mark.parametrize("point", COLLECTING)
def test_the_next_collector_finishes_the_work_of_a_dead_one(stage: Stage, point: Point) -> None:
    planted = stage.plant("one", "two", "three")
    stage.provider.complete()
    died: list[Point] = []

    def die(reached: Point) -> None:
        if reached is point:
            died.append(reached)
            raise Died

    with pytest.raises(Died):
        collect_dying(stage.service, die)
    assert died == [point]

    stage.collect(minutes=10, worker_id="next")

    assert stage.states(planted) == ["completed"] * 3
    assert stage.batch(planted)["state"] == "collected"
    assert stage.batch(planted)["files_deleted_at"] is not None
    assert stage.provider.standing_files == []
    assert len(stage.calls(planted)) == 3
    ends = [timeline(stage.hf, job).count("job.succeeded") for job in planted.jobs]
    assert ends == [1, 1, 1]


def test_a_collector_that_dies_between_two_groups_loses_none_and_repeats_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "GROUP_ITEMS", 2)
    planted = stage.plant(*(f"text {number}" for number in range(7)))
    stage.provider.complete()
    groups: list[int] = []

    def die(reached: Point) -> None:
        if reached is Point.GROUP_RECORDED:
            groups.append(1)
            if len(groups) == 2:
                raise Died

    with pytest.raises(Died):
        collect_dying(stage.service, die)
    assert stage.states(planted).count("completed") == 4

    done = stage.collect(minutes=10)

    assert stage.states(planted) == ["completed"] * 7
    assert dict(done.outcomes) == {"completed": 3}
    assert len(stage.calls(planted)) == 7


def test_a_pass_that_runs_out_of_time_stops_between_groups_and_continues_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "GROUP_ITEMS", 2)
    planted = stage.plant(*(f"text {number}" for number in range(5)))
    stage.provider.complete()
    asked: list[int] = []

    def may_continue() -> bool:
        asked.append(1)
        return len(asked) < 2

    stage.collect(may_continue=may_continue)
    assert stage.states(planted).count("completed") == 2

    stage.collect()
    assert stage.states(planted) == ["completed"] * 5


def test_a_pass_takes_no_more_jobs_than_it_may(stage: Stage) -> None:
    planted = stage.plant(*(f"text {number}" for number in range(5)))
    stage.provider.complete()
    taken = RunCounts()

    stage.collect(counts=taken, left=lambda: 3 - taken.claimed)

    assert taken.claimed == 3
    assert stage.states(planted).count("completed") == 3


# -- two collectors


def test_two_collectors_share_the_batches_and_no_item_is_done_twice(
    stage: Stage, other_store: Store
) -> None:
    first, second = stage.plant("one", "two"), stage.plant("three", "four")
    stage.provider.complete()
    done: list[Any] = []

    def let_the_other_in() -> None:
        done.append(stage.other_service(other_store).collector.run_once(worker_id="w2"))

    stage.provider.script("get", Act(let_the_other_in))

    mine = stage.collect(worker_id="w1")

    (other,) = done
    assert mine.outcomes["completed"] == other.outcomes["completed"] == 2
    assert stage.states(first) == stage.states(second) == ["completed", "completed"]
    assert len(stage.calls(first)) == len(stage.calls(second)) == 2


def test_a_collector_that_slept_over_its_lease_writes_nothing(
    stage: Stage, other_store: Store
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()

    def sleep() -> None:
        stage.clock.advance(hours=1)
        stage.other_service(other_store).collector.run_once(worker_id="w2")

    stage.provider.script("read", Act(sleep))

    mine = stage.collect(worker_id="w1")

    assert dict(mine.outcomes) == {}
    assert stage.states(planted) == ["completed", "completed"]
    assert len(stage.calls(planted)) == 2
    assert [timeline(stage.hf, job).count("job.succeeded") for job in planted.jobs] == [1, 1]
    assert "job.lease_lost" not in timeline(stage.hf, planted.jobs[0])


def test_a_collector_whose_batch_was_taken_while_it_asked_leaves_it_alone(
    stage: Stage, other_store: Store
) -> None:
    planted = stage.plant("one")
    stage.provider.complete()

    def sleep() -> None:
        stage.clock.advance(hours=1)
        stage.other_service(other_store).collector.run_once(worker_id="w2")

    stage.provider.script("get", Act(sleep))

    mine = stage.collect(worker_id="w1")

    assert (mine["looked_at"], mine["ended"], mine["collected"]) == (1, 0, 0)
    assert stage.changes == ["ended", "collected"]
    assert stage.states(planted) == ["completed"]


def test_a_collector_whose_batch_was_taken_before_it_wrote_writes_nothing(
    stage: Stage, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    work = stage.service.resources.registry.get("text.shout").work
    accept = work.accept

    def die(reached: Point) -> None:
        if reached is Point.READING:
            raise Died

    def accept_late(item: Any, reply: Any) -> Any:
        monkeypatch.setattr(work, "accept", accept)
        stage.clock.advance(hours=1)
        with pytest.raises(Died):
            collect_dying(stage.other_service(other_store), die, worker_id="w2")
        return accept(item, reply)

    monkeypatch.setattr(work, "accept", accept_late)

    stage.collect(worker_id="w1")
    assert stage.states(planted) == ["batch_submitted"]
    assert stage.calls(planted) == []

    stage.collect(minutes=10, worker_id="w3")
    assert stage.states(planted) == ["completed"]


def test_an_answer_that_is_weighed_again_before_it_is_written_counts_once(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    batch = stage.service.leases.take_to_collect("w1")
    account = stage.service.accounts.by_key(stage.batch(planted)["account"])
    assert batch is not None
    assert account is not None
    batch = stage.service.poller.poll_batch(batch, account)
    assert batch is not None
    ingest = ingest_of(stage.service, batch)
    answer = stage.provider.parse(stage.results(planted))

    first, second = ingest.weigh([answer]), ingest.weigh([answer])
    ingest.finish(first)
    ingest.finish(second)

    assert dict(ingest.counts.outcomes) == {"completed": 1}
    assert len([event for event in stage.told if isinstance(event, JobSettled)]) == 1
    assert timeline(stage.hf, planted.jobs[0])[-1] == "job.succeeded"


def test_a_job_that_is_canceled_while_its_answer_is_read_stays_canceled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    accept = stage.service.resources.registry.get("text.shout").work.accept

    def accept_late(item: Any, reply: Any) -> Any:
        stage.hf.cancel(planted.jobs[0].id, org_id=ORG)
        return accept(item, reply)

    monkeypatch.setattr(
        stage.service.resources.registry.get("text.shout").work, "accept", accept_late
    )

    stage.collect()

    job = stage.job(planted.jobs[0])
    assert (str(job.state), job.result) == ("canceled", None)
    assert len(stage.calls(planted)) == 1
    assert stage.batch(planted)["state"] == "collected"


# -- a provider that does not answer


def test_a_poll_without_an_answer_changes_nothing(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    stage.provider.script("get", Lose(reason="timeout"), Refuse(status=503), Lose())

    for _ in range(3):
        stage.collect(minutes=20)
    assert stage.states(planted) == ["batch_submitted"]
    assert stage.batch(planted)["state"] == "submitted"

    stage.collect(minutes=20)
    assert stage.states(planted) == ["completed"]


def test_a_batch_is_asked_about_less_and_less_often(stage: Stage) -> None:
    planted = stage.plant("one")
    waits = []
    for _ in range(12):
        before = stage.provider.calls["get"]
        minutes = 0
        while stage.provider.calls["get"] == before:
            stage.collect(minutes=1)
            minutes += 1
        waits.append(minutes)

    assert waits[:7] == sorted(waits[:7])
    assert waits[1] <= 3
    assert all(13 <= wait <= 17 for wait in waits[-3:])
    assert stage.states(planted) == ["batch_submitted"]


def test_one_bad_batch_does_not_hold_up_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = stage.plant("one"), stage.plant("two")
    stage.provider.complete()
    get = ScriptedProvider.get

    def broken(provider: ScriptedProvider, client: Any, provider_batch_id: str) -> Any:
        if provider_batch_id == bad.at_provider.id:
            raise ZeroDivisionError("somebody's text")
        return get(provider, client, provider_batch_id)

    monkeypatch.setattr(ScriptedProvider, "get", broken)

    stage.collect()

    assert stage.states(good) == ["completed"]
    assert stage.states(bad) == ["batch_submitted"]
    assert ("uncollected", 1) in stage.alerts
    assert "somebody" not in repr(stage.told)

    monkeypatch.setattr(ScriptedProvider, "get", get)
    stage.collect(minutes=30)
    assert stage.states(bad) == ["completed"]


def test_a_batch_is_collected_with_the_credential_that_came_after_its_own(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    accounts = stage.service.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.missing.add(stage.batch(planted)["account"])
    accounts.after = stage.provider

    stage.collect()

    assert stage.states(planted) == ["completed"]
    assert stage.alerts == []


def test_a_batch_that_no_credential_shows_is_left_to_a_person_after_its_time(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    accounts = stage.service.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.missing.add(stage.batch(planted)["account"])
    accounts.after = ScriptedProvider(stage.clock)
    stage.collect()
    waiting = stage.batch(planted)
    stage.collect(minutes=60 * 24 * 8)

    assert (waiting["state"], waiting["error_code"]) == ("submitted", "account_unknown")
    found = stage.batch(planted)
    assert (found["state"], found["error_code"]) == ("quarantined", "account_unknown")
    assert ("quarantined", 1) in stage.alerts
    assert stage.states(planted) == ["batch_submitted"]


def test_a_batch_of_a_missing_account_waits_and_is_reported(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    accounts = stage.service.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.missing.add(stage.batch(planted)["account"])

    stage.collect()
    assert ("uncollected", 1) in stage.alerts

    accounts.missing.clear()
    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed"]


def test_a_refused_credential_opens_the_circuit(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.script("get", Refuse(FailureKind.ACCOUNT, "invalid_api_key", 401))

    stage.collect()

    assert stage.store.read(find_open_circuits) == {stage.batch(planted)["account"]}
    assert stage.states(planted) == ["batch_submitted"]


def test_an_unknown_status_is_not_final_and_is_reported_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one")
    get = ScriptedProvider.get

    def strange(provider: ScriptedProvider, client: Any, provider_batch_id: str) -> Any:
        seen = get(provider, client, provider_batch_id)
        return replace(seen, status="pondering", is_known_status=False)

    monkeypatch.setattr(ScriptedProvider, "get", strange)
    for _ in range(3):
        stage.collect(minutes=20)

    assert stage.alerts == [("unknown_status", 1)]
    assert stage.states(planted) == ["batch_submitted"]


# -- an interrupted read


@pytest.mark.parametrize(
    "step", [Lose(reason="cut_short"), Refuse(FailureKind.INVALID, "gone", 404)]
)
def test_results_that_cannot_be_read_are_read_again_later(stage: Stage, step: Any) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    stage.provider.script("read", step)

    stage.collect()
    assert stage.states(planted) == ["batch_submitted"] * 2

    stage.provider.script("read", Act(lambda: None), step)
    stage.collect(minutes=30)
    assert stage.states(planted) == ["batch_submitted"] * 2

    stage.collect(minutes=30)
    assert stage.states(planted) == ["completed"] * 2
    assert stage.provider.double_paid() == {}


def test_results_that_are_gone_for_good_are_left_to_an_operator(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    stage.provider.files.pop(planted.at_provider.result_files[0])

    for _ in range(20):
        stage.collect(minutes=30)

    assert stage.states(planted) == ["batch_submitted"]
    assert stage.batch(planted)["state"] == "quarantined"
    assert ("quarantined", 1) in stage.alerts


# -- deadlines


def test_a_batch_past_its_deadline_is_canceled_and_then_collected_like_any_other(
    stage: Stage,
) -> None:
    planted = stage.plant("one", "two")
    stage.collect(minutes=26 * 60)

    assert planted.at_provider.cancels == 1
    assert ("deadline_passed", 1) in stage.alerts
    assert stage.batch(planted)["cancel_requested_at"] is not None

    stage.collect(minutes=30)

    assert stage.batch(planted)["state"] == "collected"
    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.error_class) for job in found] == [
        ("queued", "BATCH_CANCELED")
    ] * 2


def test_a_cancel_that_loses_the_race_against_the_end_brings_the_answers(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.script("cancel", Act(stage.provider.complete))

    stage.collect(minutes=26 * 60)
    stage.collect(minutes=30)

    assert stage.states(planted) == ["completed"]


def test_an_operators_cancel_reaches_the_provider(stage: Stage) -> None:
    planted = stage.plant("one")
    by_hand(
        stage.store,
        "UPDATE holdfast.provider_batch SET cancel_requested_at = {now} WHERE id = :id",
        id=planted.id,
    )

    stage.collect()

    assert planted.at_provider.cancels == 1
    assert ("deadline_passed", 1) not in stage.alerts


def test_a_batch_that_can_be_neither_ended_nor_found_is_left_to_an_operator(stage: Stage) -> None:
    planted = stage.plant("one")
    del stage.provider.batches[planted.at_provider.id]

    stage.collect(minutes=24 * 60)
    assert stage.batch(planted)["state"] == "submitted"

    stage.collect(minutes=8 * 60)
    assert stage.batch(planted)["state"] == "quarantined"
    assert stage.states(planted) == ["batch_submitted"]


def test_a_provider_that_ignores_a_cancel_is_left_to_an_operator(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one")
    monkeypatch.setattr(ScriptedProvider, "cancel", lambda *args: None)

    stage.collect(minutes=26 * 60)
    stage.collect(minutes=60)
    assert stage.batch(planted)["state"] == "submitted"

    stage.collect(minutes=6 * 60)
    row = stage.batch(planted)
    assert (row["state"], row["error_code"]) == ("quarantined", "cancel_ignored")


# -- cleaning up


def test_files_are_deleted_only_after_everything_is_recorded(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    seen: list[tuple[str, str]] = []

    def look_now() -> None:
        seen.append((stage.batch(planted)["state"], stage.states(planted)[0]))

    stage.provider.script("delete_file", Act(look_now))

    stage.collect()

    assert seen == [("collected", "completed")]


def test_a_file_that_cannot_be_deleted_is_tried_again_until_it_is_gone(stage: Stage) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    for _ in range(3):
        stage.provider.script("delete_file", Lose(), Refuse(status=500))

    stage.collect()
    assert stage.states(planted) == ["completed"]
    assert stage.batch(planted)["files_deleted_at"] is None

    for _ in range(4):
        stage.collect(minutes=30)

    assert stage.provider.standing_files == []
    assert stage.batch(planted)["files_deleted_at"] is not None


def test_a_failed_batch_opens_the_circuit_where_the_account_is_why(stage: Stage) -> None:
    planted = stage.plant("one", "two")
    batch = planted.at_provider
    batch.phase, batch.status = BatchPhase.FAILED, "failed"
    batch.failure = Failure(FailureKind.ACCOUNT, "credit_balance_exhausted")

    stage.collect()

    assert stage.store.read(find_open_circuits) == {stage.batch(planted)["account"]}
    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.attempt_count) for job in found] == [("queued", 0)] * 2
