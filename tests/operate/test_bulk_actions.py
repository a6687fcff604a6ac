"""Bulk actions as jobs: they cover all matches, survive a crash, and act for their caller."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Forbidden, Gone, Holdfast, Settings, State
from holdfast.engine.maintenance import rescue_jobs
from holdfast.operate import bulk, cancel_all
from holdfast.operate.bulk_actions import BulkAction, CancelAction, DeliveryAction, LetterAction
from holdfast.operate.bulk_job import JOB_TYPE
from holdfast.operate.bulk_runner import BulkRunner
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter
from holdfast.operate.operator import Operator
from holdfast.operate.refusal import BulkActionNotFound, CountChanged, InvalidAction, KeyReused
from tests.operate.sound import assert_sound
from tests.outbox.planted import plant_delivery
from tests.story import ORG, OTHER_ORG, events, look, timeline

WHY = "INC-7"


def operator(hf: Holdfast, role: str = "operator", org_id: str | None = ORG) -> Operator:
    return hf.operate(actor="user:olga", role=role, org_id=org_id)


def die(hf: Holdfast, count: int, *, org_id: str = ORG) -> list[Any]:
    if "die" not in hf.registry:

        def fail(job: Context, payload: Any) -> None:
            raise Gone()

        hf.job("die", max_attempts=1)(fail)
    made = hf.enqueue_many("die", [{}] * count, org_id=org_id)
    hf.worker(queues=["q:default"]).run_once(limit=count)
    return made


def discard(reason: str = WHY, **conditions: Any) -> LetterAction:
    return LetterAction("discard", DeadLetterFilter(job_type="die", **conditions), reason)


def work(hf: Holdfast) -> None:
    hf.worker(queues=["q:maintenance"]).run_once(limit=1)


def refresh(hf: Holdfast, action: BulkAction) -> BulkAction:
    return operator(hf, "admin", None).bulk_actions.get(action.id)


def test_a_bulk_action_covers_all_matches_with_the_actor_and_the_reason(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    dead = die(hf, 5)

    action = operator(hf).bulk_actions.start(discard(), expected=5)
    before = (action.state, action.done, action.ready)
    clock.advance(seconds=1)
    # A dead letter that was not in the list.
    later = die(hf, 1)
    work(hf)
    done = refresh(hf, action)

    assert before == (State.QUEUED, 0, 5)
    assert (done.state, done.done, done.counts["skipped"]) == (State.COMPLETED, 5, 0)
    for job in dead:
        (event,) = [row for row in events(hf, job) if row["name"] == "dead_letter.discarded"]
        assert event["actor_id"] == "olga"
        assert WHY in str(event["detail"])
        assert action.id in str(event["detail"])
    assert "dead_letter.discarded" not in timeline(hf, later[0])
    assert_sound(hf)


@pytest.mark.parametrize("crash", ["before the page", "after the page"])
def test_a_bulk_action_continues_after_a_crash_and_counts_every_item_once(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    dead = die(hf, 5)
    action = operator(hf).bulk_actions.start(discard(), expected=5)
    real, calls = bulk.LetterPages.act, []

    class Killed(BaseException):
        pass

    def act(self: Any, tx: Any, cursor: str) -> Any:
        calls.append(cursor)
        if len(calls) == 2 and crash == "before the page":
            raise Killed
        page = real(self, tx, cursor)
        if len(calls) == 2:
            raise Killed
        return page

    monkeypatch.setattr(bulk.LetterPages, "act", act)
    with pytest.raises(Killed):
        work(hf)
    interrupted = refresh(hf, action)
    clock.advance(minutes=10)
    rescue_jobs(hf.store, limit=10)
    clock.advance(minutes=10)
    work(hf)
    done = refresh(hf, action)

    assert (interrupted.state, interrupted.done) == (State.PROCESSING, 2)
    assert (done.state, done.done, done.skipped) == (State.COMPLETED, 5, 0)
    for job in dead:
        assert timeline(hf, job).count("dead_letter.discarded") == 1
    assert_sound(hf)


def test_a_bulk_cancel_ends_waiting_jobs_and_leaves_out_later_and_refused_ones(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_all, "PAGE", 3)
    hf.job("work")(lambda job, payload: None)
    hf.job("payroll", cancel_role="admin")(lambda job, payload: None)
    hf.job("other")(lambda job, payload: None)
    waiting = hf.enqueue_many("work", [{}] * 7, org_id=ORG)
    guarded = hf.enqueue("payroll", {}, org_id=ORG)
    other = hf.enqueue("other", {}, org_id=ORG, queue="q:exports")
    foreign = hf.enqueue("work", {}, org_id=OTHER_ORG)
    request = CancelAction(JobFilter(queue="q:default"), WHY)

    action = operator(hf).bulk_actions.start(request, expected=8)
    clock.advance(seconds=1)
    late = hf.enqueue("work", {}, org_id=ORG)
    work(hf)
    done = refresh(hf, action)

    assert done.error is None, done.error
    assert done.counts == {"canceled": 7, "refused": 1}
    assert {hf.get(job.id, org_id=ORG).state for job in waiting} == {State.CANCELED}
    assert timeline(hf, waiting[0])[-2:] == ["job.cancel_requested", "job.canceled"]
    assert hf.get(guarded.id, org_id=ORG).state is State.QUEUED
    assert hf.get(other.id, org_id=ORG).state is State.QUEUED
    assert hf.get(foreign.id, org_id=OTHER_ORG).state is State.QUEUED
    assert hf.get(late.id, org_id=ORG).state is State.QUEUED
    assert_sound(hf)


def test_an_admin_cancels_the_jobs_of_all_tenants_and_not_the_action_itself(hf: Holdfast) -> None:
    hf.job("tidy", category="maintenance")(lambda job, payload: None)
    tomorrow = hf.clock.now() + timedelta(days=1)
    jobs = [hf.enqueue("tidy", {}, org_id=org, not_before_at=tomorrow) for org in (ORG, OTHER_ORG)]
    request = CancelAction(JobFilter(queue="q:maintenance"), WHY)
    with pytest.raises(Forbidden):
        operator(hf, "operator", None).bulk_actions.start(request, expected=9)

    action = operator(hf, "admin", None).bulk_actions.start(request, expected=2)
    work(hf)

    assert [hf.get(job.id, org_id=job.org_id).state for job in jobs] == [State.CANCELED] * 2
    assert (refresh(hf, action).state, refresh(hf, action).done) == (State.COMPLETED, 2)


def test_replays_and_deliveries_are_bulk_actions_too(hf: Holdfast) -> None:
    die(hf, 3)
    held = [plant_delivery(hf, org_id=ORG, state="held") for _ in range(2)]
    recover = LetterAction("recover", DeadLetterFilter(job_type="die"), WHY, kind="data")
    drop = DeliveryAction("drop_delivery", DeliveryFilter(state="held"), WHY)

    replayed = operator(hf).bulk_actions.start(recover, expected=3)
    work(hf)
    dropped = operator(hf).bulk_actions.start(drop, expected=2)
    work(hf)

    assert refresh(hf, replayed).done == 3
    assert refresh(hf, dropped).done == len(held)
    states = look(hf.store, "SELECT state FROM holdfast.dead_letter")
    assert {row["state"] for row in states} == {"replaying"}
    assert_sound(hf)


def test_a_bulk_action_is_refused_without_a_filter_a_role_or_the_right_count(hf: Holdfast) -> None:
    die(hf, 3)

    with pytest.raises(CountChanged):
        operator(hf).bulk_actions.start(discard(), expected=2)
    with pytest.raises(Forbidden):
        operator(hf, "viewer").bulk_actions.start(discard(), expected=3)
    empty = LetterAction("discard", DeadLetterFilter(), WHY)
    with pytest.raises(InvalidAction):
        operator(hf, "admin", None).bulk_actions.start(empty, expected=3)
    with pytest.raises(InvalidAction):
        operator(hf).bulk_actions.start(discard(reason=" "), expected=3)
    assert operator(hf).bulk_actions.start(discard(), expected=2, tolerance=1).matched == 3


@pytest.mark.req("X-01")
def test_a_forged_bulk_action_does_nothing(hf: Holdfast) -> None:
    """The payload names a role and a tenant, so it is signed."""
    die(hf, 1)
    action = operator(hf).bulk_actions.start(discard(), expected=1)
    signed = hf.get(action.id, org_id=ORG).record["payload"]
    die(hf, 1, org_id=OTHER_ORG)
    forged = [
        hf.enqueue(JOB_TYPE, {**signed, **change}, org_id=ORG, actor="user:olga")
        for change in ({"org_id": None}, {"role": "admin"}, {"signature": "x"})
    ]
    # A copy for another tenant, and one of another actor.
    forged.append(hf.enqueue(JOB_TYPE, signed, org_id=OTHER_ORG, actor="user:olga"))
    forged.append(hf.enqueue(JOB_TYPE, signed, org_id=ORG, actor="user:eve"))
    with pytest.raises(Forbidden):
        operator(hf, "admin", None).jobs.enqueue(JOB_TYPE, signed, org_id=ORG)

    for _ in forged:
        hf.worker(queues=["q:maintenance"]).run_once(limit=10)

    for job in forged:
        found = hf.get(job.id, org_id=job.org_id)
        assert (found.state, found.record["error_class"]) == (State.FAILED, "AUTH_DENIED")
    assert refresh(hf, action).done == 1
    (left,) = operator(hf, org_id=OTHER_ORG).dead_letters.list(DeadLetterFilter(job_type="die"))
    assert left.state == "open"


def test_a_repeated_request_with_the_same_key_is_one_bulk_action(hf: Holdfast) -> None:
    die(hf, 2)
    actions = operator(hf).bulk_actions

    first = actions.start(discard(), expected=2, idempotency_key="k1")
    work(hf)
    again = actions.start(discard(), expected=2, idempotency_key="k1")

    assert (again.id, again.done) == (first.id, 2)
    with pytest.raises(KeyReused):
        actions.start(discard(reason="another"), expected=2, idempotency_key="k1")


@pytest.mark.req("X-01")
def test_a_bulk_action_of_another_tenant_does_not_exist(hf: Holdfast) -> None:
    die(hf, 1)
    job = hf.enqueue("die", {}, org_id=ORG)
    action = operator(hf).bulk_actions.start(discard(), expected=1)
    stranger = operator(hf, org_id=OTHER_ORG).bulk_actions

    for asked in (action.id, job.id, "x"):
        with pytest.raises(BulkActionNotFound):
            stranger.get(asked)
    assert [one.id for one in operator(hf).bulk_actions.list()] == [action.id]
    assert len(stranger.list()) == 0
    with pytest.raises(BulkActionNotFound):
        operator(hf).bulk_actions.get(job.id)


def test_the_process_that_serves_people_runs_an_action_while_no_worker_does(url: str) -> None:
    """The worker takes bulk actions and no other jobs."""
    with Holdfast(settings=Settings(db=url)) as hf:
        die(hf, 3)
        hf.job("tidy", category="maintenance")(lambda job, payload: None)
        tidy = hf.enqueue("tidy", {}, org_id=ORG)
        action = operator(hf).bulk_actions.start(discard(), expected=3)
        runner = BulkRunner(hf)
        runner.wake()
        runner.wake()
        runner.join(60)

        assert (refresh(hf, action).state, refresh(hf, action).done) == (State.COMPLETED, 3)
        assert hf.get(tidy.id, org_id=ORG).state is State.QUEUED


def test_a_running_worker_takes_the_action_and_the_serving_process_does_not(
    hf: Holdfast,
) -> None:
    die(hf, 1)
    operator(hf).bulk_actions.start(discard(), expected=1)
    runner = BulkRunner(hf)

    idle = runner._is_served()
    hf.worker()._heartbeat.send()

    assert (idle, runner._is_served(), runner._is_needed()) == (False, True, True)
